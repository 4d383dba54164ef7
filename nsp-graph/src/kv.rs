//! Cache geometry: the same in every variant, and whether the past is concatenated or scattered into.
//!
//! Keys may lie row by row, as values do: where their extents say so ([`keys_by_row`]), and where they have scales, one for each
//! block of [`KV_BLOCK`] numbers of 8 bits.

use genie_types::{
    DataFormat, Dtype, KV_BLOCK, KvDtype, KvForm, KvKind, KvLayout, KvTensor, LayerIdx, Quant, TensorInfo,
};

use crate::error::{LayoutError, Near};
use crate::layout::{CacheTensor, GraphKind, KvIdx};
use crate::names::KvName;
use crate::signature::{Draft, GroupNames, InTag, OutTag};

/// The cache tensors of one split, in order, with the roles of each graph's tensors.
pub(crate) struct SplitKv {
    pub(crate) tensors: Vec<CacheTensor>,
    /// The graph and name that first had each tensor, for messages and look-ups.
    keys: Vec<(usize, usize, Option<usize>, KvKind)>,
}

impl SplitKv {
    /// The number of the tensor with that name.
    pub(crate) fn index(&self, group: usize, name: &KvName<'_>) -> Option<KvIdx> {
        self.keys.binary_search(&(group, name.layer, name.head, name.kind)).ok().map(KvIdx)
    }
}

/// Forms by group, learned graph by graph.
pub(crate) struct Forms(Vec<Option<KvForm>>);

impl Forms {
    pub(crate) fn new(n_groups: usize) -> Self {
        Self(vec![None; n_groups])
    }

    /// Groups whose graphs have no past at all could be either; concat is the plain one.
    pub(crate) fn of(&self, group: usize) -> KvForm {
        self.0[group].unwrap_or(KvForm::Concat)
    }
}

/// Reads and checks the cache tensors of all graphs of a split.
pub(crate) fn read(split: &[Draft<'_>], groups: &[GroupNames], forms: &mut Forms) -> Result<SplitKv, LayoutError> {
    let mut kv = SplitKv { tensors: Vec::new(), keys: Vec::new() };
    let keys_by_row = split.iter().find_map(keys_by_row).unwrap_or(false);
    for (i, draft) in split.iter().enumerate() {
        let mut here = outputs(draft, keys_by_row)?;
        here.sort_by_key(|(key, ..)| *key);
        check_values(draft, &here)?;
        for (_, tensor, info) in &here {
            past(draft, &tensor.tensor, info, groups, forms)?;
        }
        orphans(draft)?;
        if i == 0 {
            kv.keys = here.iter().map(|(key, ..)| *key).collect();
            kv.tensors = here.into_iter().map(|(_, tensor, _)| tensor).collect();
        } else {
            same(draft, &here, &split[0], &kv)?;
        }
    }
    Ok(kv)
}

type Key = (usize, usize, Option<usize>, KvKind);
type Found<'a> = (Key, CacheTensor, &'a TensorInfo);

fn outputs<'a>(draft: &Draft<'a>, keys_by_row: bool) -> Result<Vec<Found<'a>>, LayoutError> {
    let mut found = Vec::new();
    for (tag, info) in draft.tagged_outputs() {
        let OutTag::Kv(group, name) = tag else { continue };
        let layout = layout(draft, group, &name, keys_by_row);
        let geometry = Geometry::of(draft, info, layout)?;
        if geometry.seq != draft.ar.get() {
            return Err(draft.shape_error(info, extents(draft, layout, &format!("AR = {}", draft.ar))));
        }
        let (dtype, scale, offset) = encoding(draft, info, name.kind)?;
        let tensor = KvTensor {
            layer: LayerIdx(name.layer),
            head: name.head,
            kind: name.kind,
            layout,
            n_heads: geometry.n_heads,
            head_dim: geometry.head_dim,
            dtype,
            scale,
            offset,
            group,
        };
        let tensor = CacheTensor { tensor, dtype: info.dtype, quant: info.quant.clone(), format: info.format };
        found.push(((group, name.layer, name.head, name.kind), tensor, info));
    }
    Ok(found)
}

/// Whether keys lie row by row, by their extents beside those of their values: of the new rows, or of the past where AR is the width
/// of a head. `None` where neither says it; the other graphs of the split do, which have other widths.
fn keys_by_row(draft: &Draft<'_>) -> Option<bool> {
    let tail = |t: &TensorInfo| t.dims.last_chunk::<2>().copied();
    let of_pair = |keys: &TensorInfo, values: &TensorInfo| match (tail(keys)?, tail(values)?) {
        (keys, values) if values[0] == values[1] || ![values, [values[1], values[0]]].contains(&keys) => None,
        (keys, values) => Some(keys == values),
    };
    draft.tagged_outputs().find_map(|(tag, keys)| {
        let OutTag::Kv(_, KvName { kind: KvKind::Key, .. }) = tag else { return None };
        let value_name = keys.name.replacen(KvKind::Key.name(), KvKind::Value.name(), 1);
        let past = || of_pair(draft.info.input(&past_name(&keys.name))?, draft.info.input(&past_name(&value_name))?);
        of_pair(keys, draft.info.output(&value_name)?).or_else(past)
    })
}

/// How the rows of a tensor lie.
fn layout(draft: &Draft<'_>, group: usize, name: &KvName<'_>, keys_by_row: bool) -> KvLayout {
    let is_scale = |tag: &OutTag<'_>| {
        matches!(tag, OutTag::Kv(g, n) if (*g, n.layer, n.head) == (group, name.layer, name.head)
            && n.kind == KvKind::KeyScale)
    };
    let by_row = name.kind == KvKind::Key && (keys_by_row || draft.outputs.iter().any(is_scale));
    if by_row { KvLayout::HeadSeqDim } else { KvLayout::of(name.kind) }
}

/// Every key has its value and every value its key; scales go in pairs too, beside rows that they fit.
fn check_values(draft: &Draft<'_>, here: &[Found<'_>]) -> Result<(), LayoutError> {
    for ((group, layer, head, kind), tensor, info) in here {
        let find = |other: KvKind| {
            let at = here.binary_search_by_key(&(*group, *layer, *head, other), |(key, ..)| *key);
            let name = || info.name.replacen(&format!("{}_", kind.name()), &format!("{}_", other.name()), 1);
            at.map(|at| &here[at]).map_err(|_| unpaired(draft, &info.name, name()))
        };
        match kind {
            KvKind::Key => find(KvKind::Value)?,
            KvKind::Value => find(KvKind::Key)?,
            KvKind::KeyScale => find(KvKind::ValueScale)?,
            KvKind::ValueScale => find(KvKind::KeyScale)?,
        };
        let rows = match kind {
            KvKind::Key | KvKind::Value => continue,
            KvKind::KeyScale => find(KvKind::Key)?,
            KvKind::ValueScale => find(KvKind::Value)?,
        };
        check_blocks(draft, &tensor.tensor, info, rows)?;
    }
    Ok(())
}

/// A scale for each block of a row, and rows of 8-bit numbers.
fn check_blocks(
    draft: &Draft<'_>,
    scales: &KvTensor,
    info: &TensorInfo,
    (_, rows, rows_info): &Found<'_>,
) -> Result<(), LayoutError> {
    let (n_heads, head_dim) = (rows.tensor.n_heads, rows.tensor.head_dim);
    if !head_dim.is_multiple_of(KV_BLOCK) {
        let want = format!("rows of whole blocks of {KV_BLOCK} elements, since `{}` has scales of them", info.name);
        return Err(draft.shape_error(rows_info, want));
    }
    if (scales.n_heads, scales.head_dim) != (n_heads, head_dim / KV_BLOCK) {
        let want = format!(
            "{n_heads} heads of {} scales, one for each {KV_BLOCK} elements of `{}`",
            head_dim / KV_BLOCK,
            rows_info.name
        );
        return Err(draft.shape_error(info, want));
    }
    if rows.tensor.dtype != KvDtype::U8 {
        let (tensor, found) = (rows_info.name.as_str().into(), rows_info.dtype);
        return Err(LayoutError::Dtype { at: draft.at(), tensor, expected: "ufixed8 or sfixed8 beside scales", found });
    }
    Ok(())
}

fn unpaired(draft: &Draft<'_>, tensor: &str, partner: String) -> LayoutError {
    let all = draft.info.inputs.iter().chain(&draft.info.outputs).map(|t| t.name.as_str()).filter(|n| *n != tensor);
    LayoutError::KvUnpaired {
        at: draft.at(),
        tensor: tensor.into(),
        near: Near::to(&partner, all),
        partner: partner.into(),
    }
}

/// Checks the past that belongs to new rows: its length, its form, its encoding.
fn past(
    draft: &Draft<'_>,
    tensor: &KvTensor,
    out: &TensorInfo,
    groups: &[GroupNames],
    forms: &mut Forms,
) -> Result<(), LayoutError> {
    let group = tensor.group;
    let name = past_name(&out.name);
    let Some(input) = draft.info.input(&name) else {
        let ar = draft.ar.get();
        let full = draft.cl.is_some_and(|cl| cl.get() == ar) || group_width(draft, group) == Some(ar);
        // The last layer attends to nothing where only its new rows are wanted.
        let unread = draft.kind == GraphKind::DecoderPrefill;
        return if full || unread { Ok(()) } else { Err(unpaired(draft, &out.name, name)) };
    };
    let geometry = Geometry::of(draft, input, tensor.layout)?;
    if (geometry.n_heads, geometry.head_dim) != (tensor.n_heads, tensor.head_dim) {
        let want = format!("{} heads of {} elements, as `{}` has", tensor.n_heads, tensor.head_dim, out.name);
        return Err(draft.shape_error(input, want));
    }
    if (input.dtype, &input.quant, input.format) != (out.dtype, &out.quant, out.format) {
        return Err(LayoutError::KvEncodingDiffers {
            at: draft.at(),
            input: input.name.as_str().into(),
            output: out.name.as_str().into(),
            expected: encoding_words(input).into(),
            found: encoding_words(out).into(),
        });
    }
    let scatter = group_width(draft, group).unwrap_or(0);
    let concat = scatter.saturating_sub(draft.ar.get());
    let form = match geometry.seq {
        seq if seq == scatter => KvForm::Scatter,
        seq if seq == concat => KvForm::Concat,
        found => {
            let tensor = input.name.as_str().into();
            return Err(LayoutError::PastLength { at: draft.at(), tensor, concat, scatter, found });
        }
    };
    let names = &groups[group];
    let known = *forms.0[group].get_or_insert(form);
    if known != form {
        return Err(LayoutError::MixedForms {
            at: draft.at(),
            tensor: input.name.as_str().into(),
            prefix: names.prefix.as_str().into(),
            expected: known.to_string().into(),
            found: form.to_string().into(),
        });
    }
    if form == KvForm::Scatter && !draft.inputs.contains(&InTag::Index(group)) {
        return Err(LayoutError::CacheIndexMissing {
            at: draft.at(),
            prefix: names.prefix.as_str().into(),
            index: names.index.as_str().into(),
            near: Near::to(&names.index, draft.info.inputs.iter().map(|t| t.name.as_str())),
        });
    }
    Ok(())
}

/// `.._out` of the new rows to `.._in` of the past.
fn past_name(out: &str) -> String {
    format!("{}_in", out.strip_suffix("_out").unwrap_or(out))
}

/// Columns of the group's mask.
fn group_width(draft: &Draft<'_>, group: usize) -> Option<usize> {
    draft.tagged_inputs().find(|(tag, _)| *tag == InTag::Mask(group)).and_then(|(_, t)| t.dims.last().copied())
}

/// A past without new rows.
fn orphans(draft: &Draft<'_>) -> Result<(), LayoutError> {
    for (tag, info) in draft.tagged_inputs() {
        if let InTag::Kv(..) = tag {
            let out = format!("{}_out", info.name.strip_suffix("_in").unwrap_or(&info.name));
            if draft.info.output(&out).is_none() {
                return Err(unpaired(draft, &info.name, out));
            }
        }
    }
    Ok(())
}

/// The same tensors as in the first graph of the split.
fn same(draft: &Draft<'_>, here: &[Found<'_>], first: &Draft<'_>, kv: &SplitKv) -> Result<(), LayoutError> {
    let other = || first.info.name.as_str().into();
    let missing = |at: &Draft<'_>, has: &Draft<'_>, key: &Key| {
        let name = |(tag, t): (OutTag<'_>, &TensorInfo)| match tag {
            OutTag::Kv(g, n) if (g, n.layer, n.head, n.kind) == *key => Some(t.name.clone()),
            _ => None,
        };
        let tensor = has.tagged_outputs().find_map(name).unwrap_or_default();
        LayoutError::KvMissing { at: at.at(), tensor: tensor.into(), other: has.info.name.as_str().into() }
    };
    if let Some(key) = kv.keys.iter().find(|key| here.binary_search_by_key(*key, |(k, ..)| *k).is_err()) {
        return Err(missing(draft, first, key));
    }
    for (key, tensor, info) in here {
        let Ok(i) = kv.keys.binary_search(key) else { return Err(missing(first, draft, key)) };
        if kv.tensors[i] != *tensor {
            return Err(LayoutError::KvGeometryDiffers {
                at: draft.at(),
                tensor: info.name.as_str().into(),
                expected: tensor_words(&kv.tensors[i]).into(),
                found: tensor_words(tensor).into(),
                other: other(),
            });
        }
    }
    Ok(())
}

struct Geometry {
    n_heads: usize,
    head_dim: usize,
    seq: usize,
}

impl Geometry {
    /// Heads first (with a 1 before or after them, or alone), then the two extents of the layout.
    fn of(draft: &Draft<'_>, t: &TensorInfo, layout: KvLayout) -> Result<Self, LayoutError> {
        let wrong = || draft.shape_error(t, extents(draft, layout, "seq"));
        let n = t.dims.len();
        if !(3..=4).contains(&n) || t.dims.contains(&0) {
            return Err(wrong());
        }
        let lead = &t.dims[..n - 2];
        // With a batch, that and the heads, in either order: each line of rows is one head of one row of the batch.
        let fits = match draft.batch {
            1 => lead.iter().filter(|&&d| d != 1).count() <= 1,
            batch => lead.contains(&batch) && n == 4,
        };
        let n_heads = lead.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent)).filter(|_| fits);
        let n_heads = n_heads.ok_or_else(wrong)?;
        let (seq, head_dim) = match layout {
            KvLayout::HeadDimSeq => (t.dims[n - 1], t.dims[n - 2]),
            KvLayout::HeadSeqDim => (t.dims[n - 2], t.dims[n - 1]),
        };
        Ok(Self { n_heads, head_dim, seq })
    }
}

/// The shape that a cache tensor must have, for messages.
fn extents(draft: &Draft<'_>, layout: KvLayout, seq: &str) -> String {
    let lead = match draft.batch {
        1 => "heads, 1".to_owned(),
        batch => format!("{batch}, heads"),
    };
    match layout {
        KvLayout::HeadDimSeq => format!("[{lead}, head_dim, {seq}]"),
        KvLayout::HeadSeqDim => format!("[{lead}, {seq}, head_dim]"),
    }
}

/// Type, scale and offset of the rows. The number zero must be a quantised value, since it fills empty rows.
/// Scales are floats.
fn encoding(draft: &Draft<'_>, t: &TensorInfo, kind: KvKind) -> Result<(KvDtype, f32, i32), LayoutError> {
    let (dtype, max) = match t.dtype {
        found if kind.is_scale() && !found.is_float() => {
            let (tensor, expected) = (t.name.as_str().into(), "float16 or float32");
            return Err(LayoutError::Dtype { at: draft.at(), tensor, expected, found });
        }
        Dtype::F16 => (KvDtype::F16, None),
        Dtype::F32 => (KvDtype::F32, None),
        Dtype::UFixed8 => (KvDtype::U8, Some(u8::MAX.into())),
        Dtype::UFixed16 => (KvDtype::U16, Some(u16::MAX.into())),
        // Rows are only copied, so the sign does not matter; zero must be 0.
        Dtype::SFixed8 => (KvDtype::U8, Some(0)),
        Dtype::SFixed16 => (KvDtype::U16, Some(0)),
        found => {
            let expected = "float16, float32, ufixed8, ufixed16, sfixed8 or sfixed16";
            return Err(LayoutError::Dtype { at: draft.at(), tensor: t.name.as_str().into(), expected, found });
        }
    };
    let quant = t.quant.per_tensor();
    let Some(max) = max else {
        let (scale, offset) = quant.unwrap_or((0.0, 0));
        return Ok((dtype, scale, offset));
    };
    let fits = |&(_, offset): &(f32, i32)| offset <= 0 && offset.unsigned_abs() <= max;
    let refused = || LayoutError::Encoding { at: draft.at(), tensor: t.name.as_str().into(), found: t.dtype };
    quant.filter(fits).map(|(scale, offset)| (dtype, scale, offset)).ok_or_else(refused)
}

fn encoding_words(t: &TensorInfo) -> String {
    let quant = match &t.quant {
        Quant::None => String::new(),
        Quant::PerTensor { scale, offset } => format!(" with scale {scale} and offset {offset}"),
        _ => " with another encoding".into(),
    };
    let format = match t.format {
        DataFormat::Flat => "",
        DataFormat::HmxWeight => " in hardware tiles",
        DataFormat::Other(_) => " in another data format",
    };
    format!("{}{quant}{format}", t.dtype)
}

fn tensor_words(t: &CacheTensor) -> String {
    let info =
        TensorInfo { name: String::new(), dims: Vec::new(), dtype: t.dtype, quant: t.quant.clone(), format: t.format };
    format!("{} heads of {} elements, {}", t.tensor.n_heads, t.tensor.head_dim, encoding_words(&info))
}
