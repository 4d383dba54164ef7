//! Any form of weights beside any other: in layers that share their rows, in a gate and its layer, with bias, residual and
//! each type of output. Every graph must run, and equal double precision within what quantised activations may cost.

use half::f16;
use proptest::prelude::*;
use proptest::sample::select;

use crate::bytes::Bytes;
use crate::ir::{Dtype, Param, Quant, Role, TensorId};
use crate::kernels::block_values::FLOATS;
use crate::kernels::k_blocks::LEVELS;
use crate::testing::{Build, Noise, bytes_of, cases, half_step, numbers_of, run};

/// How a constant `[n, k]` is stored.
#[derive(Clone, Copy, Debug)]
enum Form {
    Float(Dtype),
    /// One scale for all values, with an offset.
    PerTensor(Dtype, i32),
    /// A scale for each row, and offsets: none, all zero, or one that is not.
    PerRow(Dtype, Offsets),
    /// Blocks of this many values along a row, and whether float16 holds their scales.
    Blocks(Dtype, u32, bool),
    /// As Q6_K or Q3_K: values of this number of bits in blocks of 16.
    Halves(u32),
    /// As Q4_K or Q5_K: unsigned values with scales of two levels, and minima if so.
    Steps(Dtype, bool),
    /// As Q2_K, with minima if so.
    Two(bool),
    /// As IQ4_XS: levels, with such scales.
    Levels,
    /// As Q5_0, or as IQ4_NL if so.
    Few(bool),
    /// As MXFP4: floats of 4 bits, with powers of two.
    Floats,
}

#[derive(Clone, Copy, Debug)]
enum Offsets {
    Absent,
    Zero,
    OneOdd,
}

fn form() -> impl Strategy<Value = Form> {
    use Dtype::{Bf16, F16, F32, SFixed4, SFixed8, SFixed16, UFixed4, UFixed8, UFixed16};
    let fixed = || select(vec![SFixed8, SFixed8, SFixed8, UFixed8, SFixed16, UFixed16]);
    let offsets = select(vec![Offsets::Absent, Offsets::Zero, Offsets::OneOdd]);
    prop_oneof![
        select(vec![F16, Bf16, F32]).prop_map(Form::Float),
        (fixed(), select(vec![0, 0, -3, 7])).prop_map(|(dtype, offset)| Form::PerTensor(dtype, offset)),
        (fixed(), offsets).prop_map(|(dtype, offsets)| Form::PerRow(dtype, offsets)),
        (select(vec![SFixed8, SFixed4]), select(vec![16, 32, 64]), any::<bool>())
            .prop_map(|(dtype, block, exact)| Form::Blocks(dtype, block, exact)),
        select(vec![6, 6, 3]).prop_map(Form::Halves),
        (select(vec![UFixed4, UFixed8]), select(vec![true, true, false]))
            .prop_map(|(dtype, less)| Form::Steps(dtype, less)),
        Just(Form::Levels),
        any::<bool>().prop_map(Form::Few),
        Just(Form::Floats),
        select(vec![true, true, false]).prop_map(Form::Two),
    ]
}

/// A constant, and the numbers it stands for.
struct Weights {
    dtype: Dtype,
    bytes: Vec<u8>,
    quant: Quant,
    numbers: Vec<f64>,
    /// What was taken off the numbers, for each 32 or 16 of a row: bytes, the scale of all of them, and how many numbers.
    minima: Option<(Vec<u8>, f32, usize)>,
    k: usize,
    /// The kernels for blocks quantise the activations.
    blocks: bool,
}

impl Weights {
    fn new(noise: &mut Noise, form: Form, n: usize, k: usize) -> Self {
        let made = |dtype, bytes, quant, numbers| Self { dtype, bytes, quant, numbers, minima: None, k, blocks: false };
        match form {
            Form::Float(dtype) => {
                let bytes = bytes_of(dtype, &noise.floats(n * k));
                let numbers = numbers_of(dtype, &bytes).into_iter().map(f64::from).collect();
                made(dtype, bytes, Quant::None, numbers)
            }
            Form::PerTensor(dtype, offset) => {
                let (values, scale) = (integers(noise, dtype, n * k), step(dtype));
                let number = |v: &i32| f64::from(v + offset) * f64::from(scale);
                let numbers = values.iter().map(number).collect();
                made(dtype, integer_bytes(dtype, &values), Quant::PerTensor { scale, offset }, numbers)
            }
            Form::PerRow(dtype, offsets) => {
                let values = integers(noise, dtype, n * k);
                let scales: Vec<f32> = (0..n).map(|row| step(dtype) * (1.0 + 0.1 * (row % 5) as f32)).collect();
                let offsets: Vec<i32> = match offsets {
                    Offsets::Absent => Vec::new(),
                    Offsets::Zero => vec![0; n],
                    Offsets::OneOdd => (0..n).map(|row| if row == n / 2 { 5 } else { 0 }).collect(),
                };
                let of_row = |row: usize| offsets.get(row).copied().unwrap_or(0);
                let numbers = (values.iter().enumerate())
                    .map(|(i, v)| f64::from(v + of_row(i / k)) * f64::from(scales[i / k]))
                    .collect();
                let bits = 8 * dtype.size_bytes() as u32;
                let quant = Quant::PerAxis { axis: 0, bits, scales: scales.into(), offsets: offsets.into() };
                made(dtype, integer_bytes(dtype, &values), quant, numbers)
            }
            Form::Blocks(dtype, block, exact) => {
                let unit = if exact { f16::from_f32(0.004).to_f32() } else { 0.004_001 };
                let scale = |i: usize| unit * [1.0, 0.5, 2.0][i % 3];
                let values = integers(noise, dtype, n * k);
                Self::blocks(dtype, &values, block as usize, n, k, scale)
            }
            Form::Halves(bits) => {
                let value = |drawn: u64| (drawn % (1 << bits)) as i32 - (1 << (bits - 1));
                let values: Vec<i32> = (0..n * k).map(|_| value(noise.bits())).collect();
                let unit = f16::from_f32(0.000_2).to_f32();
                Self::blocks(Dtype::SFixed8, &values, 16, n, k, |i| unit * ((i * 37 % 256) as f32 - 128.0))
            }
            Form::Steps(dtype, less) => {
                let span = if dtype == Dtype::UFixed4 { 16 } else { 32 };
                let values: Vec<i32> = (0..n * k).map(|_| (noise.bits() % span) as i32).collect();
                let unit = f16::from_f32(0.000_3).to_f32();
                let mut made = Self::blocks(dtype, &values, 32, n, k, |i| unit * (i * 37 % 64) as f32);
                if less {
                    let (minima, unit) = ((0..n * k / 32).map(|_| (noise.bits() % 64) as u8).collect(), unit * 8.0);
                    for (at, number) in made.numbers.iter_mut().enumerate() {
                        let minima: &Vec<u8> = &minima;
                        *number -= f64::from(minima[at / 32]) * f64::from(unit);
                    }
                    made.minima = Some((minima, unit, 32));
                }
                made
            }
            Form::Few(levels) => {
                let value = |code: u64| if levels { LEVELS[code as usize % 16].into() } else { code as i32 - 16 };
                let values: Vec<i32> = (0..n * k).map(|_| value(noise.bits() % 32)).collect();
                let unit = f16::from_f32(0.004).to_f32();
                Self::blocks(Dtype::SFixed8, &values, 32, n, k, |i| unit * [1.0, 0.5, 2.0][i % 3])
            }
            Form::Floats => {
                let values: Vec<i32> = (0..n * k).map(|_| FLOATS[(noise.bits() % 16) as usize].into()).collect();
                Self::blocks(Dtype::SFixed8, &values, 32, n, k, |i| 2f32.powi([-6, -5, -40][i % 3]))
            }
            Form::Two(less) => {
                let values: Vec<i32> = (0..n * k).map(|_| (noise.bits() % 4) as i32).collect();
                let unit = f16::from_f32(0.005).to_f32();
                let mut made = Self::blocks(Dtype::UFixed4, &values, 16, n, k, |i| unit * (i * 7 % 16) as f32);
                if less {
                    let (minima, unit): (Vec<u8>, f32) =
                        ((0..n * k / 16).map(|_| (noise.bits() % 16) as u8).collect(), unit * 2.0);
                    for (at, number) in made.numbers.iter_mut().enumerate() {
                        *number -= f64::from(minima[at / 16]) * f64::from(unit);
                    }
                    made.minima = Some((minima, unit, 16));
                }
                made
            }
            Form::Levels => {
                let values: Vec<i32> = (0..n * k).map(|_| LEVELS[(noise.bits() % 16) as usize].into()).collect();
                let unit = f16::from_f32(0.000_2).to_f32();
                Self::blocks(Dtype::SFixed8, &values, 32, n, k, |i| unit * ((i * 37 % 64) as f32 - 32.0))
            }
        }
    }

    fn blocks(dtype: Dtype, values: &[i32], block: usize, n: usize, k: usize, scale: impl Fn(usize) -> f32) -> Self {
        let numbers = values.iter().enumerate().map(|(i, &v)| f64::from(v) * f64::from(scale(i / block))).collect();
        let scales = (0..n * k / block).map(scale).collect();
        let quant = Quant::Block { block_dims: [1, block as u32].into(), scales, offsets: [].into() };
        Self { dtype, bytes: integer_bytes(dtype, values), quant, numbers, minima: None, k, blocks: true }
    }

    fn tensor(&self, b: &mut Build) -> TensorId {
        let dims = [(self.numbers.len() / self.k) as u32, self.k as u32];
        let name = format!("w{}", b.graph.tensors.len());
        b.tensor(&name, &dims, self.dtype, self.quant.clone(), Role::Static(Bytes::copy_from(&self.bytes)))
    }

    /// Writes the layer of `inputs` (rows, weights, perhaps a bias); with minima in five nodes.
    fn layer(&self, b: &mut Build, inputs: &[TensorId], [m, n]: [u32; 2], out: TensorId) {
        let Some((minima, unit, shared)) = &self.minima else { return b.node("FullyConnected", &[], inputs, &[out]) };
        let (blocks, shared) = ((self.k / shared) as u32, *shared as u32);
        let per_scale = blocks.min(256 / shared);
        let scales = (0..n * blocks / per_scale).map(|_| *unit).collect();
        let quant = Quant::Block { block_dims: [1, per_scale].into(), scales, offsets: [].into() };
        let name = format!("m{}", b.graph.tensors.len());
        let minima = b.tensor(&name, &[n, blocks], Dtype::UFixed8, quant, Role::Static(Bytes::copy_from(minima)));
        let whole = b.op("FullyConnected", &[], inputs, &[m, n], Dtype::F32);
        let by_blocks = b.op("Reshape", &[], &inputs[..1], &[m, blocks, shared], Dtype::F32);
        let sums =
            b.op("ReduceSum", &[("axes", Param::Ints(vec![1], vec![2]))], &[by_blocks], &[m, blocks], Dtype::F32);
        let less = b.op("FullyConnected", &[], &[sums, minima], &[m, n], Dtype::F32);
        b.node("ElementWiseSubtract", &[], &[whole, less], &[out]);
    }

    /// Row `j` times `x`, and how far a kernel may be off.
    fn product(&self, j: usize, x: &[f32]) -> Approx {
        let row = &self.numbers[j * self.k..(j + 1) * self.k];
        let exact = row.iter().zip(x).map(|(w, x)| w * f64::from(*x)).sum();
        let size: f64 = row.iter().zip(x).map(|(w, x)| (w * f64::from(*x)).abs()).sum();
        // Half a step of an activation's block of 32 for each weight, where activations are quantised; rounding in f32.
        let half_steps = |(w, x): (&[f64], &[f32])| half_step(x) * w.iter().map(|w| w.abs()).sum::<f64>();
        let quantised = if self.blocks { row.chunks(32).zip(x.chunks(32)).map(half_steps).sum() } else { 0.0 };
        Approx { exact, error: quantised + size * 1e-5 + 1e-5 }
    }
}

/// A number, and the largest error that is allowed.
#[derive(Clone, Copy)]
struct Approx {
    exact: f64,
    error: f64,
}

impl Approx {
    fn plus(self, y: f32) -> Self {
        Self { exact: self.exact + f64::from(y), ..self }
    }

    /// `silu(gate) * self`. The slope of silu is below 1.1, and silu itself below its argument.
    fn gated(self, gate: Self) -> Self {
        let silu = gate.exact / (1.0 + (-gate.exact).exp());
        let error = (silu.abs() + 1.1 * gate.error) * self.error + 1.1 * gate.error * self.exact.abs();
        Self { exact: silu * self.exact, error: error + 1e-5 * (silu * self.exact).abs() }
    }
}

/// A scale that keeps values of a type near one.
fn step(dtype: Dtype) -> f32 {
    if dtype.size_bytes() == 2 { 2e-5 } else { 0.006 }
}

fn integers(noise: &mut Noise, dtype: Dtype, n: usize) -> Vec<i32> {
    let (low, span) = match dtype {
        Dtype::SFixed4 => (-8, 16),
        Dtype::SFixed8 => (-127, 255),
        Dtype::UFixed8 => (0, 256),
        Dtype::SFixed16 => (-32_768, 65_536),
        _ => (0, 65_536),
    };
    (0..n).map(|_| (noise.bits() % span) as i32 + low).collect()
}

fn integer_bytes(dtype: Dtype, values: &[i32]) -> Vec<u8> {
    match dtype.size_bytes() {
        2 => values.iter().flat_map(|&v| (v as u16).to_ne_bytes()).collect(),
        _ => values.iter().map(|&v| v as u8).collect(),
    }
}

/// What follows a layer.
#[derive(Clone, Copy, Debug)]
struct Tail {
    bias: bool,
    residual: bool,
    output: Dtype,
}

fn tail() -> impl Strategy<Value = Tail> {
    (any::<bool>(), any::<bool>(), select(vec![Dtype::F32, Dtype::F16])).prop_map(|(bias, residual, output)| Tail {
        bias,
        residual,
        output,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(200)))]

    #[test]
    fn every_form_runs_beside_every_other(
        m in prop_oneof![Just(1usize), 2usize..12, Just(20)],
        k in select(vec![64usize, 128, 256]),
        n in 1usize..70,
        plain_layers in prop::collection::vec((form(), tail()), 0..5),
        gate in prop::option::of((form(), form())),
        (threads, seed) in (1usize..4, any::<u64>()),
    ) {
        let mut noise = Noise(seed);
        let mut b = Build::new();
        let dims = [m as u32, n as u32];
        let x = noise.floats(m * k);
        let mut inputs = vec![bytes_of(Dtype::F32, &x)];
        let input = b.input("x", &[m as u32, k as u32], Dtype::F32);
        let mut wanted: Vec<(Dtype, Vec<Approx>)> = Vec::new();
        let each = |f: &dyn Fn(usize, usize) -> Approx| (0..m * n).map(|i| f(i / n, i % n)).collect::<Vec<_>>();
        for (form, tail) in plain_layers {
            let weights = Weights::new(&mut noise, form, n, k);
            let (bias, residual) = (noise.floats(n), noise.floats(m * n));
            let w = weights.tensor(&mut b);
            let mut layer = vec![input, w];
            if tail.bias {
                layer.push(b.constant(&[n as u32], Dtype::F32, &bias));
            }
            let out = b.output(&format!("out{}", wanted.len()), &dims, tail.output);
            if tail.residual {
                let rows = b.input(&format!("residual{}", wanted.len()), &dims, Dtype::F32);
                inputs.push(bytes_of(Dtype::F32, &residual));
                let y = b.native(&dims, Dtype::F32);
                weights.layer(&mut b, &layer, dims, y);
                b.node("ElementWiseAdd", &[], &[y, rows], &[out]);
            } else {
                weights.layer(&mut b, &layer, dims, out);
            }
            let number = |row: usize, j: usize| {
                let y = weights.product(j, &x[row * k..][..k]);
                let y = if tail.bias { y.plus(bias[j]) } else { y };
                if tail.residual { y.plus(residual[row * n + j]) } else { y }
            };
            wanted.push((tail.output, each(&number)));
        }
        if let Some((gate, up)) = gate {
            let [gate, up] = [gate, up].map(|form| Weights::new(&mut noise, form, n, k));
            let [gx, ux] = [&gate, &up].map(|weights| {
                let (w, y) = (weights.tensor(&mut b), b.native(&dims, Dtype::F32));
                weights.layer(&mut b, &[input, w], dims, y);
                y
            });
            let sigmoid = b.op("Sigmoid", &[], &[gx], &dims, Dtype::F32);
            let silu = b.op("ElementWiseMultiply", &[], &[gx, sigmoid], &dims, Dtype::F32);
            let out = b.output("gated", &dims, Dtype::F32);
            b.node("ElementWiseMultiply", &[], &[silu, ux], &[out]);
            let number = |row: usize, j: usize| {
                let x = &x[row * k..][..k];
                up.product(j, x).gated(gate.product(j, x))
            };
            wanted.push((Dtype::F32, each(&number)));
        }
        for fuse in [false, true] {
            let found = run(&b.graph, fuse, threads, &inputs).expect("runs");
            for (output, ((dtype, wanted), found)) in wanted.iter().zip(&found).enumerate() {
                for (i, (wanted, found)) in wanted.iter().zip(numbers_of(*dtype, found)).enumerate() {
                    let rounding = if *dtype == Dtype::F16 { wanted.exact.abs() / 1024.0 } else { 0.0 };
                    let off = (f64::from(found) - wanted.exact).abs();
                    prop_assert!(
                        off <= wanted.error + rounding,
                        "output {output}[{i}]: {found}, expected {} +- {} (fused {fuse})", wanted.exact, wanted.error
                    );
                }
            }
        }
    }
}
