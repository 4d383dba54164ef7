//! The whole reading: select, read each graph, order, check geometry, wire, and put the layout together.

use genie_types::{DataFormat, GraphIdx, GraphInfo, SplitIdx};

use crate::binary::BinaryGraphs;
use crate::error::{GraphAt, LayoutError, Near};
use crate::kv::{self, Forms, SplitKv};
use crate::layout::{GraphKind, GraphLayout, GroupLayout, ModelInput, ModelLayout, Note, RopeTable, Split};
use crate::names::{self, KvName};
use crate::signature::{self, Draft, GroupNames, InTag, Names, OutTag};
use crate::{alphas, order, weights, wiring};

/// Rows of a batch, the same in all graphs.
fn common_batch(drafts: &[Draft<'_>]) -> Result<usize, LayoutError> {
    let Some(first) = drafts.first() else { return Ok(1) };
    match drafts.iter().find(|draft| draft.batch != first.batch) {
        None => Ok(first.batch),
        Some(other) => Err(LayoutError::BatchDiffers {
            at: other.at(),
            expected: first.batch,
            found: other.batch,
            other: first.info.name.as_str().into(),
        }),
    }
}

/// A cache group as the configuration names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// Prefix of its tensors, underscore included.
    pub prefix: String,
    /// Its mask, if not `attention_mask` with the prefix before it (the default group has no prefix there).
    pub mask: Option<String>,
    /// Its index, if not `cache_index` with the prefix before it.
    pub index: Option<String>,
}

/// What the configuration says about the graphs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Cache groups; empty to take every prefix that is found.
    pub groups: Vec<GroupOptions>,
    /// Use only the graphs of these names.
    pub select: Option<Vec<String>>,
    /// Inputs that hold strengths of LoRA adapters, beside those whose names begin with `lora_alpha`.
    pub alphas: Vec<String>,
}

/// From tensor lists to meaning.
///
/// # Errors
///
/// One [`LayoutError`] variant for each way to break the contract; the first violation found is reported.
pub fn analyze(binaries: &[BinaryGraphs], options: &Options) -> Result<ModelLayout, LayoutError> {
    let chosen = select(binaries, options)?;
    let n_chosen = chosen.len();
    if let Some(((_, _, source), info)) = chosen.iter().find(|(_, info)| crate::pd::is_unnamed(info)) {
        let tensor = info.inputs.first().map_or("", |t| t.name.as_str()).into();
        let at = GraphAt { graph: info.name.as_str().into(), source: (*source).into() };
        return Err(LayoutError::FusedUnnamed { at, tensor });
    }
    // A fused pair is read by `pd::analyze`.
    let chosen: Vec<Chosen<'_>> = chosen.into_iter().filter(|(_, info)| !crate::pd::belongs(info)).collect();
    if chosen.is_empty() && n_chosen > 0 {
        return Err(LayoutError::OnlyFused { n_graphs: n_chosen });
    }
    let groups = group_names(&chosen, options)?;
    let all_outputs = || chosen.iter().flat_map(|(_, info)| &info.outputs);
    let embeds_are_made = all_outputs().any(|t| t.name == names::INPUTS_EMBEDS);
    let ropes = rope_prefixes(&chosen);
    let alphas = alphas::find(&chosen, &options.alphas);
    let features_are_made = all_outputs().any(|t| t.name == names::TARGET_HIDDEN_STATES);
    let names = Names { groups: &groups, ropes: &ropes, alphas: &alphas, embeds_are_made, features_are_made };
    let mut notes = Vec::new();
    let (mut drafts, mut image_encoders) = (Vec::new(), Vec::new());
    for ((binary, graph, source), info) in &chosen {
        let mut draft = signature::read((*binary, *graph, source), info, &names)?;
        notes.extend(draft.note.take());
        if draft.kind != GraphKind::ImageEncoder {
            drafts.push(draft);
        } else if !image_encoders.contains(binary) {
            image_encoders.push(*binary);
        }
    }
    if drafts.is_empty() {
        return Err(no_graphs(binaries));
    }
    let batch = common_batch(&drafts)?;
    let splits = order::into_splits(drafts)?;
    check_ends(&splits)?;
    splits.iter().try_for_each(|split| order::check_split(split))?;
    let variants = order::variants(&splits)?;
    let by_variant = splits
        .iter()
        .enumerate()
        .map(|(s, split)| order::serve(s + 1, split, &splits, &variants, &mut notes))
        .collect::<Result<Vec<_>, _>>()?;
    let mut forms = Forms::new(groups.len());
    let caches = splits.iter().map(|split| kv::read(split, &groups, &mut forms)).collect::<Result<Vec<_>, _>>()?;
    check_owners(&splits)?;
    let wires = wiring::find(&splits)?;
    wiring::check(&wires, &splits, &by_variant)?;
    let gives_logits = gives_logits(&splits, &by_variant, &wires, variants.len())?;

    let vocab_size = common_width(&splits, |d| find_output(d, OutTag::Logits))?.unwrap_or(0);
    let weights = weights::find(&splits, vocab_size)?;
    let rope_tables = rope_tables(&splits, ropes)?;
    let embeds = common_width(&splits, |d| find_input(d, InTag::Embeds))?;
    let features_in = common_width(&splits, |d| find_input(d, InTag::Features))?;
    let features_out = features_out(&splits, &by_variant, variants.len())?;
    let groups = groups
        .into_iter()
        .enumerate()
        .map(|(g, n)| GroupLayout { prefix: n.prefix, mask: n.mask, index: n.index, form: forms.of(g) })
        .collect();
    let splits = splits
        .iter()
        .zip(by_variant)
        .zip(caches)
        .enumerate()
        .map(|(s, ((drafts, by_variant), cache))| finish(s, drafts, by_variant, cache, (&wires, &weights)))
        .collect::<Vec<_>>();
    let mut kv = splits.iter().flat_map(|s| &s.kv).peekable();
    let native_kv = kv.peek().is_some() && kv.all(|t| t.format == DataFormat::HmxWeight);
    Ok(ModelLayout {
        splits,
        variants,
        gives_logits,
        groups,
        wires,
        weights,
        input: embeds.map_or(ModelInput::Ids, |width| ModelInput::Embeds { width }),
        features_in,
        features_out,
        vocab_size,
        batch,
        rope_tables,
        alphas,
        native_kv,
        image_encoders,
        notes,
    })
}

/// A graph with its binary, its number there, and the binary's name.
pub(crate) type Chosen<'a> = ((usize, GraphIdx, &'a str), &'a GraphInfo);

fn select<'a>(binaries: &'a [BinaryGraphs], options: &Options) -> Result<Vec<Chosen<'a>>, LayoutError> {
    let all: Vec<Chosen<'a>> = binaries
        .iter()
        .enumerate()
        .flat_map(|(b, binary)| {
            binary.graphs.iter().enumerate().map(move |(g, info)| ((b, GraphIdx(g), binary.source.as_str()), info))
        })
        .collect();
    let Some(wanted) = &options.select else { return Ok(all) };
    for name in wanted {
        if !all.iter().any(|(_, info)| info.name == *name) {
            let near = Near::to(name, all.iter().map(|(_, info)| info.name.as_str()));
            return Err(LayoutError::SelectedGraphMissing { name: name.as_str().into(), near });
        }
    }
    Ok(all.into_iter().filter(|(_, info)| wanted.contains(&info.name)).collect())
}

fn no_graphs(binaries: &[BinaryGraphs]) -> LayoutError {
    let sources: Vec<&str> = binaries.iter().map(|b| b.source.as_str()).collect();
    LayoutError::NoGraphs { sources: if sources.is_empty() { "none".into() } else { sources.join(", ").into() } }
}

/// The configured groups, or all prefixes found; the default group first, the others by prefix.
fn group_names(chosen: &[Chosen<'_>], options: &Options) -> Result<Vec<GroupNames>, LayoutError> {
    let mut groups: Vec<GroupNames> = Vec::new();
    for group in &options.groups {
        if groups.iter().any(|g| g.prefix == group.prefix) {
            return Err(LayoutError::GroupTwice { prefix: group.prefix.as_str().into() });
        }
        let mut names = default_names(&group.prefix);
        names.mask = group.mask.clone().unwrap_or(names.mask);
        names.index = group.index.clone().unwrap_or(names.index);
        groups.push(names);
    }
    for ((_, _, source), info) in chosen {
        let past = info.inputs.iter().map(|t| (t, true));
        for (t, is_input) in past.chain(info.outputs.iter().map(|t| (t, false))) {
            let Some(name) = KvName::parse(&t.name).filter(|k| k.is_input == is_input) else { continue };
            if groups.iter().any(|g| g.prefix == name.prefix) {
                continue;
            }
            if !options.groups.is_empty() {
                let known: Vec<String> = options.groups.iter().map(|g| format!("`{}`", g.prefix)).collect();
                return Err(LayoutError::UnknownGroup {
                    at: crate::GraphAt { graph: info.name.as_str().into(), source: (*source).into() },
                    tensor: t.name.as_str().into(),
                    prefix: name.prefix.into(),
                    groups: known.join(", ").into(),
                });
            }
            groups.push(default_names(name.prefix));
        }
    }
    if groups.is_empty() {
        groups.push(default_names(names::DEFAULT_GROUP));
    }
    groups.sort_by(|a, b| {
        (a.prefix != names::DEFAULT_GROUP, &a.prefix).cmp(&(b.prefix != names::DEFAULT_GROUP, &b.prefix))
    });
    Ok(groups)
}

/// The prefixes of the rotary tables that clients fill, the empty one first. A name that some graph outputs is a wire.
fn rope_prefixes(chosen: &[Chosen<'_>]) -> Vec<String> {
    let is_output = |name: &str| chosen.iter().any(|(_, info)| info.outputs.iter().any(|t| t.name == name));
    let inputs = chosen.iter().flat_map(|(_, info)| &info.inputs).filter(|t| !is_output(&t.name));
    let mut found: Vec<String> =
        inputs.filter_map(|t| names::rope_prefix(&t.name)).map(|(prefix, _)| prefix.to_owned()).collect();
    found.sort();
    found.dedup();
    found
}

/// The tables with their widths, which cosines and sines have in common.
fn rope_tables(splits: &[Vec<Draft<'_>>], prefixes: Vec<String>) -> Result<Vec<RopeTable>, LayoutError> {
    let table = |(i, prefix): (usize, String)| {
        let dim = common_width(splits, |d| find_input(d, InTag::Cos(i)))?;
        if common_width(splits, |d| find_input(d, InTag::Sin(i)))? != dim {
            let draft = splits.iter().flatten().find(|d| d.inputs.contains(&InTag::Sin(i))).expect("sin has a width");
            let t = find_input(draft, InTag::Sin(i)).expect("just found");
            let cos = format!("rope_dim {}, as `{prefix}{}` has", dim.unwrap_or(0), names::POSITION_COS);
            return Err(draft.shape_error(t, cos));
        }
        Ok(RopeTable { prefix, dim: dim.unwrap_or(0) })
    };
    prefixes.into_iter().enumerate().map(table).collect()
}

fn default_names(prefix: &str) -> GroupNames {
    let lead = if prefix == names::DEFAULT_GROUP { "" } else { prefix };
    GroupNames {
        prefix: prefix.into(),
        mask: format!("{lead}{}", names::ATTENTION_MASK),
        index: format!("{lead}{}", names::CACHE_INDEX),
    }
}

/// Tokens enter at the first split, logits leave at the last and nowhere else.
fn check_ends(splits: &[Vec<Draft<'_>>]) -> Result<(), LayoutError> {
    for draft in &splits[0] {
        if !draft.inputs.iter().any(|t| matches!(t, InTag::Ids | InTag::Embeds)) {
            let near = Near::to(names::INPUT_IDS, draft.info.inputs.iter().map(|t| t.name.as_str()));
            return Err(LayoutError::NoTokenInput { at: draft.at(), near });
        }
    }
    let total = splits.len();
    for (s, draft) in splits.iter().enumerate().flat_map(|(s, split)| split.iter().map(move |d| (s, d))) {
        let has = draft.outputs.contains(&OutTag::Logits);
        if has && s + 1 < total {
            return Err(LayoutError::LogitsTooEarly { at: draft.at(), split: s + 1, total });
        }
        let beside = || splits[s].iter().any(|d| d.outputs.contains(&OutTag::Logits));
        let prefills = draft.kind == GraphKind::DecoderPrefill;
        if !has && s + 1 == total && !(prefills && beside()) {
            let near = Near::to(names::LOGITS, draft.info.outputs.iter().map(|t| t.name.as_str()));
            return Err(LayoutError::NoLogits { at: draft.at(), near });
        }
    }
    Ok(())
}

/// Which variants end in logits: their last graph has them, and all that it reads is written.
fn gives_logits(
    splits: &[Vec<Draft<'_>>],
    by_variant: &[Vec<usize>],
    wires: &[crate::Wire],
    n_variants: usize,
) -> Result<Vec<bool>, LayoutError> {
    let last = splits.len() - 1;
    let gives = |variant: usize| {
        let graph = |s: usize| &splits[s][by_variant[s][variant]];
        let reads =
            |w: &&crate::Wire| graph(last).info.input(&w.name).is_some() && w.consumers.contains(&SplitIdx(last));
        let is_written = |w: &crate::Wire| graph(w.producer.0).info.output(&w.name).is_some();
        graph(last).outputs.contains(&OutTag::Logits) && wires.iter().filter(reads).all(is_written)
    };
    let given: Vec<bool> = (0..n_variants).map(gives).collect();
    if given.contains(&true) {
        return Ok(given);
    }
    let draft = &splits[last][0];
    Err(LayoutError::NoLogits { at: draft.at(), near: Near::default() })
}

/// The width of the hidden states that a model may draft from, if every variant gives a row for each of its tokens.
fn features_out(
    splits: &[Vec<Draft<'_>>],
    by_variant: &[Vec<usize>],
    n_variants: usize,
) -> Result<Option<usize>, LayoutError> {
    fn given<'a>(draft: &Draft<'a>) -> Option<&'a genie_types::TensorInfo> {
        wiring::free_output(draft, names::LAST_HIDDEN_STATES)
    }
    let width = common_width(splits, given)?;
    let gives_rows = |draft: &Draft<'_>| {
        given(draft).is_some_and(|t| t.n_elems() == draft.ar.get() * t.dims.last().copied().unwrap_or(0))
    };
    let in_all =
        (0..n_variants).all(|variant| (0..splits.len()).any(|s| gives_rows(&splits[s][by_variant[s][variant]])));
    Ok(width.filter(|_| in_all))
}

/// No cache tensor belongs to two splits.
fn check_owners(splits: &[Vec<Draft<'_>>]) -> Result<(), LayoutError> {
    let mut seen: Vec<(&str, &Draft<'_>)> = Vec::new();
    for split in splits {
        let draft = &split[0];
        let here: Vec<_> = draft.tagged_outputs().filter(|(tag, _)| matches!(tag, OutTag::Kv(..))).collect();
        for (_, t) in &here {
            if let Some((_, other)) = seen.iter().find(|(name, _)| *name == t.name) {
                let (tensor, other) = (t.name.as_str().into(), other.info.name.as_str().into());
                return Err(LayoutError::KvInTwoSplits { at: draft.at(), tensor, other });
            }
        }
        seen.extend(here.iter().map(|(_, t)| (t.name.as_str(), draft)));
    }
    Ok(())
}

fn find_input<'a>(draft: &Draft<'a>, want: InTag<'_>) -> Option<&'a genie_types::TensorInfo> {
    draft.tagged_inputs().find(|(tag, _)| *tag == want).map(|(_, t)| t)
}

fn find_output<'a>(draft: &Draft<'a>, want: OutTag<'_>) -> Option<&'a genie_types::TensorInfo> {
    draft.tagged_outputs().find(|(tag, _)| *tag == want).map(|(_, t)| t)
}

/// The last extent of a tensor, which must be the same wherever the tensor is.
fn common_width(
    splits: &[Vec<Draft<'_>>],
    find: impl for<'a> Fn(&Draft<'a>) -> Option<&'a genie_types::TensorInfo>,
) -> Result<Option<usize>, LayoutError> {
    let mut first: Option<(usize, &str)> = None;
    for draft in splits.iter().flatten() {
        let Some(t) = find(draft) else { continue };
        let width = t.dims.last().copied().unwrap_or(0);
        let (expected, other) = *first.get_or_insert((width, draft.info.name.as_str()));
        if width != expected {
            return Err(LayoutError::TensorDiffers {
                at: draft.at(),
                tensor: t.name.as_str().into(),
                expected: format!("{expected} wide").into(),
                found: format!("{width} wide").into(),
                other: other.into(),
            });
        }
    }
    Ok(first.map(|(width, _)| width))
}

fn finish(
    s: usize,
    drafts: &[Draft<'_>],
    by_variant: Vec<usize>,
    cache: SplitKv,
    (wires, weights): (&[crate::Wire], &[crate::WeightInput]),
) -> Split {
    let graphs = drafts
        .iter()
        .map(|draft| {
            let (inputs, outputs) = wiring::roles(s, draft, &cache, wires, weights);
            GraphLayout {
                binary: draft.binary,
                graph: draft.graph,
                kind: draft.kind,
                ar: draft.ar,
                cl: draft.cl,
                carries_cl: draft.carries_cl,
                inputs,
                outputs,
                info: draft.info.clone(),
            }
        })
        .collect();
    Split { index: SplitIdx(s), kind: order::split_kind(drafts), graphs, by_variant, kv: cache.tensors }
}

impl ModelLayout {
    /// The notes that concern a reader of the bundle, as text.
    pub fn note_lines(&self) -> impl Iterator<Item = String> + '_ {
        self.notes.iter().map(Note::to_string)
    }
}
