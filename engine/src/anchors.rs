//! Running anchors of the layers' keys, which some graphs keep for a network that scores keys: what comes out of a step is the
//! next step's input.
//!
//! *Invariant*: only steps that were kept change them, and a scoring sees them as they were before the step under way.
//! *Units*: real numbers, `[heads, head_dim]` by layer; zeros at the beginning. *Trap*: a step of which some columns are
//! dropped counts with all of them, since the graph has added them up.
//! *Source*: libGenie 1.21, each graph execution recorded (`docs/long-context.md`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use genie_types::LayerIdx;
use nsp_graph::{InputRole, ModelLayout, OutputRole};

use crate::EngineError;
use crate::io::{BufferRole, IoBuffers};
use crate::quant::{QuantParams, Rounding};

/// The anchor of a layer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Anchor {
    pub(crate) layer: LayerIdx,
    pub(crate) numbers: Vec<f32>,
}

/// The anchors of all layers, which the engine and the scorer share.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedAnchors(Arc<Mutex<Vec<Anchor>>>);

impl SharedAnchors {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Anchor>> {
        // Numbers are whole at any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the graphs take and give them.
#[derive(Debug)]
pub(crate) struct AnchorBuffers {
    shared: SharedAnchors,
    /// Buffer and place among the anchors.
    inputs: Vec<(usize, usize, QuantParams)>,
    outputs: Vec<(usize, usize, QuantParams)>,
}

impl AnchorBuffers {
    /// Anchors of the layers that graphs have inputs for.
    pub(crate) fn new(layout: &ModelLayout, io: &IoBuffers) -> Result<Self, EngineError> {
        let mut anchors: Vec<Anchor> = Vec::new();
        for graph in layout.splits.iter().flat_map(|split| &split.graphs) {
            let inputs = graph.inputs.iter().zip(&graph.info.inputs).filter_map(|(role, info)| match role {
                InputRole::Anchor(layer) => Some((*layer, info)),
                _ => None,
            });
            let outputs = graph.outputs.iter().zip(&graph.info.outputs).filter_map(|(role, info)| match role {
                OutputRole::Anchor(layer) => Some((*layer, info)),
                _ => None,
            });
            for (layer, info) in inputs.chain(outputs) {
                match anchors.iter().find(|anchor| anchor.layer == layer) {
                    None => anchors.push(Anchor { layer, numbers: vec![0.0; info.n_elems()] }),
                    Some(known) if known.numbers.len() == info.n_elems() => {}
                    Some(known) => {
                        let expected = format!("{} numbers, as in other graphs", known.numbers.len());
                        let (graph, tensor) = (graph.info.name.clone(), info.name.clone());
                        return Err(EngineError::ScorerTensor {
                            graph,
                            tensor,
                            expected,
                            found: format!("{:?}", info.dims),
                        });
                    }
                }
            }
        }
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for (buffer, role) in io.roles().iter().enumerate() {
            let (list, layer, dtype, quant) = match role {
                BufferRole::Input(InputRole::Anchor(layer), dtype, quant) => (&mut inputs, layer, dtype, quant),
                BufferRole::AnchorOut(layer, dtype, quant) => (&mut outputs, layer, dtype, quant),
                _ => continue,
            };
            let place = anchors.iter().position(|anchor| anchor.layer == *layer);
            if let (Some(place), Some(encoding)) = (place, QuantParams::of(*dtype, quant)) {
                list.push((buffer, place, encoding));
            }
        }
        Ok(Self { shared: SharedAnchors(Arc::new(Mutex::new(anchors))), inputs, outputs })
    }

    pub(crate) fn shared(&self) -> SharedAnchors {
        self.shared.clone()
    }

    /// Writes the inputs of a step.
    pub(crate) fn fill(&self, io: &mut IoBuffers) {
        let anchors = self.shared.lock();
        for &(buffer, place, encoding) in &self.inputs {
            let numbers = anchors[place].numbers.iter().map(|&x| f64::from(x));
            encoding.encode(numbers, Rounding::Nearest, io.buffers[buffer].bytes_mut());
        }
    }

    /// Takes up what the graphs of a variant have given in a step that was kept.
    pub(crate) fn take(&self, layout: &ModelLayout, io: &IoBuffers, variant: usize) {
        let mut anchors = self.shared.lock();
        for &(buffer, place, encoding) in &self.outputs {
            let gives = |(s, split): (usize, &nsp_graph::Split)| io.is_bound(s, split.by_variant[variant], buffer);
            if layout.splits.iter().enumerate().any(gives) {
                encoding.decode(io.buffers[buffer].bytes(), &mut anchors[place].numbers);
            }
        }
    }
}
