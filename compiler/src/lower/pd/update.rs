//! The cache update inside the graph: new rows are scattered into copies of the past by native ops, or written by an op of a package;
//! a client binds each updated past to the buffer of the past itself.
//!
//! *Where rows go* with native ops: of a prefill chunk of m rows, row `r` in `[N - 1 - m, N - 1)` goes to `n_past + r - (N - 1 - m)`, the decode row to
//! its own `n_past`; rows of an inactive half, and unused ones, go to the last row of the past, which therefore holds nothing. All of it
//! is computed from `fusion_ctrl`, in `model.0.s1` from `position_ids`.

use super::super::composer::{Composer, TensorValue};
use super::super::sink::GraphSink;
use super::LayerCache;
use super::inputs::PdInputs;
use crate::Result;
use crate::family::ModelSpec;
use genie_bundle::manifest::PdUpdate;
use genie_types::{Dtype, KvKind, Variant};
use nsp_graph::pd::{PdName, Slot};

/// Indices of one request's rows: shaped like keys and like values.
pub(super) type Indices<T> = [TensorValue<T>; 2];

/// The op that writes rows, with its package.
const UPDATE_OP: &str = "LLaMAPackage::PDKVCacheUpdate";

/// The four numbers of the op: the cache's first row to write, the first new row to read, how many, whether at all.
pub(super) type OpWords<T> = [TensorValue<T>; 4];

/// Where new rows go.
pub(super) enum Rows<T> {
    /// The client writes them.
    ByHost,
    /// An op of a package writes them.
    ByOp {
        /// Of the prefill request.
        prefill: Option<OpWords<T>>,
        /// Of the decode request.
        decode: OpWords<T>,
    },
    /// The graph scatters them.
    Scattered {
        /// All N rows, for the prefill request.
        prefill: Option<Indices<T>>,
        /// The last row.
        decode: Indices<T>,
    },
}

/// Computes the indices, once for all layers.
pub(super) fn declare<S: GraphSink>(
    spec: &ModelSpec,
    variant: Variant,
    update: PdUpdate,
    (ctrl, positions): (Option<&TensorValue<S::Tensor>>, &TensorValue<S::Tensor>),
    graph: &mut Composer<S>,
) -> Result<Rows<S::Tensor>> {
    if update == PdUpdate::Host {
        return Ok(Rows::ByHost);
    }
    let (n, last) = (variant.ar().get(), variant.past_capacity() - 1);
    let spread = |name: &str, x: &TensorValue<S::Tensor>, graph: &mut Composer<S>| -> Result<Indices<S::Tensor>> {
        let (kv, d, n) = (spec.n_kv_heads, spec.head_dim, x.dims[0]);
        Ok([
            graph.spread(&format!("{name}_key_rows"), x, [1, 1, 1, n], [1, kv, d, n])?,
            graph.spread(&format!("{name}_value_rows"), x, [1, 1, n, 1], [1, kv, n, d])?,
        ])
    };
    if update == PdUpdate::Op {
        return op_words(n, (ctrl, positions), graph);
    }
    let Some(ctrl) = ctrl else {
        return Ok(Rows::Scattered { prefill: None, decode: spread("decode", positions, graph)? });
    };
    let mut word = |name: &str, i: usize| graph.slice_as(&format!("ctrl_{name}"), ctrl, &[(i, i + 1)], Dtype::I32);
    let prefills = word("prefills", 0)?;
    let decodes = word("decodes", 1)?;
    let m = word("chunk", 2)?;
    let prefill_past = word("prefill_past", 4)?;
    let decode_past = word("decode_past", 5)?;
    let whole = |graph: &mut Composer<S>, node, op, inputs: &[&TensorValue<S::Tensor>]| {
        graph.whole((node, op), inputs, Dtype::I32)
    };
    let test = |graph: &mut Composer<S>, node, op, inputs: &[&TensorValue<S::Tensor>]| {
        graph.whole((node, op), inputs, Dtype::Bool8)
    };
    let rows = graph.integers("rows", 0..n)?;
    let n_prefill = graph.integers("rows_of_prefill", std::iter::once(n - 1))?;
    let nothing = graph.integers("nothing", std::iter::once(0))?;
    let unused = graph.integers("unused_row", std::iter::once(last))?;
    let unused_rows = graph.integers("unused_rows", std::iter::repeat_n(last, n))?;

    let active = whole(graph, "chunk_active", "ElementWiseMultiply", &[&m, &prefills])?;
    let first = whole(graph, "chunk_first", "ElementWiseSubtract", &[&n_prefill, &active])?;
    let offset = whole(graph, "chunk_offset", "ElementWiseSubtract", &[&prefill_past, &first])?;
    let to = whole(graph, "chunk_rows", "ElementWiseAdd", &[&rows, &offset])?;
    let from_first = test(graph, "rows_from_first", "ElementWiseGreaterEqual", &[&rows, &first])?;
    let before_last = test(graph, "rows_before_last", "ElementWiseLess", &[&rows, &n_prefill])?;
    let is_chunk = test(graph, "rows_of_chunk", "ElementWiseAnd", &[&from_first, &before_last])?;
    let prefill = whole(graph, "prefill_rows", "ElementWiseSelect", &[&is_chunk, &to, &unused_rows])?;
    let is_decode = test(graph, "row_decodes", "ElementWiseGreater", &[&decodes, &nothing])?;
    let decode = whole(graph, "decode_row", "ElementWiseSelect", &[&is_decode, &decode_past, &unused])?;
    Ok(Rows::Scattered {
        prefill: Some(spread("prefill", &prefill, graph)?),
        decode: spread("decode", &decode, graph)?,
    })
}

/// The numbers of the op, from `fusion_ctrl`, or from the position of a decode row alone.
fn op_words<S: GraphSink>(
    n: usize,
    (ctrl, positions): (Option<&TensorValue<S::Tensor>>, &TensorValue<S::Tensor>),
    graph: &mut Composer<S>,
) -> Result<Rows<S::Tensor>> {
    let one = graph.integers("one", std::iter::once(1))?;
    let Some(ctrl) = ctrl else {
        let first = graph.integers("nothing", std::iter::once(0))?;
        return Ok(Rows::ByOp { prefill: None, decode: [positions.clone(), first, one.clone(), one] });
    };
    let mut word = |name: &str, i: usize| graph.slice_as(&format!("ctrl_{name}"), ctrl, &[(i, i + 1)], Dtype::I32);
    let (prefills, decodes, chunk) = (word("prefills", 0)?, word("decodes", 1)?, word("chunk", 2)?);
    let (prefill_past, decode_past) = (word("prefill_past", 4)?, word("decode_past", 5)?);
    let last = graph.integers("rows_of_prefill", std::iter::once(n - 1))?;
    let first = graph.whole(("chunk_first", "ElementWiseSubtract"), &[&last, &chunk], Dtype::I32)?;
    Ok(Rows::ByOp { prefill: Some([prefill_past, first, chunk, prefills]), decode: [decode_past, last, one, decodes] })
}

/// Writes the new rows of one request by the op.
fn by_op<S: GraphSink>(
    (layer, slot): (usize, Option<Slot>),
    graph: &mut Composer<S>,
    (past, LayerCache { present, types, .. }): (&[TensorValue<S::Tensor>; 2], &LayerCache<S::Tensor>),
    words: &OpWords<S::Tensor>,
    after: &TensorValue<S::Tensor>,
) -> Result<()> {
    let [n_past, first, n, enable] = words;
    let inputs = [after, &past[0], &past[1], &present[0], &present[1], n_past, first, n, enable];
    let name = |kind| PdName::Updated { kind, slot, layer }.to_string();
    let node = format!("model_layers_{layer}_{}_update", slot.unwrap_or(Slot::Decode).word());
    let [keys, values] = types;
    let outputs = [keys.info(&name(KvKind::Key), &past[0].dims), values.info(&name(KvKind::Value), &past[1].dims)];
    graph.several((&node, UPDATE_OP), &inputs, &outputs)
}

/// Writes the new rows of a layer, if the graph does. `after`: the layer's output, which an op waits for.
pub(super) fn lower<S: GraphSink>(
    layer: usize,
    graph: &mut Composer<S>,
    inputs: &PdInputs<S::Tensor>,
    cache: &LayerCache<S::Tensor>,
    after: &TensorValue<S::Tensor>,
) -> Result<()> {
    let (prefill, decode) = match &inputs.rows {
        Rows::ByHost => return Ok(()),
        Rows::Scattered { prefill, decode } => (prefill, decode),
        Rows::ByOp { prefill, decode } => {
            if let (Some(words), Some(past)) = (prefill, &cache.prefill) {
                by_op((layer, Some(Slot::Prefill)), graph, (past, cache), words, after)?;
            }
            let slot = prefill.as_ref().map(|_| Slot::Decode);
            return by_op((layer, slot), graph, (&cache.decode, cache), decode, after);
        }
    };
    let mut write = |slot: Option<Slot>, name: &str, past: &[TensorValue<S::Tensor>; 2], rows: &Indices<S::Tensor>| {
        for (i, kind) in [KvKind::Key, KvKind::Value].into_iter().enumerate() {
            let (axis, present) = (if i == 0 { 3 } else { 2 }, &cache.present[i]);
            let n = present.dims[axis];
            let at = |part: &str| format!("model_layers_{layer}_{name}_{}_{part}", kind.name());
            let new = match rows[i].dims[axis] {
                wanted if wanted == n => present.clone(),
                _ => {
                    let mut ranges: Vec<(usize, usize)> = present.dims.iter().map(|&to| (0, to)).collect();
                    ranges[axis] = (n - 1, n);
                    graph.slice_of(&at("last"), present, &ranges, |name, dims| cache.types[i].info(name, dims))?
                }
            };
            let out = cache.types[i].info(&PdName::Updated { kind, slot, layer }.to_string(), &past[i].dims);
            graph.scatter_out(&at("updated"), [&past[i], &rows[i], &new], axis as u32, &out)?;
        }
        Ok::<(), crate::CompileError>(())
    };
    match (prefill, &cache.prefill) {
        (Some(rows), Some(past)) => {
            write(Some(Slot::Prefill), "prefill", past, rows)?;
            write(Some(Slot::Decode), "decode", &cache.decode, decode)
        }
        _ => write(None, "decode", &cache.decode, decode),
    }
}
