//! Reads fused graphs: which they are, what each tensor carries, what they have in common.

use genie_types::{Dtype, GraphIdx, GraphInfo, KvDtype, KvKind, KvTensor, Quant, TensorInfo};

use super::{
    CTRL_WORDS, FUSION_CTRL, Input, OVERRIDES, Output, PairError, PairGraph, PairLayout, PairTensor, PdName, Slot,
};
use crate::BinaryGraphs;
use crate::error::{GraphAt, Near};
use crate::names::{ATTENTION_MASK, INPUT_IDS, LOGITS, POSITION_IDS};

/// True for graphs of this kind.
pub fn belongs(info: &GraphInfo) -> bool {
    let has_past = info.inputs.iter().any(|t| matches!(PdName::parse(&t.name), Some(PdName::Past { .. })));
    let gives_rows = info.outputs.iter().any(|t| matches!(PdName::parse(&t.name), Some(PdName::Present { .. })));
    info.input(FUSION_CTRL).is_some() || (has_past && gives_rows)
}

/// True for a graph that is called `model.{i}.pd.s{N}` and is none by its tensors.
pub(crate) fn is_unnamed(info: &GraphInfo) -> bool {
    let rows = info.name.split_once(".pd.s").map(|(_, rows)| rows.parse::<usize>().is_ok());
    rows == Some(true) && !belongs(info)
}

/// The fused pair of a bundle; `None` if it has no graph of this kind. `select`: use only graphs of these names.
///
/// # Errors
///
/// One [`PairError`] variant for each way to break the contract; the first violation found is reported.
pub fn analyze(binaries: &[BinaryGraphs], select: Option<&[String]>) -> Result<Option<PairLayout>, PairError> {
    let mut pairs = Vec::new();
    let mut singles = Vec::new();
    for (b, binary) in binaries.iter().enumerate() {
        for (g, info) in binary.graphs.iter().enumerate() {
            if belongs(info) && select.is_none_or(|names| names.contains(&info.name)) {
                let read = Read::new((b, GraphIdx(g), &binary.source), info)?;
                if info.input(FUSION_CTRL).is_some() { pairs.push(read) } else { singles.push(read) }
            }
        }
    }
    pairs.sort_by_key(|read| read.graph.rows);
    let (first, single) = match (pairs.first(), singles.pop()) {
        (None, None) => return Ok(None),
        (Some(pair), None) => return Err(PairError::NoSingle { at: pair.at.clone() }),
        (None, Some(single)) => return Err(PairError::NoPair { at: single.at }),
        (Some(pair), Some(single)) => (pair, single),
    };
    let twice = |a: &Read, b: &Read| PairError::Twice {
        at: b.at.clone(),
        rows: b.graph.rows,
        other: a.graph.info.name.as_str().into(),
    };
    if let Some(other) = singles.first() {
        return Err(twice(&single, other));
    }
    if let Some(same) = pairs.windows(2).find(|two| two[0].graph.rows == two[1].graph.rows) {
        return Err(twice(&same[0], &same[1]));
    }
    pairs.iter().chain([&single]).try_for_each(|read| read.check_same(first))?;
    let Read { context, vocab, updates, tensors, .. } = first.clone();
    Ok(Some(PairLayout {
        context,
        pairs: pairs.into_iter().map(|read| read.graph).collect(),
        single: single.graph,
        tensors,
        vocab_size: vocab,
        updates,
    }))
}

/// One graph with what must be the same in all of them.
#[derive(Clone)]
struct Read {
    at: GraphAt,
    graph: PairGraph,
    context: usize,
    vocab: usize,
    updates: bool,
    tensors: Vec<PairTensor>,
}

/// The index of a cache tensor in the list.
const fn index(kind: KvKind, layer: usize) -> usize {
    2 * layer
        + match kind {
            // Names of these graphs are never those of scales.
            KvKind::Key | KvKind::KeyScale => 0,
            KvKind::Value | KvKind::ValueScale => 1,
        }
}

impl Read {
    fn new((binary, graph, source): (usize, GraphIdx, &str), info: &GraphInfo) -> Result<Self, PairError> {
        let at = GraphAt { graph: info.name.as_str().into(), source: source.into() };
        let is_pair = info.input(FUSION_CTRL).is_some();
        let check = Check { at: &at, info };
        let ids = check.input(INPUT_IDS)?;
        let rows = match ids.dims.as_slice() {
            [1, n] if *n > usize::from(is_pair) => *n,
            _ => return Err(check.shape(ids, if is_pair { "[1, N] with N at least 2" } else { "[1, 1]" }.into())),
        };
        if !is_pair && rows != 1 {
            return Err(check.shape(ids, "[1, 1]".into()));
        }
        let mask = check.input(ATTENTION_MASK)?;
        let context = match mask.dims.as_slice() {
            [1, 1, n, cl] if *n == rows && *cl > rows => *cl,
            _ => return Err(check.shape(mask, format!("[1, 1, {rows}, CL] with CL above {rows}"))),
        };
        if !matches!(mask.dtype, Dtype::F32 | Dtype::F16 | Dtype::UFixed8 | Dtype::UFixed16 | Dtype::U16 | Dtype::U8) {
            return Err(check.dtype(mask, "float16, float32, or 8 or 16 bits without sign"));
        }
        check.ints(ids, &[1, rows])?;
        check.ints(check.input(POSITION_IDS)?, &[rows])?;
        if is_pair {
            check.ints(check.input(FUSION_CTRL)?, &[CTRL_WORDS])?;
        }
        let n_logits = if is_pair { 2 } else { 1 };
        let logits = info.output(LOGITS).ok_or_else(|| check.missing("output", LOGITS, &info.outputs))?;
        let vocab = match logits.dims.as_slice() {
            [1, 1, n, v] if *n == n_logits && *v > 0 => *v,
            _ => return Err(check.shape(logits, format!("[1, 1, {n_logits}, vocabulary]"))),
        };
        let tensors = check.tensors(rows)?;
        let updates = info.outputs.iter().any(|t| matches!(PdName::parse(&t.name), Some(PdName::Updated { .. })));
        check.past(&tensors, (is_pair, updates), rows, context)?;
        let inputs = info.inputs.iter().map(|t| check.role_in(t, is_pair)).collect::<Result<_, _>>()?;
        let outputs = info.outputs.iter().map(|t| check.role_out(t)).collect::<Result<_, _>>()?;
        let graph = PairGraph { binary, graph, info: info.clone(), rows, n_logits, inputs, outputs };
        Ok(Self { at, graph, context, vocab, updates, tensors })
    }

    /// Compares what graphs share.
    fn check_same(&self, first: &Self) -> Result<(), PairError> {
        let other: Box<str> = first.graph.info.name.as_str().into();
        let differs = |what: &str, found: String, expected: String| PairError::Differs {
            at: self.at.clone(),
            what: what.into(),
            expected: expected.into(),
            found: found.into(),
            other: other.clone(),
        };
        let numbers = [
            ("the context", self.context, first.context),
            ("the vocabulary", self.vocab, first.vocab),
            ("the number of cache tensors", self.tensors.len(), first.tensors.len()),
        ];
        for (what, found, expected) in numbers {
            if found != expected {
                return Err(differs(what, found.to_string(), expected.to_string()));
            }
        }
        for (found, expected) in self.tensors.iter().zip(&first.tensors) {
            if found != expected {
                let shown = |t: &PairTensor| {
                    format!("{} heads of {} in {} ({:?})", t.tensor.n_heads, t.tensor.head_dim, t.dtype, t.quant)
                };
                return Err(differs(&format!("`{}`", found.tensor.name()), shown(found), shown(expected)));
            }
        }
        if self.updates != first.updates {
            let (at, other) = match self.updates {
                true => (self.at.clone(), other),
                false => (first.at.clone(), self.graph.info.name.as_str().into()),
            };
            return Err(PairError::Updates { at, found: "writes new rows into the past", other });
        }
        Ok(())
    }
}

/// Checks of one graph.
struct Check<'a> {
    at: &'a GraphAt,
    info: &'a GraphInfo,
}

impl<'a> Check<'a> {
    fn input(&self, name: &str) -> Result<&'a TensorInfo, PairError> {
        self.info.input(name).ok_or_else(|| self.missing("input", name, &self.info.inputs))
    }

    fn missing(&self, what: &'static str, tensor: &str, all: &[TensorInfo]) -> PairError {
        let near = Near::to(tensor, all.iter().map(|t| t.name.as_str()));
        PairError::Missing { at: self.at.clone(), what, tensor: tensor.into(), near }
    }

    fn shape(&self, t: &TensorInfo, expected: String) -> PairError {
        let (tensor, found) = (t.name.as_str().into(), t.dims.as_slice().into());
        PairError::Shape { at: self.at.clone(), tensor, expected: expected.into(), found }
    }

    fn dtype(&self, t: &TensorInfo, expected: &'static str) -> PairError {
        PairError::Dtype { at: self.at.clone(), tensor: t.name.as_str().into(), expected, found: t.dtype }
    }

    fn ints(&self, t: &TensorInfo, dims: &[usize]) -> Result<(), PairError> {
        if t.dims != dims {
            return Err(self.shape(t, format!("{dims:?}")));
        }
        if t.dtype == Dtype::I32 { Ok(()) } else { Err(self.dtype(t, "int32")) }
    }

    /// The cache tensors by the new rows that come out, key and value of each layer.
    fn tensors(&self, rows: usize) -> Result<Vec<PairTensor>, PairError> {
        let mut found: Vec<(usize, &TensorInfo, KvKind, usize)> = Vec::new();
        for t in &self.info.outputs {
            if let Some(PdName::Present { kind, layer }) = PdName::parse(&t.name) {
                found.push((index(kind, layer), t, kind, layer));
            }
        }
        found.sort_by_key(|(i, ..)| *i);
        let mut tensors = Vec::with_capacity(found.len());
        for (place, (i, t, kind, layer)) in found.iter().copied().enumerate() {
            if i != place {
                // The list has a gap: of keys and values, or of layers.
                let (kind, layer) = (if place % 2 == 0 { KvKind::Key } else { KvKind::Value }, place / 2);
                let partner = PdName::Present { kind, layer }.to_string();
                return Err(self.unpaired(&t.name, &partner));
            }
            let (n_heads, head_dim) = match (kind, t.dims.as_slice()) {
                (KvKind::Key, &[1, h, d, n]) if n == rows => (h, d),
                (KvKind::Value, &[1, h, n, d]) if n == rows => (h, d),
                (KvKind::Key, &[1, h, n, d]) if n == rows => {
                    return Err(self.keys_by_row(t, &[1, h, d, n]));
                }
                (KvKind::Key | KvKind::KeyScale, _) => return Err(self.shape(t, format!("[1, heads, width, {rows}]"))),
                (KvKind::Value | KvKind::ValueScale, _) => {
                    return Err(self.shape(t, format!("[1, heads, {rows}, width]")));
                }
            };
            let expected = "float16, float32, or 8 or 16 bits without sign and with one scale";
            let dtype = match t.dtype {
                Dtype::F32 => KvDtype::F32,
                Dtype::F16 => KvDtype::F16,
                Dtype::UFixed8 => KvDtype::U8,
                Dtype::UFixed16 => KvDtype::U16,
                _ => return Err(self.dtype(t, expected)),
            };
            let mut tensor = KvTensor::new(kind, layer, n_heads, head_dim, dtype);
            if matches!(dtype, KvDtype::U8 | KvDtype::U16) {
                let (scale, offset) = t.quant.per_tensor().ok_or_else(|| self.dtype(t, expected))?;
                tensor = tensor.with_quant(scale, offset);
            }
            tensors.push(PairTensor { tensor, dtype: t.dtype, quant: t.quant.clone() });
        }
        match tensors.len() {
            0 => {
                let name = PdName::Present { kind: KvKind::Key, layer: 0 }.to_string();
                Err(self.missing("output", &name, &self.info.outputs))
            }
            n if n % 2 == 1 => {
                let partner = PdName::Present { kind: KvKind::Value, layer: n / 2 }.to_string();
                Err(self.unpaired(&PdName::Present { kind: KvKind::Key, layer: n / 2 }.to_string(), &partner))
            }
            _ => Ok(tensors),
        }
    }

    /// Every slot has the past of every tensor, and where the graph updates, the updated one, all in one encoding.
    fn past(
        &self,
        tensors: &[PairTensor],
        (is_pair, updates): (bool, bool),
        rows: usize,
        context: usize,
    ) -> Result<(), PairError> {
        let slots: &[Option<Slot>] = if is_pair { &[Some(Slot::Prefill), Some(Slot::Decode)] } else { &[None] };
        let past = context - rows;
        for slot in slots {
            for t in tensors {
                let (kind, layer) = (t.tensor.kind, t.tensor.layer.0);
                let (h, d) = (t.tensor.n_heads, t.tensor.head_dim);
                let dims = if kind == KvKind::Key { [1, h, d, past] } else { [1, h, past, d] };
                let present = PdName::Present { kind, layer }.to_string();
                let same = |found: Option<&TensorInfo>, name: PdName| {
                    let name = name.to_string();
                    let found = found.ok_or_else(|| self.unpaired(&present, &name))?;
                    if kind == KvKind::Key && found.dims == [1, h, past, d] && past != d {
                        return Err(self.keys_by_row(found, &dims));
                    }
                    if found.dims != dims {
                        return Err(self.shape(found, format!("{dims:?}")));
                    }
                    if (found.dtype, &found.quant) != (t.dtype, &t.quant) {
                        let shown = |dtype: Dtype, quant: &Quant| format!("{dtype} ({quant:?})");
                        return Err(PairError::Differs {
                            at: self.at.clone(),
                            what: format!("`{name}`").into(),
                            expected: shown(t.dtype, &t.quant).into(),
                            found: shown(found.dtype, &found.quant).into(),
                            other: present.as_str().into(),
                        });
                    }
                    Ok(())
                };
                let name = PdName::Past { kind, slot: *slot, layer };
                same(self.info.input(&name.to_string()), name)?;
                if updates {
                    let name = PdName::Updated { kind, slot: *slot, layer };
                    same(self.info.output(&name.to_string()), name)?;
                }
            }
        }
        Ok(())
    }

    fn keys_by_row(&self, t: &TensorInfo, expected: &[usize]) -> PairError {
        let (tensor, found) = (t.name.as_str().into(), t.dims.as_slice().into());
        PairError::KeysByRow { at: self.at.clone(), tensor, expected: expected.into(), found }
    }

    fn unpaired(&self, tensor: &str, partner: &str) -> PairError {
        PairError::Unpaired { at: self.at.clone(), tensor: tensor.into(), partner: partner.into() }
    }

    fn unknown(&self, what: &'static str, tensor: &str) -> PairError {
        let known = [INPUT_IDS, POSITION_IDS, ATTENTION_MASK, FUSION_CTRL, LOGITS];
        PairError::Unknown { at: self.at.clone(), what, tensor: tensor.into(), near: Near::to(tensor, known) }
    }

    fn role_in(&self, t: &TensorInfo, is_pair: bool) -> Result<Input, PairError> {
        Ok(match t.name.as_str() {
            INPUT_IDS => Input::Ids,
            POSITION_IDS => Input::Positions,
            ATTENTION_MASK => Input::Mask,
            FUSION_CTRL => Input::Ctrl,
            name if OVERRIDES.contains(&name) => {
                self.ints(t, &[1, 1, 1, 1])?;
                Input::Override
            }
            name => match PdName::parse(name) {
                Some(PdName::Past { kind, slot, layer }) if slot.is_some() == is_pair => {
                    Input::Past(slot.unwrap_or(Slot::Decode), self.known(t, "input", kind, layer)?)
                }
                _ => return Err(self.unknown("input", name)),
            },
        })
    }

    fn role_out(&self, t: &TensorInfo) -> Result<Output, PairError> {
        Ok(match PdName::parse(&t.name) {
            _ if t.name == LOGITS => Output::Logits,
            Some(PdName::Present { kind, layer }) => Output::Present(self.known(t, "output", kind, layer)?),
            Some(PdName::Updated { kind, slot, layer }) => {
                Output::Updated(slot.unwrap_or(Slot::Decode), self.known(t, "output", kind, layer)?)
            }
            _ => return Err(self.unknown("output", &t.name)),
        })
    }

    /// The tensor's place; new rows must come out for it.
    fn known(&self, t: &TensorInfo, what: &'static str, kind: KvKind, layer: usize) -> Result<usize, PairError> {
        match self.info.output(&PdName::Present { kind, layer }.to_string()) {
            Some(_) => Ok(index(kind, layer)),
            None => Err(self.unknown(what, &t.name)),
        }
    }
}
