//! The work per token: bytes of weights that a decode step reads, weights that a prompt token is multiplied with.
//!
//! Known for binaries of the embedded backend only; the format of others is not public.

use std::path::PathBuf;

use anyhow::{Context, Result};
use open_genie::{Model, Opened};
use qnn_host::weight_traffic::Traffic;

/// The work per token; `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightTraffic {
    /// Bytes of weights that a step of the smallest variant reads.
    pub step_bytes: Option<u64>,
    /// Weights that each prompt token is multiplied with, without those of the logits: only the last token needs them.
    pub prompt_weights: Option<u64>,
}

impl WeightTraffic {
    /// Reads the header of each binary.
    pub fn of(model: &Opened) -> Result<Self> {
        match model {
            Opened::Plain(model) => Self::of_plain(model),
            Opened::Fused(model) => {
                let (layout, ctx_bins) = (model.runner().layout(), &model.bundle().config().engine().ctx_bins);
                let graphs = vec![(layout.single.binary, layout.single.info.name.as_str())];
                Self::of_graphs(ctx_bins, graphs, layout.vocab_size)
            }
        }
    }

    /// The same of plain graphs.
    pub fn of_plain(model: &Model) -> Result<Self> {
        let (layout, ctx_bins) = (model.engine().layout(), &model.bundle().config().engine().ctx_bins);
        // Sorted by CL, then AR: the first one is the smallest.
        let smallest = layout.splits.iter().map(|split| split.graph(0));
        let graphs = smallest.map(|graph| (graph.binary, graph.info.name.as_str())).collect();
        Self::of_graphs(ctx_bins, graphs, layout.vocab_size)
    }

    fn of_graphs(ctx_bins: &[PathBuf], graphs: Vec<(usize, &str)>, vocab_size: usize) -> Result<Self> {
        let mut files = Vec::with_capacity(ctx_bins.len());
        for path in ctx_bins {
            let traffic = Traffic::of_file(path).with_context(|| format!("cannot read `{}`", path.display()))?;
            let Some(traffic) = traffic else { return Ok(Self::default()) };
            files.push(traffic);
        }
        let mut reads = Vec::new();
        for (binary, name) in graphs {
            reads.extend(files[binary].graph(name).unwrap_or_default());
        }
        let products = || reads.iter().filter(|read| read.products > 0);
        let head = products().next_back().filter(|read| read.width == vocab_size as u64);
        let all: u64 = products().map(|read| read.products).sum();
        Ok(Self {
            step_bytes: Some(reads.iter().map(|read| read.bytes).sum()),
            prompt_weights: Some(all - head.map_or(0, |head| head.products)),
        })
    }
}
