//! What the engine writes into a step's inputs: ids or embeddings, mask, rotary rows, positions or distances, cache index.
//!
//! *Invariant*: after [`InputWriters::fill`], all writers of the variant's graphs hold the step: tokens left-aligned, padding on
//! the right (pad token, position 0, hidden mask rows).

use genie_types::{PositionKind, TokenId};
use kvmanager::{InferenceStep, KvCache, KvForm, Overflow, Step};
use nsp_graph::{GraphLayout, InputRole, ModelInput, ModelLayout};

use crate::EngineError;
use crate::batch_input;
use crate::buffer::elements_mut;
use crate::config::EngineConfig;
use crate::embed::Embedder;
use crate::extra_rows::ExtraRows;
use crate::features::FeatureWriter;
use crate::grids::Grids;
use crate::io::{BufferRole, IoBuffers};
use crate::lockstep::BatchStep;
use crate::mask::{Mask, MaskDtype, Padding};
use crate::quant::QuantParams;
use crate::rope::RopeTable;
use crate::{distances, positions};

/// One input buffer and how it is filled.
#[derive(Debug)]
struct InputWriter {
    buffer: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Ids,
    Embeds(Box<Embedder>),
    Features(FeatureWriter),
    Positions,
    Distances,
    Mask(Mask),
    Rope(RopeTable),
    Index(usize),
}

/// What a step is fed.
#[derive(Debug)]
pub(crate) struct StepInputs<'a> {
    /// Index of its variant among the layout's.
    pub(crate) variant: usize,
    pub(crate) planned: &'a InferenceStep,
    /// Its real tokens, by column.
    pub(crate) tokens: &'a [TokenId],
    /// Hidden states of another model for them, where the graphs take such.
    pub(crate) features: &'a [f32],
    /// Inputs that libGenie writes wrong are written as it writes them.
    pub(crate) as_genie: bool,
    /// The rows of a batch, if each has a sequence; otherwise the first has the step and the others are padding.
    pub(crate) batch: Option<&'a BatchStep>,
}

/// All inputs that the engine fills.
#[derive(Debug)]
pub(crate) struct InputWriters {
    writers: Vec<InputWriter>,
    /// By variant: the writers that its graphs take.
    by_variant: Vec<Vec<usize>>,
    pad_token: TokenId,
    /// Rows beside the embedding table's, where embeddings are the input.
    pub(crate) extra: Option<ExtraRows>,
    /// Images among the tokens, where these have three positions.
    pub(crate) grids: Grids,
    /// Rows of the batch that the graphs have.
    batch: usize,
}

impl InputWriters {
    /// Rotary tables have all positions that the cache's limit allows.
    pub(crate) fn new(
        layout: &ModelLayout,
        io: &IoBuffers,
        config: &EngineConfig,
        kv: &KvCache,
    ) -> Result<Self, EngineError> {
        let limit = kv.variants().limit();
        // Buffers begin as zeros, which is what an input that is not fed holds.
        let unfed = config.positions == Some(PositionKind::None);
        let mut writers = Vec::new();
        for (buffer, wanted) in io.roles().iter().enumerate() {
            if let BufferRole::Input(role, dtype, quant) = wanted {
                let graph = user(layout, io, buffer);
                let no_conversion = || EngineError::NoConversion {
                    graph: graph.info.name.clone(),
                    tensor: graph.input(*role).map_or_else(String::new, |(_, t)| t.name.clone()),
                    from: "numbers".into(),
                    to: *dtype,
                };
                let encoding = || QuantParams::of(*dtype, quant).ok_or_else(no_conversion);
                let kind = match role {
                    InputRole::Ids => Kind::Ids,
                    InputRole::Positions | InputRole::Distances if unfed => continue,
                    InputRole::Positions => Kind::Positions,
                    InputRole::Distances if layout.batch > 1 => {
                        let what = "distances of alibi where graphs have a batch dimension".into();
                        return Err(EngineError::Unsupported { what, hint: "" });
                    }
                    InputRole::Distances => Kind::Distances,
                    InputRole::CacheIndex(group) => Kind::Index(*group),
                    InputRole::Mask(group) => {
                        Kind::Mask(Mask::new(*group, MaskDtype::of(*dtype).ok_or_else(no_conversion)?))
                    }
                    InputRole::Cos(table) | InputRole::Sin(table) => {
                        let Some(rope) = positions::rope_of(layout, *table, config)? else { continue };
                        let angles = positions::angles(rope, config, limit);
                        let sin = matches!(role, InputRole::Sin(_));
                        Kind::Rope(RopeTable::new(angles, limit, sin, encoding()?).with_axes(rope.axes()))
                    }
                    InputRole::Embeds => {
                        Kind::Embeds(Box::new(embedder(graph, config, encoding()?, layout.vocab_size)?))
                    }
                    // Anchors are written by their owner.
                    InputRole::Anchor(_) => continue,
                    InputRole::Features => {
                        Kind::Features(FeatureWriter::new(layout.features_in.unwrap_or(0), encoding()?))
                    }
                    // Strengths are written when they change.
                    InputRole::Alpha(_) | InputRole::Past(_) | InputRole::Wire(_) | InputRole::Weight(_) => continue,
                };
                writers.push(InputWriter { buffer, kind });
            }
        }
        let takes = |variant: usize, writer: &InputWriter| {
            layout.splits.iter().enumerate().any(|(s, split)| io.is_bound(s, split.by_variant[variant], writer.buffer))
        };
        let by_variant = (0..layout.variants.len())
            .map(|variant| (0..writers.len()).filter(|&f| takes(variant, &writers[f])).collect())
            .collect();
        let mut made = Self {
            writers,
            by_variant,
            pad_token: config.pad_token,
            extra: None,
            grids: Grids::default(),
            batch: layout.batch,
        };
        if let (ModelInput::Embeds { width }, Some(n)) = (&layout.input, made.n_embeddings()) {
            made.extra = Some(ExtraRows::new(*width, n.max(layout.vocab_size)));
        }
        Ok(made)
    }

    /// Entries of the embedding table, if ids are looked up here.
    pub(crate) fn n_embeddings(&self) -> Option<usize> {
        self.writers.iter().find_map(|f| if let Kind::Embeds(e) = &f.kind { Some(e.n_rows()) } else { None })
    }

    /// Numbers in the type of the graphs' embeddings; `None` where they take ids.
    pub(crate) fn decode_embeddings(&self, bytes: &[u8]) -> Option<Result<Vec<f32>, EngineError>> {
        self.writers.iter().find_map(|f| if let Kind::Embeds(e) = &f.kind { Some(e.decode(bytes)) } else { None })
    }

    /// True where tokens may have three positions.
    pub(crate) fn has_axes(&self) -> bool {
        self.writers.iter().any(|writer| matches!(&writer.kind, Kind::Rope(table) if table.has_axes()))
    }

    /// The rotary tables with all their positions, by the names of their inputs.
    pub(crate) fn rope_tables<'a>(
        &'a mut self,
        layout: &'a ModelLayout,
        io: &'a IoBuffers,
    ) -> impl Iterator<Item = (&'a str, genie_types::Dtype, &'a [u8])> {
        self.writers.iter_mut().filter_map(|writer| match (&mut writer.kind, &io.roles()[writer.buffer]) {
            (Kind::Rope(table), BufferRole::Input(role, dtype, _)) => {
                let (_, input) = user(layout, io, writer.buffer).input(*role)?;
                table.reach(table.n_positions());
                Some((input.name.as_str(), *dtype, table.bytes()))
            }
            _ => None,
        })
    }

    /// Writes what the rows of a batch beside the first have, and the first too where each has a sequence.
    fn fill_batch(&mut self, io: &mut IoBuffers, step: &Step<'_>, fill: &StepInputs<'_>) -> Result<(), EngineError> {
        let &StepInputs { variant, planned, batch, .. } = fill;
        let size = (planned.ar(), self.batch);
        for &f in &self.by_variant[variant] {
            let InputWriter { buffer, kind } = &mut self.writers[f];
            let bytes = io.buffers[*buffer].bytes_mut();
            match kind {
                Kind::Ids => batch_input::fill_ids(bytes, size, batch, self.pad_token),
                Kind::Positions => batch_input::fill_positions(bytes, size, batch),
                Kind::Mask(mask) => {
                    let dtype = if batch.is_some() { mask.forget() } else { mask.dtype() };
                    let width = step.mask_width(mask.group());
                    batch_input::fill_mask(bytes, dtype, (planned, width, self.batch), batch);
                }
                Kind::Rope(table) => {
                    let positions = batch.iter().flat_map(|batch| &batch.rows).flat_map(|row| &row.positions);
                    reach(table, positions.max().copied())?;
                    batch_input::fill_rope(bytes, size, batch, table);
                }
                Kind::Embeds(embedder) => {
                    let row_bytes = embedder.row_bytes() * planned.ar();
                    let first = usize::from(batch.is_none());
                    let rows = bytes[..row_bytes * self.batch].chunks_exact_mut(row_bytes);
                    for (b, to) in rows.enumerate().skip(first) {
                        let tokens = batch.and_then(|batch| batch.rows.get(b)).map_or(&[][..], |row| &row.tokens);
                        embedder.fill(to, tokens, planned.ar(), self.extra.as_ref())?;
                    }
                }
                // A model that drafts has one sequence of its own dialog; the other rows are padding.
                Kind::Features(writer) => {
                    let n_tokens = batch.and_then(|batch| batch.rows.first()).map_or(0, |row| row.tokens.len());
                    let row_bytes = writer.row_bytes() * planned.ar();
                    for to in
                        bytes[..row_bytes * self.batch].chunks_exact_mut(row_bytes).skip(usize::from(n_tokens == 0))
                    {
                        writer.fill(to, &[], n_tokens, planned.ar())?;
                    }
                }
                // The slots are the same for all rows.
                Kind::Index(_) | Kind::Distances => {}
            }
        }
        Ok(())
    }

    /// Writes the inputs of a step.
    pub(crate) fn fill(
        &mut self,
        io: &mut IoBuffers,
        step: &Step<'_>,
        fill: &StepInputs<'_>,
    ) -> Result<(), EngineError> {
        let &StepInputs { variant, planned, tokens, features, as_genie, batch } = fill;
        let ar = planned.ar();
        if self.batch > 1 {
            self.fill_batch(io, step, fill)?;
        }
        for &f in &self.by_variant[variant] {
            let InputWriter { buffer, kind } = &mut self.writers[f];
            // What the rows of a batch have of their own is written by now.
            if batch.is_some() && !matches!(kind, Kind::Index(_)) {
                continue;
            }
            let bytes = io.buffers[*buffer].bytes_mut();
            match kind {
                Kind::Ids => {
                    let ids = &mut elements_mut::<u32>(bytes)[..ar];
                    ids[..tokens.len()].iter_mut().zip(tokens).for_each(|(to, token)| *to = token.0);
                    ids[tokens.len()..].fill(self.pad_token.0);
                }
                Kind::Positions => {
                    let positions = &mut elements_mut::<u32>(bytes)[..ar];
                    positions[tokens.len()..].fill(0);
                    positions.iter_mut().zip(planned.columns.iter()).for_each(|(to, column)| *to = column.pos as u32);
                }
                Kind::Distances => distances::fill(bytes, step, planned, as_genie)?,
                Kind::Index(group) => {
                    let index = match step.variants().groups()[*group].form {
                        KvForm::Scatter => step.cache_index(*group),
                        KvForm::Concat => step.mask_width(*group) - ar,
                    };
                    // Graphs take the first row's slot, or that of each row.
                    let slots = elements_mut::<u32>(bytes).iter_mut().take(ar);
                    slots.zip(index as u32..).for_each(|(to, slot)| *to = slot);
                }
                Kind::Mask(mask) => {
                    let padding = if as_genie { Padding::Hidden } else { Padding::AsLast };
                    mask.fill(bytes, step, planned, padding)?;
                }
                Kind::Rope(table) => {
                    let last = planned.columns.slices().map(|slice| slice.first + slice.n - 1).max();
                    reach(table, last)?;
                    if self.grids.is_empty() {
                        table.fill(bytes, &planned.columns, ar);
                    } else {
                        table.fill_on_axes(bytes, &planned.columns, ar, &self.grids);
                    }
                }
                Kind::Embeds(embedder) => embedder.fill(bytes, tokens, ar, self.extra.as_ref())?,
                Kind::Features(writer) => writer.fill(bytes, features, tokens.len(), ar)?,
            }
        }
        Ok(())
    }
}

/// Has a rotary table computed up to a step's last position, if it has tokens.
fn reach(table: &mut RopeTable, last: Option<usize>) -> Result<(), EngineError> {
    let (limit, n) = (table.n_positions(), last.map_or(0, |last| last + 1));
    if n > limit {
        return Err(Overflow::ContextExceeded { n_past: n - 1, n_new: 1, limit }.into());
    }
    table.reach(n);
    Ok(())
}

/// A graph that is bound to the buffer, for messages.
fn user<'a>(layout: &'a ModelLayout, io: &IoBuffers, buffer: usize) -> &'a GraphLayout {
    let graphs =
        layout.splits.iter().enumerate().flat_map(|(s, split)| split.graphs.iter().enumerate().map(move |g| (s, g)));
    let mut users = graphs.filter(|(s, (g, _))| io.is_bound(*s, *g, buffer));
    users.next().map(|(_, (_, graph))| graph).expect("a buffer is made for a graph")
}

fn embedder(
    graph: &GraphLayout,
    config: &EngineConfig,
    to: QuantParams,
    n_rows: usize,
) -> Result<Embedder, EngineError> {
    let width = graph.input(InputRole::Embeds).and_then(|(_, t)| t.dims.last().copied()).unwrap_or(0);
    let name = || graph.info.name.clone();
    if let (None, Some(callback)) = (&config.embedding, &config.embedding_callback) {
        return Ok(Embedder::of_callback(callback.clone(), n_rows, width, to));
    }
    let lut = config.embedding.as_ref().ok_or_else(|| EngineError::EmbeddingMissing { graph: name(), width })?;
    if lut.size != width {
        return Err(EngineError::EmbeddingWidth { graph: name(), expected: lut.size, found: width });
    }
    Embedder::open(lut, to, config.pad_token)
}
