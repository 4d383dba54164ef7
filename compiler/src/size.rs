//! Predicts the length of each context binary before anything is composed, and where to cut so that none is too long.
//!
//! *Units*: bytes. Weights dominate: a graph of an HTP binary has its own copy, unless they are shared. The rest (schedules,
//! tables) is estimated as [`OVERHEAD`] of the weights plus [`PER_LAYER`] per layer, above what libQnnHtp 2.51 needs (a Llama
//! of 20 million weights, two graphs: 80.8 MB for 81.0 MB of float16, 48.9 MB for 48.7 MB of w8).

use crate::family::ModelSpec;
use crate::lower::{self, Format, Split};
use crate::{CompileError, HtpOptions, Result, Splits};

/// On top of the weights, in percent.
const OVERHEAD: u64 = 3;
/// On top of that for each layer of each graph.
const PER_LAYER: u64 = 64 << 10;

/// A model about to be cut.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) spec: &'a ModelSpec,
    pub(crate) format: Format,
    /// Graphs in each file.
    pub(crate) n_graphs: usize,
    pub(crate) htp: &'a HtpOptions,
    /// Bytes of the adapters of one layer, at most.
    pub(crate) adapter_bytes: u64,
}

/// Where to cut: a layout and its layers in a split.
pub(crate) type Cuts = (Splits, Option<usize>);

impl Plan<'_> {
    /// The cuts asked for, or finer ones where those make a file too long and finer ones are allowed.
    ///
    /// # Errors
    /// A file that would be too long.
    pub(crate) fn fit(&self, asked: Cuts) -> Result<Cuts> {
        let Some((file, bytes)) = self.too_long(asked) else { return Ok(asked) };
        let finer = self.finer();
        if let Some(cuts) = finer.filter(|_| self.htp.cut_to_fit) {
            return Ok(cuts);
        }
        Err(CompileError::PlannedTooLong { file, bytes, limit: self.htp.file_limit, n_graphs: self.n_graphs, finer })
    }

    /// Refuses a file of graphs that cannot be cut.
    ///
    /// # Errors
    /// It would be too long.
    pub(crate) fn check_whole(&self, file: String) -> Result<()> {
        let (bytes, limit) = (self.bytes(&Split::whole(self.spec)), self.htp.file_limit);
        if bytes <= limit {
            return Ok(());
        }
        Err(CompileError::PlannedTooLong { file, bytes, limit, n_graphs: self.n_graphs, finer: None })
    }

    /// The first file that is too long, and its length.
    fn too_long(&self, (layout, layers): Cuts) -> Option<(String, u64)> {
        let splits = lower::cut(self.spec, layout, layers);
        let names = lower::file_names(&splits, false);
        names.into_iter().zip(splits.iter().map(|split| self.bytes(split))).find(|(_, n)| *n > self.htp.file_limit)
    }

    /// The fewest splits of which none is too long.
    fn finer(&self) -> Option<Cuts> {
        let n = self.spec.n_layers;
        let layers = || [None].into_iter().chain((1..n).rev().map(Some));
        let with = |splits| layers().map(move |layers| (splits, layers));
        let all =
            [(Splits::Mono, None)].into_iter().chain(with(Splits::DecoderLmhead)).chain(with(Splits::LutDecoderLmhead));
        let fitting = all.filter(|&cuts| self.too_long(cuts).is_none());
        fitting.min_by_key(|&(splits, layers)| lower::cut(self.spec, splits, layers).len())
    }

    fn bytes(&self, split: &Split) -> u64 {
        let adapters = self.adapter_bytes * split.layers.len() as u64;
        let weights = lower::weight_bytes(self.spec, split, self.format) + adapters;
        let (n_graphs, n_layers) = (self.n_graphs as u64, split.layers.len() as u64 + 1);
        let copies = if self.htp.share_weights { 1 } else { n_graphs };
        (weights * copies).saturating_mul(100 + OVERHEAD) / 100 + n_graphs * n_layers * PER_LAYER
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use crate::lower::LinearForm;
    use crate::testmodel::TestModel;
    use crate::{Hint, Precision, Weights};

    /// Shaped like Llama 3.2 1B.
    fn billion() -> ModelSpec {
        let model = TestModel {
            layers: 16,
            hidden: 2048,
            heads: 32,
            kv_heads: 8,
            head_dim: 64,
            ffn: 8192,
            vocab: 128_256,
            ..TestModel::tiny(Family::Llama)
        };
        model.spec()
    }

    fn fit(change: impl FnOnce(&mut HtpOptions), weights: Weights, n_graphs: usize, asked: Cuts) -> Result<Cuts> {
        let mut htp = HtpOptions::for_target("sm8650").unwrap();
        change(&mut htp);
        let format = Format { form: LinearForm::Conv2d, ..Format::rounded(Precision::F16, weights) };
        Plan { spec: &billion(), format, n_graphs, htp: &htp, adapter_bytes: 0 }.fit(asked)
    }

    #[test]
    fn a_file_that_cannot_be_cut_is_refused_if_it_is_too_long() {
        let htp = HtpOptions::for_target("sm8650").unwrap();
        let format = Format { form: LinearForm::Conv2d, ..Format::rounded(Precision::F16, Weights::Float) };
        let billion = billion();
        let plan = |n_graphs| Plan { spec: &billion, format, n_graphs, htp: &htp, adapter_bytes: 0 };
        let error = plan(1).check_whole("pd.bin".into()).unwrap_err();
        assert!(error.to_string().starts_with("`pd.bin` needs about "), "{error}");
        assert_eq!(error.hint(), Some(Hint::SmallerBundle));
        let tiny = TestModel::tiny(Family::Llama).spec();
        Plan { spec: &tiny, ..plan(2) }.check_whole("pd.bin".into()).unwrap();
    }

    #[test]
    fn cuts_are_as_few_as_the_limit_allows() {
        use Splits::{DecoderLmhead, LutDecoderLmhead, Mono};
        let auto = |htp: &mut HtpOptions| htp.cut_to_fit = true;
        struct Case {
            weights: Weights,
            n_graphs: usize,
            share: bool,
            limit: u64,
            cuts: Cuts,
        }
        let gib = 1 << 30;
        let cases = [
            // 2.3 GiB of weights in all, half a GiB of them the embedding.
            Case { weights: Weights::Float, n_graphs: 1, share: false, limit: 3 * gib, cuts: (Mono, None) },
            Case { weights: Weights::Float, n_graphs: 4, share: true, limit: 3 * gib, cuts: (Mono, None) },
            Case {
                weights: Weights::Float,
                n_graphs: 1,
                share: false,
                limit: 2 * gib,
                cuts: (DecoderLmhead, Some(12)),
            },
            Case { weights: Weights::W8, n_graphs: 1, share: false, limit: 2 * gib, cuts: (Mono, None) },
            Case {
                weights: Weights::Float,
                n_graphs: 3,
                share: false,
                limit: 2 * gib,
                cuts: (LutDecoderLmhead, Some(5)),
            },
        ];
        for case in cases {
            let change = |htp: &mut HtpOptions| {
                auto(htp);
                (htp.share_weights, htp.file_limit) = (case.share, case.limit);
            };
            let found = fit(change, case.weights, case.n_graphs, (Mono, None)).map_err(|e| e.to_string());
            assert_eq!(found, Ok(case.cuts), "{:?} x {}, limit {}", case.weights, case.n_graphs, case.limit);
        }
    }

    #[test]
    fn files_that_would_be_too_long_are_named_with_a_way_out() {
        let error = fit(|_| {}, Weights::Float, 3, (Splits::Mono, None)).unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with("`model.bin` needs about 9."), "{message}");
        assert!(message.ends_with(" GB for its 3 graphs, the limit of a context binary is 2.1 GB"), "{message}");
        let finer = Hint::FinerSplits { splits: Splits::LutDecoderLmhead, layers_per_split: Some(5) };
        assert_eq!(error.hint(), Some(finer));

        let error = fit(|htp| htp.file_limit = 1 << 20, Weights::Float, 4, (Splits::Mono, None)).unwrap_err();
        assert_eq!(error.hint(), Some(Hint::SmallerBundle));
        let error = fit(|htp| htp.cut_to_fit = true, Weights::Float, 9, (Splits::Mono, None)).unwrap_err();
        assert_eq!(error.hint(), Some(Hint::SmallerBundle));
    }
}
