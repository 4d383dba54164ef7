//! Cache rows in blocks (`q8_0`): 8-bit numbers, and a float16 scale for each [`KV_BLOCK`] of them along a head.
//!
//! *Shapes*, for keys and values alike, rows before elements (d of a head, b = d / 32 blocks):
//!
//! ```text
//! x [1, kv, n, d] -> [kv, n, b, 32] ─ Abs ─ ReduceMax ─ / 127 ─ max 2^-24 ─ f16 ─► past_key_scale_out [kv, 1, n, b]
//!                                 └── / scale ─ to the nearest, -128..127 ───────► past_key_out       [kv, 1, n, d]
//! rows [kv, 1, n, d] = numbers * scale, of the past and of the new ones; concatenated, attention sees both
//! ```
//!
//! *Units*: a number `q` of uint8 stands for `(q - 128) * scale`. The scale is rounded first and the numbers are chosen for it, so that
//! none is off by more than half a scale, except the largest of a block whose scale was rounded down by float16, which may be
//! cut to 127. Numbers are 8 bits and scales 11, so their product is exact in float32: a row is the same while it is new and when
//! it is past.

use super::attention::SharedInputs;
use super::cache_rows::Rows;
use super::composer::{Composer, TensorValue};
use super::sink::{GraphSink, Kind, Param};
use crate::family::ModelSpec;
use crate::{CompileError, Result};
use genie_types::{Dtype, KV_BLOCK, KvKind, Quant, TensorInfo};

/// The numbers' encoding: whole numbers around 128.
const NUMBERS: Quant = Quant::PerTensor { scale: 1.0, offset: -128 };

/// The smallest scale, so that a block of zeros is not divided by 0: the smallest float16.
const LEAST_SCALE: f32 = 5.960_464_5e-8;

/// Constants of a graph whose cache is in blocks.
pub(super) struct Divisors<T> {
    /// 127, the largest number.
    largest: TensorValue<T>,
    /// The smallest scale.
    least: TensorValue<T>,
}

impl<T: Copy + core::fmt::Debug> Divisors<T> {
    pub(super) fn declare<S: GraphSink<Tensor = T>>(graph: &mut Composer<S>) -> Result<Self> {
        Ok(Self {
            largest: graph.scalar("cache_largest", 127.0)?,
            least: graph.scalar("cache_least_scale", LEAST_SCALE)?,
        })
    }
}

/// Heads are whole blocks.
///
/// # Errors
/// [`CompileError::HeadNotInBlocks`].
pub(crate) fn check(spec: &ModelSpec) -> Result<()> {
    let head_dim = spec.head_dim;
    if head_dim.is_multiple_of(KV_BLOCK) { Ok(()) } else { Err(CompileError::HeadNotInBlocks { head_dim }) }
}

/// New rows `[1, kv, n, d]` of keys and values into blocks, as outputs of the graph; yields what they stand for,
/// `[kv, 1, n, d]`.
pub(super) fn new_rows<S: GraphSink>(
    spec: &ModelSpec,
    layer: usize,
    graph: &mut Composer<S>,
    (shared, divisors): (&SharedInputs<S::Tensor>, &Divisors<S::Tensor>),
    (k, v): Rows<S::Tensor>,
) -> Result<Rows<S::Tensor>> {
    let mut of = |kind: KvKind, x: &TensorValue<S::Tensor>| {
        let name = |kind: KvKind| shared.cache_name(spec, kind, layer, false);
        let scales = kind.scales().expect("keys and values have scales");
        let at = |part: &str| format!("model_layers_{layer}_self_attn_{}_{part}", kind.name());
        quantised(graph, divisors, &at, (&name(kind), &name(scales)), x)
    };
    Ok((of(KvKind::Key, &k)?, of(KvKind::Value, &v)?))
}

/// The past's rows of keys and values, `[kv, 1, past, d]`.
pub(super) fn past_rows<S: GraphSink>(
    spec: &ModelSpec,
    layer: usize,
    past: usize,
    graph: &mut Composer<S>,
    shared: &SharedInputs<S::Tensor>,
) -> Result<Rows<S::Tensor>> {
    let (kv, d) = (spec.n_kv_heads, spec.head_dim);
    let mut of = |kind: KvKind| {
        let name = |kind: KvKind| shared.cache_name(spec, kind, layer, true);
        let scales = kind.scales().expect("keys and values have scales");
        let at = |part: &str| format!("model_layers_{layer}_self_attn_{}_past_{part}", kind.name());
        let info = TensorInfo::new(name(kind), vec![kv, 1, past, d], Dtype::UFixed8).with_quant(NUMBERS);
        let numbers = graph.encoded_input(&info)?;
        let scales = graph.input(&name(scales), vec![kv, 1, past, d / KV_BLOCK], Dtype::F16)?;
        dequantised(graph, &at, &numbers, &scales)
    };
    Ok((of(KvKind::Key)?, of(KvKind::Value)?))
}

/// Rows in blocks: numbers and scales as outputs of these names.
fn quantised<S: GraphSink>(
    graph: &mut Composer<S>,
    divisors: &Divisors<S::Tensor>,
    at: &impl Fn(&str) -> String,
    (numbers_name, scales_name): (&str, &str),
    x: &TensorValue<S::Tensor>,
) -> Result<TensorValue<S::Tensor>> {
    let (kv, n, d) = (x.dims[1], x.dims[2], x.dims[3]);
    let dims = vec![kv, n, d / KV_BLOCK, KV_BLOCK];
    let one_each = vec![kv, n, d / KV_BLOCK, 1];
    let x = graph.reshape(&at("blocks"), x, dims.clone(), None)?;
    let sizes = graph.abs(&at("sizes"), &x)?;
    let axes = Param::U32Tensor { dims: vec![1], data: vec![3] };
    let params = [("axes", axes), ("keep_dims", Param::Bool(true))];
    let largest = graph.op(&at("largest"), "ReduceMax", &params, &[&sizes], one_each.clone(), None)?;
    let scale = graph.div(&at("exact_scales"), &largest, &divisors.largest)?;
    let op = "ElementWiseMaximum";
    let scale = graph.op(&at("scales"), op, &[], &[&scale, &divisors.least], one_each, None)?;
    let scale = graph.converted(&at("scales_f16"), &scale, (graph.dtype(), Dtype::F16))?;
    let scale_dims = vec![kv, 1, n, d / KV_BLOCK];
    let out = (scales_name, Kind::Output);
    let scale = graph.typed_op((&at("scales_new"), "Reshape"), &[], &[&scale], out, scale_dims, Dtype::F16)?;

    let scale = one_each_block(graph, &at("scales_again"), &scale)?;
    let whole = graph.div(&at("exact"), &x, &scale)?;
    let encoded = |name: &str, dims: Vec<usize>| TensorInfo::new(name, dims, Dtype::UFixed8).with_quant(NUMBERS);
    let info = encoded(&at("numbers_out"), dims);
    let numbers = graph.described_op((&at("numbers"), "Convert"), &[], &[&whole], &info, Kind::Native)?;
    let info = encoded(numbers_name, vec![kv, 1, n, d]);
    let numbers = graph.described_op((&at("numbers_new"), "Reshape"), &[], &[&numbers], &info, Kind::Output)?;
    product(graph, at, &numbers, &scale)
}

/// What rows in blocks `[kv, 1, n, d]` with scales `[kv, 1, n, d / 32]` stand for.
fn dequantised<S: GraphSink>(
    graph: &mut Composer<S>,
    at: &impl Fn(&str) -> String,
    numbers: &TensorValue<S::Tensor>,
    scales: &TensorValue<S::Tensor>,
) -> Result<TensorValue<S::Tensor>> {
    let scales = one_each_block(graph, &at("scales"), scales)?;
    product(graph, at, numbers, &scales)
}

/// Scales `[kv, 1, n, d / 32]` as `[kv, n, d / 32, 1]`, in the graph's type.
fn one_each_block<S: GraphSink>(
    graph: &mut Composer<S>,
    node: &str,
    scales: &TensorValue<S::Tensor>,
) -> Result<TensorValue<S::Tensor>> {
    let dtype = graph.dtype();
    let float = graph.converted(&format!("{node}_float"), scales, (Dtype::F16, dtype))?;
    graph.reshape(node, &float, vec![scales.dims[0], scales.dims[2], scales.dims[3], 1], None)
}

/// Numbers `[kv, 1, n, d]` times scales `[kv, n, d / 32, 1]`.
fn product<S: GraphSink>(
    graph: &mut Composer<S>,
    at: &impl Fn(&str) -> String,
    numbers: &TensorValue<S::Tensor>,
    scales: &TensorValue<S::Tensor>,
) -> Result<TensorValue<S::Tensor>> {
    let dims = [&scales.dims[..3], &[KV_BLOCK]].concat();
    let numbers_dims = numbers.dims.clone();
    let float = graph.op(&at("float"), "Convert", &[], &[numbers], numbers_dims.clone(), None)?;
    let float = graph.reshape(&at("float_blocks"), &float, dims, None)?;
    let rows = graph.mul(&at("scaled"), &float, scales, None)?;
    graph.reshape(&at("rows"), &rows, numbers_dims, None)
}
