//! A text encoder: one graph without cache that turns a whole text into vectors.
//!
//! *Shapes*: inputs `input_ids` `[1, S]`, `attention_mask` `[1, S]` or `[1, 1, 1, S]`, and where the graph has them
//! `token_type_ids` (zeros) and `position_ids`; outputs `sequence_output` `[1, S, E]`, `pooled_output` `[1, E]`.
//! *Invariant*: the text stands right-aligned, the pad token before it; the mask shows the text's columns only (0, others
//! -1000). *Source*: recorded from libGenie 1.21 (`genie-cli/tests/text_encoder_htp.rs`).

use std::path::PathBuf;
use std::sync::Arc;

use genie_types::{Dtype, PositionKind, TensorInfo, TokenId};
use qnn_api::{Backend, ContextOptions, Graph};

use crate::buffer::{Buffer, elements_mut};
use crate::quant::{QuantParams, Rounding};
use crate::weights_to_memory::WeightsToMemory;
use crate::{EngineError, load};

const IDS: &str = "input_ids";
const TYPES: &str = "token_type_ids";
const MASK: &str = "attention_mask";
const POSITIONS: &str = "position_ids";
const ROWS: &str = "sequence_output";
const POOLED: &str = "pooled_output";
/// What a hidden column adds to its scores.
const HIDDEN: f64 = -1000.0;

/// What a text encoder is opened with.
#[derive(Clone, Debug)]
pub struct EncoderOptions {
    /// Context binaries; graphs of several lengths may lie in one or in many.
    pub ctx_bins: Vec<PathBuf>,
    /// Fills the columns before a text.
    pub pad_token: TokenId,
    /// [`PositionKind::None`] feeds nothing; [`PositionKind::Absolute`] asks for `position_ids`.
    pub positions: PositionKind,
    /// Map context binaries; else read them into memory, on the embedded backend behind the first texts.
    pub use_mmap: bool,
}

/// What a text became.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoded {
    /// Numbers of one vector.
    pub width: usize,
    /// One vector for each token, where the graph has `sequence_output`.
    pub rows: Vec<f32>,
    /// One vector for the text, where the graph has `pooled_output`.
    pub pooled: Option<Vec<f32>>,
}

/// Graphs that encode texts of up to some length.
#[derive(Debug)]
pub struct TextEncoder {
    /// The shortest first.
    graphs: Vec<EncoderGraph>,
    pad_token: TokenId,
    weights: WeightsToMemory,
}

#[derive(Debug)]
struct EncoderGraph {
    graph: Graph,
    length: usize,
    width: usize,
    inputs: Vec<(Feed, Buffer)>,
    outputs: Vec<(Option<Output>, Buffer)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Feed {
    Ids,
    Mask(QuantParams),
    Positions,
    Zeros,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Output {
    Rows(QuantParams),
    Pooled(QuantParams),
}

impl TextEncoder {
    /// Loads the binaries and looks at their graphs.
    ///
    /// # Errors
    ///
    /// Missing or refused files; graphs that are no text encoder's, with what is missing.
    pub fn open(options: &EncoderOptions, backend: &Arc<Backend>) -> Result<Self, EngineError> {
        let (mut graphs, mut contexts) = (Vec::new(), Vec::new());
        for path in &options.ctx_bins {
            load::must_exist("context binary", path)?;
            let context = load::binary(backend, path, options.use_mmap, &ContextOptions::default())?;
            for name in context.graphs().map(|info| info.name.clone()).collect::<Vec<_>>() {
                let found = context.graph(&name);
                let graph = found.map_err(|source| EngineError::FindGraph { graph: name, source })?;
                graphs.push(EncoderGraph::new(graph, options.positions)?);
            }
            contexts.push(context);
        }
        if graphs.is_empty() {
            let (expected, found) = ("at least one graph", "none".into());
            return Err(EngineError::Config { what: "context binaries", expected, found });
        }
        graphs.sort_by_key(|graph| graph.length);
        let weights = if options.use_mmap { WeightsToMemory::default() } else { WeightsToMemory::of(&contexts, 1) };
        Ok(Self { graphs, pad_token: options.pad_token, weights })
    }

    /// Most tokens of a text.
    pub fn max_tokens(&self) -> usize {
        self.graphs.last().map_or(0, |graph| graph.length)
    }

    /// Numbers of one vector.
    pub fn width(&self) -> usize {
        self.graphs.last().map_or(0, |graph| graph.width)
    }

    /// Encodes the tokens of one text with the shortest graph that takes them; none at all is a text, too.
    ///
    /// # Errors
    ///
    /// [`EngineError::TextTooLong`]; [`EngineError::Execute`].
    pub fn encode(&mut self, tokens: &[TokenId]) -> Result<Encoded, EngineError> {
        let (n, most, pad) = (tokens.len(), self.max_tokens(), self.pad_token);
        let graph = self.graphs.iter_mut().find(|graph| graph.length >= n);
        let graph = graph.ok_or(EngineError::TextTooLong { found: n, most })?;
        graph.fill(tokens, pad);
        graph.run()?;
        self.weights.count();
        Ok(graph.read(n))
    }
}

impl EncoderGraph {
    fn new(graph: Graph, positions: PositionKind) -> Result<Self, EngineError> {
        let info = graph.info().clone();
        let lacks = |tensor: &'static str, names: Vec<String>| EngineError::NotAnEncoder {
            graph: info.name.clone(),
            tensor,
            found: names,
        };
        let names = |list: &[TensorInfo]| list.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
        let ids = info.inputs.iter().find(|t| t.name == IDS).ok_or_else(|| lacks(IDS, names(&info.inputs)))?;
        let length = ids.dims.last().copied().unwrap_or(0);
        let no_conversion = |t: &TensorInfo| EngineError::NoConversion {
            graph: info.name.clone(),
            tensor: t.name.clone(),
            from: "numbers".into(),
            to: t.dtype,
        };
        let numbers = |t: &TensorInfo| QuantParams::of(t.dtype, &t.quant).ok_or_else(|| no_conversion(t));
        let shape = |t: &TensorInfo, expected: Vec<usize>| EngineError::EncoderShape {
            graph: info.name.clone(),
            tensor: t.name.clone(),
            expected,
            found: t.dims.clone(),
        };
        let mut inputs = Vec::new();
        for t in &info.inputs {
            let n: usize = t.dims.iter().product();
            let feed = match t.name.as_str() {
                IDS => Feed::Ids,
                MASK => Feed::Mask(numbers(t)?),
                POSITIONS if positions != PositionKind::None => Feed::Positions,
                TYPES | POSITIONS => Feed::Zeros,
                other => {
                    let (what, hint) = (format!("input `{other}` of the text encoder `{}`", info.name), "");
                    return Err(EngineError::Unsupported { what, hint });
                }
            };
            if n != length {
                return Err(shape(t, vec![1, length]));
            }
            if matches!(feed, Feed::Ids | Feed::Positions) && !matches!(t.dtype, Dtype::I32 | Dtype::U32) {
                return Err(no_conversion(t));
            }
            inputs.push((feed, Buffer::zeroed(t.size_bytes())));
        }
        let has = |feed: fn(&Feed) -> bool| inputs.iter().any(|(f, _)| feed(f));
        if !has(|feed| matches!(feed, Feed::Mask(_))) {
            return Err(lacks(MASK, names(&info.inputs)));
        }
        if positions != PositionKind::None && !has(|feed| *feed == Feed::Positions) {
            return Err(EngineError::NoPositionInput { kind: positions, tensor: POSITIONS.into() });
        }
        let (mut outputs, mut width) = (Vec::new(), None);
        for t in &info.outputs {
            let n: usize = t.dims.iter().product();
            let last = t.dims.last().copied().unwrap_or(0);
            let (output, expected) = match t.name.as_str() {
                ROWS => (Some(Output::Rows(numbers(t)?)), vec![1, length, last]),
                POOLED => (Some(Output::Pooled(numbers(t)?)), vec![1, last]),
                _ => (None, t.dims.clone()),
            };
            if output.is_some() && (n != expected.iter().product::<usize>() || *width.get_or_insert(last) != last) {
                return Err(shape(t, expected));
            }
            outputs.push((output, Buffer::zeroed(t.size_bytes())));
        }
        let width = width.ok_or_else(|| lacks(POOLED, names(&info.outputs)))?;
        Ok(Self { graph, length, width, inputs, outputs })
    }

    fn fill(&mut self, tokens: &[TokenId], pad: TokenId) {
        let first = self.length - tokens.len();
        for (feed, buffer) in &mut self.inputs {
            let bytes = buffer.bytes_mut();
            match feed {
                Feed::Zeros => {}
                Feed::Ids => {
                    let ids = elements_mut::<u32>(bytes);
                    ids[..first].fill(pad.0);
                    ids[first..].iter_mut().zip(tokens).for_each(|(to, token)| *to = token.0);
                }
                Feed::Positions => {
                    let positions = elements_mut::<u32>(bytes);
                    positions[..first].fill(0);
                    positions[first..].iter_mut().zip(0..).for_each(|(to, position)| *to = position);
                }
                Feed::Mask(encoding) => {
                    let numbers = (0..self.length).map(|column| if column < first { HIDDEN } else { 0.0 });
                    encoding.encode(numbers, Rounding::Nearest, bytes);
                }
            }
        }
    }

    fn run(&mut self) -> Result<(), EngineError> {
        let name = self.graph.info().name.clone();
        let failed = |source: qnn_api::Error| EngineError::Execute { graph: name.clone(), source: Box::new(source) };
        let mut session = self.graph.session();
        for (index, (_, buffer)) in self.inputs.iter().enumerate() {
            session.input(index, buffer.bytes()).map_err(failed)?;
        }
        for (index, (_, buffer)) in self.outputs.iter_mut().enumerate() {
            session.output(index, buffer.bytes_mut()).map_err(failed)?;
        }
        session.run().map_err(failed)
    }

    /// The vectors of the last `n` columns, which are the text's, and of the whole.
    fn read(&self, n: usize) -> Encoded {
        let width = self.width;
        let mut encoded = Encoded { width, rows: Vec::new(), pooled: None };
        for (output, buffer) in &self.outputs {
            match output {
                Some(Output::Rows(encoding)) => {
                    let mut all = vec![0.0; self.length * width];
                    encoding.decode(buffer.bytes(), &mut all);
                    encoded.rows = all.split_off((self.length - n) * width);
                }
                Some(Output::Pooled(encoding)) => {
                    let mut one = vec![0.0; width];
                    encoding.decode(buffer.bytes(), &mut one);
                    encoded.pooled = Some(one);
                }
                None => {}
            }
        }
        encoded
    }
}
