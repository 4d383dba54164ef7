//! One token's new cache rows put into blocks, as ops and as the one step that they are joined into, side by side with a `memcpy`
//! of the numbers and scales: each repetition times all three, so that they see the same machine however busy it is. Medians.
//!
//! Rows of Llama 3.2 1B (16 layers, 8 heads of 64) and Llama 3.1 8B (32 layers, 8 heads of 128), keys and values; a layer takes what
//! the one before it made, so that layers follow each other as in a decoder. A time is that of all layers, one run of a graph.

use std::hint::black_box;
use std::time::{Duration, Instant};

use qnn_host::bytes::Bytes;
use qnn_host::exec::Executable;
use qnn_host::ir::{Dtype, Node, Param, Quant, Role, SourceGraph, Tensor, TensorId};
use qnn_host::kernels::attention::BLOCK;
use qnn_host::kernels::{BlockRule, Isa, SCALE_BYTES, quantise_blocks};
use qnn_host::pool::{Pool, PoolOptions};
use qnn_host::prepare::PrepareOptions;
use qnn_host::step::Arena;

const HEADS: u32 = 8;
const NUMBERS: Quant = Quant::PerTensor { scale: 1.0, offset: -128 };
const RULE: BlockRule = BlockRule { divisor: 127.0, least: 5.960_464_5e-8, offset: -128 };

/// Time for the repetitions of one row of the table.
const BUDGET: Duration = Duration::from_millis(700);

/// A graph in the making.
#[derive(Default)]
struct Build(SourceGraph);

impl Build {
    fn tensor(&mut self, dims: &[u32], dtype: Dtype, quant: Quant, role: Role) -> TensorId {
        let name = format!("t{}", self.0.tensors.len());
        self.0.tensors.push(Tensor { name, dims: dims.to_vec(), dtype, quant, data_format: 0, role });
        TensorId(self.0.tensors.len() as u32 - 1)
    }

    fn constant(&mut self, number: f32) -> TensorId {
        let bytes = Bytes::copy_from(&number.to_ne_bytes());
        self.tensor(&[1], Dtype::F32, Quant::None, Role::Static(bytes))
    }

    fn node(&mut self, op: &str, inputs: &[TensorId], output: TensorId) -> TensorId {
        let axes = || Param::Ints(vec![1], vec![3]);
        let params = match op {
            "ReduceMax" => vec![("axes".to_owned(), axes()), ("keep_dims".to_owned(), Param::Bool(true))],
            _ => Vec::new(),
        };
        let name = format!("n{}", self.0.nodes.len());
        self.0.nodes.push(Node { name, op: op.to_owned(), params, inputs: inputs.to_vec(), outputs: vec![output] });
        output
    }

    fn op(&mut self, op: &str, inputs: &[TensorId], dims: &[u32]) -> TensorId {
        let output = self.tensor(dims, Dtype::F32, Quant::None, Role::Native);
        self.node(op, inputs, output)
    }

    /// As `compiler/src/lower/block_cache.rs` writes it, for one row of each head.
    fn quantised(&mut self, x: TensorId, dim: u32) -> TensorId {
        let blocks = dim / BLOCK as u32;
        let (split, one_each) = ([HEADS, 1, blocks, BLOCK as u32], [HEADS, 1, blocks, 1]);
        let (row, of_rows) = ([HEADS, 1, 1, dim], [HEADS, 1, 1, blocks]);
        let (divisor, least) = (self.constant(RULE.divisor), self.constant(RULE.least));
        let x = self.op("Reshape", &[x], &split);
        let sizes = self.op("ElementWiseAbs", &[x], &split);
        let largest = self.op("ReduceMax", &[sizes], &one_each);
        let scales = self.op("ElementWiseDivide", &[largest, divisor], &one_each);
        let scales = self.op("ElementWiseMaximum", &[scales, least], &one_each);
        let halves = self.tensor(&one_each, Dtype::F16, Quant::None, Role::Native);
        self.node("Convert", &[scales], halves);
        let out = self.tensor(&of_rows, Dtype::F16, Quant::None, Role::Output);
        self.node("Reshape", &[halves], out);
        let scales = self.op("Convert", &[out], &of_rows);
        let scales = self.op("Reshape", &[scales], &one_each);
        let exact = self.op("ElementWiseDivide", &[x, scales], &split);
        let whole = self.tensor(&split, Dtype::UFixed8, NUMBERS, Role::Native);
        self.node("Convert", &[exact], whole);
        let numbers = self.tensor(&row, Dtype::UFixed8, NUMBERS, Role::Output);
        self.node("Reshape", &[whole], numbers);
        let float = self.op("Convert", &[numbers], &row);
        let float = self.op("Reshape", &[float], &split);
        let product = self.op("ElementWiseMultiply", &[float, scales], &split);
        self.op("Reshape", &[product], &row)
    }
}

/// Keys and values of all layers.
fn graph(layers: usize, dim: u32) -> SourceGraph {
    let mut b = Build::default();
    for _ in 0..2 {
        let mut x = b.tensor(&[HEADS, 1, 1, dim], Dtype::F32, Quant::None, Role::Input);
        (0..layers).for_each(|_| x = b.quantised(x, dim));
        let last = b.tensor(&[HEADS, 1, 1, dim], Dtype::F32, Quant::None, Role::Output);
        b.node("Reshape", &[x], last);
    }
    b.0
}

/// A graph that is ready to run.
struct Run {
    executable: Executable,
    arena: Arena,
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
}

impl Run {
    fn new(graph: &SourceGraph, fuse: bool) -> Self {
        let mut options = PrepareOptions::default();
        options.fuse = fuse;
        let executable = Executable::prepare(graph, &options).expect("the graph is sound");
        let bytes = |n: usize| (0..n / 4).flat_map(|i| (((i * 37) % 101) as f32 / 50.0 - 1.0).to_ne_bytes()).collect();
        let inputs = graph.inputs().map(|id| bytes(graph.tensor(id).size_bytes())).collect();
        let outputs = graph.outputs().map(|id| vec![0; graph.tensor(id).size_bytes()]).collect();
        Self { executable, arena: Arena::new(), inputs, outputs }
    }

    fn time(&mut self, pool: &Pool) -> f64 {
        let inputs: Vec<&[u8]> = self.inputs.iter().map(Vec::as_slice).collect();
        let mut outputs: Vec<&mut [u8]> = self.outputs.iter_mut().map(Vec::as_mut_slice).collect();
        let start = Instant::now();
        self.executable.run(pool, &mut self.arena, &inputs, &mut outputs, None).expect("it runs");
        start.elapsed().as_secs_f64() * 1e6
    }
}

/// The arithmetic alone, on this thread: the kernel for each layer's keys and values.
struct Kernel {
    x: Vec<f32>,
    numbers: Vec<u8>,
    scales: Vec<u8>,
    rows: Vec<f32>,
    layers: usize,
}

impl Kernel {
    fn new(layers: usize, dim: usize) -> Self {
        let n = 2 * layers * HEADS as usize * dim;
        let x: Vec<f32> = (0..n).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
        Self { rows: x.clone(), x, numbers: vec![0; n], scales: vec![0; n / BLOCK * SCALE_BYTES], layers }
    }

    fn time(&mut self) -> f64 {
        let isa = Isa::detect();
        let n = self.x.len() / (2 * self.layers);
        let start = Instant::now();
        let results = self.numbers.chunks_exact_mut(n).zip(self.scales.chunks_exact_mut(n / BLOCK * SCALE_BYTES));
        for ((x, rows), (numbers, scales)) in self.x.chunks_exact(n).zip(self.rows.chunks_exact_mut(n)).zip(results) {
            quantise_blocks(isa, black_box(x), RULE, numbers, scales, Some(rows));
        }
        start.elapsed().as_secs_f64() * 1e6
    }
}

/// A block copy; short ones are repeated, so that the clock's own time does not count.
fn memcpy(src: &[u8], dst: &mut [u8]) -> f64 {
    let times = (65_536 / src.len().max(1)).max(1);
    let start = Instant::now();
    (0..times).for_each(|_| black_box(&mut *dst).copy_from_slice(black_box(src)));
    start.elapsed().as_secs_f64() * 1e6 / times as f64
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    println!(
        "| model | threads | as ops, us | one step each, us | its kernel alone, us | memcpy, us | ops | step | kernel |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (model, layers, dim) in [("1B", 16, 64), ("8B", 32, 128)] {
        let source = graph(layers, dim);
        for threads in [1, 2] {
            let pool = Pool::new(&PoolOptions { threads, ..PoolOptions::default() }).expect("threads start");
            let (mut ops, mut step) = (Run::new(&source, false), Run::new(&source, true));
            let mut kernel = Kernel::new(layers, dim as usize);
            let bytes = kernel.numbers.len() + kernel.scales.len();
            let (src, mut dst) = (vec![1u8; bytes], vec![0u8; bytes]);
            let mut times = [const { Vec::new() }; 4];
            let start = Instant::now();
            while times[0].len() < 15 || start.elapsed() < BUDGET {
                let all = [ops.time(&pool), step.time(&pool), kernel.time(), memcpy(&src, &mut dst)];
                times.iter_mut().zip(all).for_each(|(times, time)| times.push(time));
            }
            assert_eq!(ops.outputs, step.outputs, "the same bits");
            let [ops, step, kernel, block] = times.each_mut().map(|times| median(times));
            println!(
                "| {model} | {threads} | {ops:.1} | {step:.1} | {kernel:.1} | {block:.2} | {:.0} times | {:.1} | {:.1} |",
                ops / block,
                step / block,
                kernel / block,
            );
        }
    }
}
