//! Graphs for tests: built by name, filled with repeatable noise, run with and without fusion.

use half::{bf16, f16};

use crate::bytes::Bytes;
use crate::exec::Executable;
use crate::graph::ExecError;
use crate::ir::{Dtype, Node, Param, Quant, Role, SourceGraph, Tensor, TensorId};
use crate::pool::{Pool, PoolOptions};
use crate::prepare::PrepareOptions;
use crate::step::Arena;

/// Noise that is the same on every run.
#[derive(Clone)]
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let x = (self.0 >> 33) ^ self.0;
        x.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20
    }

    /// In `-1.0..1.0`.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.bits() % 20_001) as f32 / 10_000.0 - 1.0
    }

    pub(crate) fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }
}

/// How far a quantised number of a block of activations may be off: half a scale, which is a 127th of the largest magnitude and up to
/// two ninths more.
pub(crate) fn half_step(block: &[f32]) -> f64 {
    let largest = block.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    11.0 / 9.0 * f64::from(largest) / 254.0
}

/// Cases of a property: `most`, or what `PROPTEST_CASES` says where that is fewer, as under an emulator.
pub(crate) fn cases(most: u32) -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    asked.map_or(most, |asked: u32| asked.min(most))
}

/// Whether properties have few cases, as under an emulator; tests of many fixed shapes take some of them then.
pub(crate) fn is_short() -> bool {
    cases(u32::MAX) <= 24
}

/// All of them; every third from one near `at` on where tests are [short](is_short).
pub(crate) fn some_of<T>(at: usize, all: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    let step = if is_short() { 3 } else { 1 };
    all.into_iter().skip(at % step).step_by(step)
}

/// Numbers as bytes of a float or 32-bit integer type.
pub(crate) fn bytes_of(dtype: Dtype, values: &[f32]) -> Vec<u8> {
    match dtype {
        Dtype::F16 => values.iter().flat_map(|&x| f16::from_f32(x).to_ne_bytes()).collect(),
        Dtype::Bf16 => values.iter().flat_map(|&x| bf16::from_f32(x).to_ne_bytes()).collect(),
        Dtype::F32 => values.iter().flat_map(|&x| x.to_ne_bytes()).collect(),
        Dtype::I32 | Dtype::U32 => values.iter().flat_map(|&x| (x as i32).to_ne_bytes()).collect(),
        Dtype::U8 | Dtype::UFixed8 | Dtype::Bool8 => values.iter().map(|&x| x as u8).collect(),
        Dtype::I8 | Dtype::SFixed8 => values.iter().flat_map(|&x| (x as i8).to_ne_bytes()).collect(),
        Dtype::U16 | Dtype::UFixed16 => values.iter().flat_map(|&x| (x as u16).to_ne_bytes()).collect(),
        other => panic!("no bytes of {other:?} in tests"),
    }
}

/// Bytes as numbers.
pub(crate) fn numbers_of(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        Dtype::F16 => bytes.as_chunks().0.iter().map(|&b| f16::from_ne_bytes(b).to_f32()).collect(),
        Dtype::Bf16 => bytes.as_chunks().0.iter().map(|&b| bf16::from_ne_bytes(b).to_f32()).collect(),
        Dtype::F32 => bytes.as_chunks().0.iter().map(|&b| f32::from_ne_bytes(b)).collect(),
        Dtype::I32 | Dtype::U32 => bytes.as_chunks().0.iter().map(|&b| i32::from_ne_bytes(b) as f32).collect(),
        Dtype::U8 | Dtype::UFixed8 | Dtype::Bool8 => bytes.iter().map(|&b| f32::from(b)).collect(),
        Dtype::I8 | Dtype::SFixed8 => bytes.iter().map(|&b| f32::from(b.cast_signed())).collect(),
        Dtype::U16 | Dtype::UFixed16 => bytes.as_chunks().0.iter().map(|&b| f32::from(u16::from_ne_bytes(b))).collect(),
        other => panic!("no numbers of {other:?} in tests"),
    }
}

/// A graph in the making.
pub(crate) struct Build {
    pub(crate) graph: SourceGraph,
}

impl Build {
    pub(crate) fn new() -> Self {
        Self { graph: SourceGraph { name: "test".to_owned(), ..SourceGraph::default() } }
    }

    pub(crate) fn tensor(&mut self, name: &str, dims: &[u32], dtype: Dtype, quant: Quant, role: Role) -> TensorId {
        let tensor = Tensor { name: name.to_owned(), dims: dims.to_vec(), dtype, quant, data_format: 0, role };
        self.graph.tensors.push(tensor);
        TensorId(self.graph.tensors.len() as u32 - 1)
    }

    pub(crate) fn input(&mut self, name: &str, dims: &[u32], dtype: Dtype) -> TensorId {
        self.tensor(name, dims, dtype, Quant::None, Role::Input)
    }

    pub(crate) fn output(&mut self, name: &str, dims: &[u32], dtype: Dtype) -> TensorId {
        self.tensor(name, dims, dtype, Quant::None, Role::Output)
    }

    pub(crate) fn native(&mut self, dims: &[u32], dtype: Dtype) -> TensorId {
        let name = format!("t{}", self.graph.tensors.len());
        self.tensor(&name, dims, dtype, Quant::None, Role::Native)
    }

    pub(crate) fn constant(&mut self, dims: &[u32], dtype: Dtype, values: &[f32]) -> TensorId {
        let name = format!("c{}", self.graph.tensors.len());
        let bytes = Bytes::copy_from(&bytes_of(dtype, values));
        self.tensor(&name, dims, dtype, Quant::None, Role::Static(bytes))
    }

    pub(crate) fn null(&mut self) -> TensorId {
        let name = format!("n{}", self.graph.tensors.len());
        self.tensor(&name, &[], Dtype::F32, Quant::None, Role::Null)
    }

    pub(crate) fn node(&mut self, op: &str, params: &[(&str, Param)], inputs: &[TensorId], outputs: &[TensorId]) {
        let node = Node {
            name: format!("{op}_{}", self.graph.nodes.len()),
            op: op.to_owned(),
            params: params.iter().map(|(n, p)| ((*n).to_owned(), p.clone())).collect(),
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
        };
        self.graph.nodes.push(node);
    }

    /// A node with one native output.
    pub(crate) fn op(
        &mut self,
        op: &str,
        params: &[(&str, Param)],
        inputs: &[TensorId],
        dims: &[u32],
        dtype: Dtype,
    ) -> TensorId {
        let output = self.native(dims, dtype);
        self.node(op, params, inputs, &[output]);
        output
    }
}

/// A tensor parameter.
pub(crate) fn ints(values: &[i64]) -> Param {
    Param::Ints(vec![values.len() as u32], values.to_vec())
}

/// Outputs of one run, as bytes.
pub(crate) fn run(
    graph: &SourceGraph,
    fuse: bool,
    threads: usize,
    inputs: &[Vec<u8>],
) -> Result<Vec<Vec<u8>>, ExecError> {
    run_at(graph, fuse, threads, inputs, 0)
}

/// The same with client buffers that many bytes behind an aligned address.
fn run_at(
    graph: &SourceGraph,
    fuse: bool,
    threads: usize,
    inputs: &[Vec<u8>],
    shift: usize,
) -> Result<Vec<Vec<u8>>, ExecError> {
    let executable = Executable::prepare(graph, &PrepareOptions { fuse, ..PrepareOptions::default() })?;
    let pool = Pool::new(&PoolOptions { threads, ..PoolOptions::default() }).expect("threads start");
    let start = |bytes: &[u8]| bytes.as_ptr().align_offset(64) + shift;
    let inputs: Vec<(usize, Vec<u8>)> = inputs
        .iter()
        .map(|bytes| {
            let mut padded = vec![0; bytes.len() + 128];
            let at = start(&padded);
            padded[at..at + bytes.len()].copy_from_slice(bytes);
            padded.truncate(at + bytes.len());
            (at, padded)
        })
        .collect();
    let mut outputs: Vec<(usize, usize, Vec<u8>)> = graph
        .outputs()
        .map(|id| {
            let padded = vec![0xAB; graph.tensor(id).size_bytes() + 128];
            (start(&padded), graph.tensor(id).size_bytes(), padded)
        })
        .collect();
    let given: Vec<&[u8]> = inputs.iter().map(|(at, bytes)| &bytes[*at..]).collect();
    let mut taken: Vec<&mut [u8]> = outputs.iter_mut().map(|(at, n, bytes)| &mut bytes[*at..*at + *n]).collect();
    let mut arena = Arena::new();
    executable.reserve(&mut arena, threads).expect("there is memory");
    executable.run(&pool, &mut arena, &given, &mut taken, None)?;
    // Again, over what the first run left behind: nothing may depend on it.
    executable.run(&pool, &mut arena, &given, &mut taken, None)?;
    Ok(outputs.into_iter().map(|(at, n, bytes)| bytes[at..at + n].to_vec()).collect())
}

/// Runs with and without fusion, on one and on three threads; every output must agree within `tolerance`, relative to the
/// largest number of the output. Returns the unfused outputs.
pub(crate) fn compare(graph: &SourceGraph, inputs: &[Vec<u8>], tolerance: f32) -> Vec<Vec<f32>> {
    let plain = run(graph, false, 1, inputs).expect("runs unfused");
    let ids: Vec<TensorId> = graph.outputs().collect();
    let wanted: Vec<Vec<f32>> =
        ids.iter().zip(&plain).map(|(&id, bytes)| numbers_of(graph.tensor(id).dtype, bytes)).collect();
    for (fuse, threads, shift) in [(true, 1, 1), (true, 3, 0), (false, 2, 3)] {
        let found = run_at(graph, fuse, threads, inputs, shift).expect("runs fused");
        for ((&id, found), wanted) in ids.iter().zip(found).zip(&wanted) {
            let tensor = graph.tensor(id);
            let largest = wanted.iter().fold(1e-3f32, |m, x| m.max(x.abs()));
            for (i, (found, wanted)) in numbers_of(tensor.dtype, &found).iter().zip(wanted).enumerate() {
                assert!(
                    (found - wanted).abs() <= tolerance * largest,
                    "`{}`[{i}]: {found} fused ({fuse}, {threads} threads), {wanted} plain, of at most {largest}",
                    tensor.name
                );
            }
        }
    }
    wanted
}

/// What an executable is made of: labels in order.
pub(crate) fn labels(graph: &SourceGraph) -> Vec<&'static str> {
    Executable::prepare(graph, &PrepareOptions::default()).expect("prepares").labels()
}
