//! Where the model is cut: each split is a run of embedding, layers and head, and becomes one context binary.

use crate::Splits;
use crate::family::ModelSpec;
use core::ops::Range;

/// Kind of a split; its file is named by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitKind {
    /// The whole model.
    Model,
    /// The embedding alone.
    Lut,
    /// Layers, with the embedding before the first if it has no split of its own.
    Decoder,
    /// Final norm and LM head.
    Lmhead,
}

/// One split. It starts with the embedding when `input` is `None`, and ends with logits when `has_head`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) kind: SplitKind,
    /// The tensor it takes from the previous split; `None` for token ids.
    pub(crate) input: Option<String>,
    /// Its layers, counted over the whole model.
    pub(crate) layers: Range<usize>,
    pub(crate) has_head: bool,
    /// The tensor it passes to the next split; `None` where it ends with logits.
    pub(crate) output: Option<String>,
}

const EMBEDDING_OUT: &str = "model_embed_tokens_out";

impl Split {
    /// The model in one split.
    pub(crate) fn whole(spec: &ModelSpec) -> Self {
        Self { kind: SplitKind::Model, input: None, layers: 0..spec.n_layers, has_head: true, output: None }
    }

    pub(crate) fn ends_with_embedding(&self) -> bool {
        self.layers.is_empty() && !self.has_head
    }
}

/// The splits in execution order.
pub(crate) fn cut(spec: &ModelSpec, layout: Splits, layers_per_split: Option<usize>) -> Vec<Split> {
    if layout == Splits::Mono {
        return vec![Split::whole(spec)];
    }
    let mut splits = Vec::new();
    let mut wire = None;
    let mut push = |kind, layers: Range<usize>, output: Option<String>| {
        let input = core::mem::replace(&mut wire, output.clone());
        splits.push(Split { kind, input, layers, has_head: output.is_none(), output });
    };
    if layout == Splits::LutDecoderLmhead {
        push(SplitKind::Lut, 0..0, Some(EMBEDDING_OUT.into()));
    }
    let step = layers_per_split.unwrap_or(spec.n_layers);
    for first in (0..spec.n_layers).step_by(step) {
        let end = (first + step).min(spec.n_layers);
        push(SplitKind::Decoder, first..end, Some(format!("model_layers_{}_out", end - 1)));
    }
    push(SplitKind::Lmhead, spec.n_layers..spec.n_layers, None);
    splits
}

/// The context binary of a model that lies in one.
const MODEL_FILE: &str = "model.bin";

/// File names of the splits' context binaries, in the same order: `model.bin`, or `lut.bin`, `decoder.bin` (numbered
/// from 1 when there are several) and `lmhead.bin`; `model.bin` for all of them if they share `one_file`.
pub(crate) fn file_names(splits: &[Split], one_file: bool) -> Vec<String> {
    let n_decoders = splits.iter().filter(|s| s.kind == SplitKind::Decoder).count();
    let mut decoder = 0;
    let name = |split: &Split| match split.kind {
        _ if one_file => MODEL_FILE.into(),
        SplitKind::Model => MODEL_FILE.into(),
        SplitKind::Lut => "lut.bin".into(),
        SplitKind::Lmhead => "lmhead.bin".into(),
        SplitKind::Decoder if n_decoders == 1 => "decoder.bin".into(),
        SplitKind::Decoder => {
            decoder += 1;
            format!("decoder_{decoder}.bin")
        }
    };
    splits.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use crate::testmodel::TestModel;

    #[test]
    fn splits_cover_the_layers_and_connect_by_name() {
        for n_layers in 1..9 {
            let spec = TestModel { layers: n_layers, ..TestModel::tiny(Family::Llama) }.spec();
            for layout in [Splits::DecoderLmhead, Splits::LutDecoderLmhead] {
                for step in (1..=n_layers + 1).map(Some).chain([None]) {
                    let splits = cut(&spec, layout, step);
                    let layers: Vec<usize> = splits.iter().flat_map(|s| s.layers.clone()).collect();
                    assert_eq!(layers, (0..n_layers).collect::<Vec<_>>());
                    assert!(splits.windows(2).all(|w| w[0].output.is_some() && w[0].output == w[1].input));
                    let (first, last) = (&splits[0], &splits[splits.len() - 1]);
                    assert_eq!((first.input.as_ref(), last.output.as_ref(), last.has_head), (None, None, true));
                    assert_eq!(splits.iter().filter(|s| s.has_head).count(), 1);
                    assert_eq!(first.ends_with_embedding(), layout == Splits::LutDecoderLmhead);
                }
            }
        }
    }
}
