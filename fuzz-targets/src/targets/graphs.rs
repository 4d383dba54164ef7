//! Context binaries, and graphs as a client describes them.

use genie_types::{Dtype, TensorInfo};
use qnn_api::{Context, ContextOptions, Graph, Param, TensorKind, TensorRef, binary_info};

use super::places::{backend, check_message};

/// Largest buffers that a graph of a changed binary is run with.
const LARGEST_RUN: usize = 16 << 20;

/// Described, loaded, and each graph run on zeros.
pub(super) fn context_binary(bytes: &[u8]) {
    if let Err(error) = binary_info(backend().library(), bytes) {
        check_message(&error);
    }
    match Context::from_bytes(backend(), bytes, &ContextOptions::default()) {
        Ok(context) => {
            let names: Vec<String> = context.graphs().map(|graph| graph.name.clone()).collect();
            for name in names.iter().take(4) {
                if let Ok(mut graph) = context.graph(name) {
                    run_on_zeros(&mut graph);
                }
            }
        }
        Err(error) => check_message(&error),
    }
}

/// The container by itself: what decodes must also encode.
pub(super) fn container(bytes: &[u8]) {
    if let Err(error) = qnn_host::container::summary(bytes) {
        check_message(&error);
    }
    let copy = qnn_host::bytes::Bytes::copy_from(bytes);
    match qnn_host::container::decode(&copy, qnn_host::container::Verify::All) {
        Ok(image) => assert!(qnn_host::container::encode(&image).is_ok(), "what was read can be written"),
        Err(error) => check_message(&error),
    }
}

fn run_on_zeros(graph: &mut Graph) {
    let info = graph.info().clone();
    let total = info.inputs.iter().chain(&info.outputs).try_fold(0usize, |sum, t| sum.checked_add(t.size_bytes()));
    if total.is_none_or(|total| total > LARGEST_RUN) {
        return;
    }
    let inputs: Vec<Vec<u8>> = info.inputs.iter().map(|t| vec![0; t.size_bytes()]).collect();
    let mut outputs: Vec<Vec<u8>> = info.outputs.iter().map(|t| vec![0; t.size_bytes()]).collect();
    let mut session = graph.session();
    for (i, bytes) in inputs.iter().enumerate() {
        if let Err(error) = session.input(i, bytes) {
            return check_message(&error);
        }
    }
    for (i, bytes) in outputs.iter_mut().enumerate() {
        if let Err(error) = session.output(i, bytes) {
            return check_message(&error);
        }
    }
    if let Err(error) = session.run() {
        check_message(&error);
    }
}

/// Reads numbers off the input; zeros behind its end.
struct Source<'a>(&'a [u8]);

impl Source<'_> {
    fn byte(&mut self) -> usize {
        let (&first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        usize::from(first)
    }

    fn below(&mut self, n: usize) -> usize {
        self.byte() % n.max(1)
    }

    fn pick<'s, T>(&mut self, list: &'s [T]) -> &'s T {
        &list[self.below(list.len())]
    }

    /// Mostly small, now and then an extreme.
    fn number(&mut self) -> i64 {
        match self.byte() {
            255 => i64::from(i32::MAX),
            254 => i64::from(i32::MIN),
            253 => -1,
            252 => i64::from(u32::MAX),
            n => (n % 9) as i64,
        }
    }

    fn dims(&mut self) -> Vec<usize> {
        (0..self.below(5)).map(|_| self.below(7)).collect()
    }

    fn param(&mut self) -> Param {
        match self.below(9) {
            0 => Param::U32(self.number() as u32),
            1 => Param::I32(self.number() as i32),
            2 => Param::Bool(self.byte() % 2 == 1),
            3 => Param::F32(*self.pick(&[0.0, 1.0, -1.0, 1e-5, f32::NAN, f32::INFINITY, 1e38])),
            4 => {
                let n = self.below(5);
                Param::U32Tensor { dims: vec![n], data: (0..n).map(|_| self.number() as u32).collect() }
            }
            5 => {
                let n = self.below(4);
                Param::I32Tensor { dims: vec![n, 2], data: (0..2 * n).map(|_| self.number() as i32).collect() }
            }
            6 => Param::F64(self.number() as f64 / 4.0),
            7 => Param::Text((0..self.below(4)).map(|_| char::from(self.byte() as u8)).collect()),
            _ => {
                let (n, dtype) = (self.below(5), *self.pick(&[Dtype::F32, Dtype::F16, Dtype::U8, Dtype::I64]));
                let data = (0..n * dtype.size_bytes()).map(|_| self.byte() as u8).collect();
                Param::Tensor { dtype, dims: vec![n], data }
            }
        }
    }
}

/// Parameters of QNN's ops, as the host knows them.
const PARAMS: [&str; 26] = [
    "axis",
    "axes",
    "keep_dims",
    "perm",
    "transpose_in0",
    "transpose_in1",
    "operation",
    "epsilon",
    "num_outputs",
    "split_index",
    "ranges",
    "begin_mask",
    "end_mask",
    "shrink_axes",
    "new_axes_mask",
    "multiples",
    "pad_amount",
    "scheme",
    "pad_constant_value",
    "stride",
    "dilation",
    "group",
    "k",
    "beta",
    "batch_dims",
    "reduction",
];

/// A graph of one to four nodes: any op, operands, parameters, extents and types. Refused, or run on zeros.
pub(super) fn ops(bytes: &[u8]) {
    use Dtype::{Bool8, F16, F32, I32, SFixed8, U8, U32, UFixed8, UFixed16};
    let operations = backend().operations().expect("the host lists its ops");
    let mut source = Source(bytes);
    let context = Context::create(backend(), &ContextOptions::default()).expect("an empty context");
    let mut builder = context.compose("fuzz", &Default::default()).expect("an empty graph");
    let mut tensors: Vec<TensorRef> = Vec::new();
    for i in 0..1 + source.below(8) {
        let dtype = *source.pick(&[F32, F32, F32, F16, I32, U8, U32, UFixed8, UFixed16, SFixed8, Bool8]);
        let mut info = TensorInfo::new(format!("t{i}"), source.dims(), dtype);
        if matches!(dtype, UFixed8 | UFixed16 | SFixed8) {
            info.quant = genie_types::Quant::PerTensor { scale: 0.1, offset: (source.number() as i32).wrapping_neg() };
        }
        let made = match source.below(4) {
            0 => {
                let constant: Vec<u8> = (0..info.size_bytes()).map(|_| source.byte() as u8).collect();
                builder.constant(&info, &constant)
            }
            1 => builder.tensor(&info, TensorKind::Output),
            2 => builder.tensor(&info, TensorKind::Native),
            _ => builder.tensor(&info, TensorKind::Input),
        };
        match made {
            Ok(tensor) => tensors.push(tensor),
            Err(error) => check_message(&error),
        }
    }
    if tensors.is_empty() {
        return;
    }
    for i in 0..1 + source.below(4) {
        let op = source.pick(&operations).clone();
        let params: Vec<(&str, Param)> =
            (0..source.below(4)).map(|_| (*source.pick(&PARAMS), source.param())).collect();
        let inputs: Vec<TensorRef> = (0..source.below(5)).map(|_| *source.pick(&tensors)).collect();
        let outputs: Vec<TensorRef> = (0..source.below(3)).map(|_| *source.pick(&tensors)).collect();
        if let Err(error) = builder.node(&format!("n{i}"), &op, &params, &inputs, &outputs) {
            check_message(&error);
        }
    }
    match builder.finalize() {
        Ok(mut graph) => run_on_zeros(&mut graph),
        Err(error) => check_message(&error),
    }
}
