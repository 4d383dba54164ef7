//! Small graphs of the ops that decoders are lowered to, each with a double-precision reference.
//!
//! *Tolerances*: float32 graphs within 1e-5 of the reference, relative to its largest value; data movement exactly.

use std::sync::Arc;

use genie_types::{Dtype, TensorInfo};
use qnn_api::{Backend, Context, ContextOptions, GraphOptions, Param, TensorKind, TensorRef};

/// One graph: an op over float32 inputs, constants and parameters.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Says what is special about it.
    pub name: &'static str,
    /// QNN's op.
    pub op: &'static str,
    /// Client inputs: extents and values.
    pub inputs: Vec<(Vec<usize>, Vec<f32>)>,
    /// Static tensors, after the inputs in the op's order.
    pub constants: Vec<(Vec<usize>, Vec<f32>)>,
    /// Parameters.
    pub params: Vec<(&'static str, Param)>,
    /// Extents of the output.
    pub output: Vec<usize>,
    /// The output in double precision.
    pub reference: Vec<f64>,
    /// Largest difference allowed, relative to the reference's largest value.
    pub tolerance: f64,
}

impl Problem {
    /// Composes, finalises and executes the graph; then stores the context, loads it and executes again.
    ///
    /// # Panics
    /// A call fails, or the loaded graph answers otherwise than the composed one.
    pub fn run(&self, backend: &Arc<Backend>) -> Vec<f32> {
        let context = Context::create(backend, &ContextOptions::default()).expect("a context");
        let mut builder = context.compose("problem", &GraphOptions::default()).expect("a graph");
        let mut operands: Vec<TensorRef> = Vec::new();
        for (i, (dims, _)) in self.inputs.iter().enumerate() {
            let info = TensorInfo::new(format!("in{i}"), dims.clone(), Dtype::F32);
            operands.push(builder.tensor(&info, TensorKind::Input).expect("an input"));
        }
        for (i, (dims, values)) in self.constants.iter().enumerate() {
            let info = TensorInfo::new(format!("constant{i}"), dims.clone(), Dtype::F32);
            operands.push(builder.constant(&info, &bytes(values)).expect("a constant"));
        }
        let out = TensorInfo::new("out", self.output.clone(), Dtype::F32);
        let out = builder.tensor(&out, TensorKind::Output).expect("an output");
        builder.node("node", self.op, &self.params, &operands, &[out]).unwrap_or_else(|e| panic!("{}: {e}", self.name));
        let mut graph = builder.finalize().unwrap_or_else(|e| panic!("{}: {e}", self.name));
        let composed = self.execute(&mut graph);

        let stored = context.to_bytes().expect("the context is stored");
        let loaded = Context::from_bytes(backend, &stored, &ContextOptions::default()).expect("the context is loaded");
        let again = self.execute(&mut loaded.graph("problem").expect("the graph is found"));
        assert_eq!(composed, again, "{}: a loaded graph answers otherwise", self.name);
        composed
    }

    fn execute(&self, graph: &mut qnn_api::Graph) -> Vec<f32> {
        let inputs: Vec<Vec<u8>> = self.inputs.iter().map(|(_, values)| bytes(values)).collect();
        let mut output = vec![0; self.reference.len() * 4];
        let mut session = graph.session();
        for (i, input) in inputs.iter().enumerate() {
            session.input(i, input).expect("the input fits");
        }
        session.output(0, &mut output).expect("the output fits");
        session.run().unwrap_or_else(|e| panic!("{}: {e}", self.name));
        output.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    /// Holds an output against the reference.
    ///
    /// # Errors
    /// The first value that is off, as text.
    pub fn check(&self, output: &[f32]) -> Result<(), String> {
        let largest = self.reference.iter().fold(1e-30, |m: f64, x| m.max(x.abs()));
        for (i, (found, expected)) in output.iter().zip(&self.reference).enumerate() {
            let off = (f64::from(*found) - expected).abs() / largest;
            if off.is_nan() || off > self.tolerance {
                return Err(format!("{}: value {i} is {found}, expected {expected}", self.name));
            }
        }
        if output.len() == self.reference.len() {
            Ok(())
        } else {
            Err(format!("{}: {} values", self.name, output.len()))
        }
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Values in [-1, 1) that are the same every time.
fn made_up(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

const CLOSE: f64 = 1e-5;
const EXACT: f64 = 0.0;

/// All problems.
pub fn all() -> Vec<Problem> {
    let mut problems = vec![
        fully_connected("one row", 1, 48, 40),
        fully_connected("a few rows", 5, 33, 17),
        fully_connected("many rows", 64, 96, 80),
        mat_mul("plain", false),
        mat_mul("second operand transposed", true),
        rms_norm(3, 48),
        rotary(6, 5, 16),
        softmax(7, 33),
        transpose(),
        concat(),
        reshape(),
    ];
    for (op, f) in [
        ("ElementWiseAdd", (|a, b| a + b) as fn(f64, f64) -> f64),
        ("ElementWiseSubtract", |a, b| a - b),
        ("ElementWiseMultiply", |a, b| a * b),
    ] {
        problems.push(elementwise(op, f));
    }
    problems.push(sigmoid());
    problems
}

fn fully_connected(name: &'static str, rows: usize, k: usize, n: usize) -> Problem {
    let (x, w, b) = (made_up(rows * k, 1), made_up(n * k, 2), made_up(n, 3));
    let (xs, ws) = (wide(&x), wide(&w));
    let dot =
        |r: usize, c: usize| -> f64 { (0..k).map(|i| xs[r * k + i] * ws[c * k + i]).sum::<f64>() + f64::from(b[c]) };
    let reference = (0..rows * n).map(|i| dot(i / n, i % n)).collect();
    Problem {
        name,
        op: "FullyConnected",
        inputs: vec![(vec![rows, k], x)],
        constants: vec![(vec![n, k], w), (vec![n], b)],
        params: vec![],
        output: vec![rows, n],
        reference,
        tolerance: CLOSE,
    }
}

fn mat_mul(name: &'static str, transposed: bool) -> Problem {
    // The second operand's batch of 2 serves the first's 2 x 3.
    let (m, k, n) = (4, 8, 10);
    let (a, b) = (made_up(6 * m * k, 4), made_up(2 * k * n, 5));
    let (aw, bw) = (wide(&a), wide(&b));
    let at =
        |g: usize, i: usize, j: usize| if transposed { bw[g * k * n + j * k + i] } else { bw[g * k * n + i * n + j] };
    let mut reference = Vec::new();
    for batch in 0..6 {
        for r in 0..m {
            for c in 0..n {
                reference.push((0..k).map(|i| aw[(batch * m + r) * k + i] * at(batch / 3, i, c)).sum());
            }
        }
    }
    let second = if transposed { vec![2, 1, n, k] } else { vec![2, 1, k, n] };
    Problem {
        name,
        op: "MatMul",
        inputs: vec![(vec![2, 3, m, k], a), (second, b)],
        constants: vec![],
        params: vec![("transpose_in0", Param::Bool(false)), ("transpose_in1", Param::Bool(transposed))],
        output: vec![2, 3, m, n],
        reference,
        tolerance: CLOSE,
    }
}

fn rms_norm(rows: usize, width: usize) -> Problem {
    let (x, gamma) = (made_up(rows * width, 6), made_up(width, 7));
    let mut reference = Vec::new();
    for row in x.chunks(width) {
        let mean = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / width as f64;
        let scale = (mean + 1e-5).sqrt().recip();
        reference.extend(row.iter().zip(&gamma).map(|(v, g)| f64::from(*v) * scale * f64::from(*g)));
    }
    Problem {
        name: "RMS norm",
        op: "RmsNorm",
        inputs: vec![(vec![1, rows, width], x)],
        constants: vec![(vec![width], gamma)],
        params: vec![("epsilon", Param::F32(1e-5)), ("axes", Param::U32Tensor { dims: vec![1], data: vec![2] })],
        output: vec![1, rows, width],
        reference,
        tolerance: CLOSE,
    }
}

fn rotary(heads: usize, seq: usize, dim: usize) -> Problem {
    let half = dim / 2;
    let x = made_up(heads * seq * dim, 8);
    let angle = |s: usize, j: usize| s as f64 * 100f64.powf(-(j as f64) / half as f64);
    let table = |f: fn(f64) -> f64| (0..seq * half).map(|i| f(angle(i / half, i % half)) as f32).collect::<Vec<_>>();
    let mut reference = Vec::new();
    for (row, values) in x.chunks(dim).enumerate() {
        let s = row % seq;
        let turn = |j: usize| {
            let (sin, cos) = angle(s, j % half).sin_cos();
            let (a, b) = (f64::from(values[j % half]), f64::from(values[j % half + half]));
            if j < half { a * cos - b * sin } else { b * cos + a * sin }
        };
        reference.extend((0..dim).map(turn));
    }
    Problem {
        name: "rotary embedding, half-split",
        op: "RotaryEmbedding",
        inputs: vec![
            (vec![1, heads, seq, dim], x),
            (vec![1, seq, half], table(f64::cos)),
            (vec![1, seq, half], table(f64::sin)),
        ],
        constants: vec![],
        params: vec![("interleaved", Param::Bool(false)), ("rotary_embedding_dim", Param::U32(dim as u32))],
        output: vec![1, heads, seq, dim],
        reference,
        tolerance: CLOSE,
    }
}

fn softmax(rows: usize, width: usize) -> Problem {
    let x: Vec<f32> = made_up(rows * width, 9).iter().map(|v| v * 20.0).collect();
    let mut reference = Vec::new();
    for row in x.chunks(width) {
        let top = row.iter().fold(f32::MIN, |m, v| m.max(*v));
        let powers: Vec<f64> = row.iter().map(|v| f64::from(v - top).exp()).collect();
        let sum: f64 = powers.iter().sum();
        reference.extend(powers.iter().map(|p| p / sum));
    }
    Problem {
        name: "softmax",
        op: "Softmax",
        inputs: vec![(vec![1, 1, rows, width], x)],
        constants: vec![],
        params: vec![("axis", Param::U32(3))],
        output: vec![1, 1, rows, width],
        reference,
        tolerance: CLOSE,
    }
}

fn transpose() -> Problem {
    let x = made_up(2 * 3 * 4 * 5, 10);
    let mut reference = Vec::new();
    for a in 0..2 {
        for c in 0..4 {
            for b in 0..3 {
                reference.extend((0..5).map(|d| f64::from(x[((a * 3 + b) * 4 + c) * 5 + d])));
            }
        }
    }
    Problem {
        name: "transpose 0213",
        op: "Transpose",
        inputs: vec![(vec![2, 3, 4, 5], x)],
        constants: vec![],
        params: vec![("perm", Param::U32Tensor { dims: vec![4], data: vec![0, 2, 1, 3] })],
        output: vec![2, 4, 3, 5],
        reference,
        tolerance: EXACT,
    }
}

fn concat() -> Problem {
    let (a, b) = (made_up(2 * 3 * 5, 11), made_up(2 * 3 * 2, 12));
    let mut reference = Vec::new();
    for row in 0..6 {
        reference.extend(wide(&a[row * 5..][..5]));
        reference.extend(wide(&b[row * 2..][..2]));
    }
    Problem {
        name: "concat on the last axis",
        op: "Concat",
        inputs: vec![(vec![2, 1, 3, 5], a), (vec![2, 1, 3, 2], b)],
        constants: vec![],
        params: vec![("axis", Param::U32(3))],
        output: vec![2, 1, 3, 7],
        reference,
        tolerance: EXACT,
    }
}

fn reshape() -> Problem {
    let x = made_up(24, 13);
    let reference = wide(&x);
    Problem {
        name: "reshape",
        op: "Reshape",
        inputs: vec![(vec![2, 3, 4], x)],
        constants: vec![],
        params: vec![],
        output: vec![6, 4],
        reference,
        tolerance: EXACT,
    }
}

fn elementwise(op: &'static str, f: fn(f64, f64) -> f64) -> Problem {
    let (a, b) = (made_up(3 * 7 * 8, 14), made_up(8, 15));
    let reference = a.iter().enumerate().map(|(i, v)| f(f64::from(*v), f64::from(b[i % 8]))).collect();
    Problem {
        name: op,
        op,
        inputs: vec![(vec![1, 3, 7, 8], a), (vec![8], b)],
        constants: vec![],
        params: vec![],
        output: vec![1, 3, 7, 8],
        reference,
        tolerance: 1e-7,
    }
}

fn sigmoid() -> Problem {
    let x: Vec<f32> = made_up(100, 16).iter().map(|v| v * 12.0).collect();
    let reference = x.iter().map(|v| 1.0 / (1.0 + (-f64::from(*v)).exp())).collect();
    Problem {
        name: "sigmoid",
        op: "Sigmoid",
        inputs: vec![(vec![1, 100], x)],
        constants: vec![],
        params: vec![],
        output: vec![1, 100],
        reference,
        tolerance: CLOSE,
    }
}
