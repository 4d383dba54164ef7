//! Bundles that our compiler makes for a Hexagon chip, as named cases: families, splits, weights, shapes.
//!
//! Every value of every property meets every value of every other one in some case (pairwise; a test here checks it), so
//! nine bundles stand for the thirty-six combinations. Whoever runs bundles (our engine, libGenie) takes the same
//! ones from here.

use std::path::Path;
use std::sync::Arc;

use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family, HtpOptions, Silent, Splits, Weights, compile};
use genie_types::TokenId;
use qnn_api::Backend;

/// The chip that all cases are compiled for: V75, whose graphs the emulator runs.
pub const TARGET: &str = "sm8650";
/// Context lengths of every case; prompt and answer outgrow the first.
pub const CLS: [u32; 2] = [128, 256];
/// Tokens to generate.
pub const N_TOKENS: usize = 100;
/// Tokens of the prompt, BOS not among them.
const N_PROMPT: u32 = 41;

/// One bundle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// Its name: also that of a folder.
    pub name: &'static str,
    /// Architecture of the random model.
    pub family: Family,
    /// Where it is cut.
    pub splits: Splits,
    /// How its linear weights are stored.
    pub weights: Weights,
    /// Input widths.
    pub ars: &'static [u32],
    /// Of the random weights: one with which no answer has an EOS, and the least margin is large.
    pub seed: u64,
}

const TWO: &[u32] = &[1, 32];
const THREE: &[u32] = &[1, 8, 32];

/// All cases, the plainest first.
pub const CASES: [Case; 9] = {
    use Family::{Llama, Qwen2, Qwen3};
    use Splits::{DecoderLmhead, LutDecoderLmhead, Mono};
    use Weights::{Float, W8};
    [
        case("llama_mono_f16", Llama, Mono, Float, TWO, 125),
        case("llama_split2_w8", Llama, DecoderLmhead, W8, THREE, 125),
        case("llama_split3_f16", Llama, LutDecoderLmhead, Float, THREE, 125),
        case("qwen2_mono_w8", Qwen2, Mono, W8, THREE, 43),
        case("qwen2_split2_f16", Qwen2, DecoderLmhead, Float, TWO, 112),
        case("qwen2_split3_w8", Qwen2, LutDecoderLmhead, W8, TWO, 98),
        case("qwen3_mono_f16", Qwen3, Mono, Float, THREE, 69),
        case("qwen3_split2_w8", Qwen3, DecoderLmhead, W8, TWO, 139),
        case("qwen3_split3_f16", Qwen3, LutDecoderLmhead, Float, THREE, 67),
    ]
};

const fn case(
    name: &'static str,
    family: Family,
    splits: Splits,
    weights: Weights,
    ars: &'static [u32],
    seed: u64,
) -> Case {
    Case { name, family, splits, weights, ars, seed }
}

impl Case {
    /// The random model: small. Two of them use the embedding as LM head, in one file and in two.
    pub fn model(&self) -> TestModel {
        let tied = matches!(self.name, "qwen2_mono_w8" | "qwen3_split3_f16");
        TestModel { tied, seed: self.seed, ..TestModel::tiny(self.family) }
    }

    /// Writes the checkpoint to `folder/model` and compiles it into `folder/bundle`, for the chip when `htp` is given.
    ///
    /// The backend must fit: [`crate::backends::htp`] with [`HtpOptions::backend_options`], or any host without `htp`.
    ///
    /// # Panics
    /// Either fails.
    pub fn make(&self, folder: &Path, backend: &Arc<Backend>, htp: Option<HtpOptions>) {
        let model = folder.join("model");
        self.model().write(&model).expect("the random checkpoint is written");
        let options = CompileOptions {
            ars: self.ars.to_vec(),
            cls: CLS.to_vec(),
            splits: self.splits,
            weights: Some(self.weights),
            htp,
            ..CompileOptions::new(model, folder.join("bundle"))
        };
        compile(&options, backend, &mut Silent)
            .unwrap_or_else(|error| panic!("case `{}` does not compile: {error}", self.name));
    }

    /// [`Self::make`] with Qualcomm's own library, for [`TARGET`].
    ///
    /// # Panics
    /// The library is not there, or anything fails.
    pub fn make_htp(&self, folder: &Path) {
        let htp = HtpOptions::for_target(TARGET).expect("the target is known");
        self.make(folder, &crate::backends::htp(&htp.backend_options()), Some(htp));
    }

    /// The prompt as a dialog feeds it: with BOS before it where the model has one.
    pub fn input(&self) -> Vec<TokenId> {
        self.model().spec().tokens.bos.into_iter().chain(self.prompt()).collect()
    }

    /// What every case is asked; the answer is [`N_TOKENS`] greedy tokens.
    pub fn prompt(&self) -> Vec<TokenId> {
        (0..N_PROMPT).map(|i| TokenId((i * 37 + 11) % 250)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_pair_of_values_is_in_some_case() {
        let values = |case: &Case| {
            [
                format!("{:?}", case.family),
                format!("{:?}", case.splits),
                format!("{:?}", case.weights),
                format!("{:?}", case.ars),
            ]
        };
        for a in 0..4 {
            for b in a + 1..4 {
                let of = |i: usize| CASES.iter().map(|c| values(c)[i].clone()).collect::<HashSet<_>>().len();
                let pairs: HashSet<_> = CASES.iter().map(|c| (values(c)[a].clone(), values(c)[b].clone())).collect();
                assert_eq!(pairs.len(), of(a) * of(b), "properties {a} and {b}: {pairs:?}");
            }
        }
        let names: HashSet<_> = CASES.iter().map(|c| c.name).collect();
        assert_eq!(names.len(), CASES.len());
    }
}
