//! Where the model is cut: each piece is a run of embedding, layers and head, and becomes one context binary.

use crate::Splits;
use crate::family::ModelSpec;
use core::ops::Range;

/// What a piece is called in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceKind {
    /// The whole model.
    Model,
    /// The embedding alone.
    Lut,
    /// Layers, with the embedding before the first if it has no piece of its own.
    Decoder,
    /// Final norm and LM head.
    Lmhead,
}

/// One piece. It starts with the embedding when `input` is `None`, and ends with logits when `has_head`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) kind: PieceKind,
    /// The tensor it takes from the piece before; `None` for token ids.
    pub(crate) input: Option<String>,
    /// Its layers, counted over the whole model.
    pub(crate) layers: Range<usize>,
    pub(crate) has_head: bool,
    /// The tensor it gives to the next piece; `None` where it gives logits.
    pub(crate) output: Option<String>,
}

const EMBEDDING_OUT: &str = "model_embed_tokens_out";

impl Piece {
    /// The model in one piece.
    pub(crate) fn whole(spec: &ModelSpec) -> Self {
        Self { kind: PieceKind::Model, input: None, layers: 0..spec.n_layers, has_head: true, output: None }
    }

    pub(crate) fn ends_with_embedding(&self) -> bool {
        self.layers.is_empty() && !self.has_head
    }
}

/// The pieces in execution order.
pub(crate) fn cut(spec: &ModelSpec, splits: Splits, layers_per_split: Option<usize>) -> Vec<Piece> {
    if splits == Splits::Mono {
        return vec![Piece::whole(spec)];
    }
    let mut pieces = Vec::new();
    let mut wire = None;
    let mut push = |kind, layers: Range<usize>, output: Option<String>| {
        let input = core::mem::replace(&mut wire, output.clone());
        pieces.push(Piece { kind, input, layers, has_head: output.is_none(), output });
    };
    if splits == Splits::LutDecoderLmhead {
        push(PieceKind::Lut, 0..0, Some(EMBEDDING_OUT.into()));
    }
    let step = layers_per_split.unwrap_or(spec.n_layers);
    for first in (0..spec.n_layers).step_by(step) {
        let end = (first + step).min(spec.n_layers);
        push(PieceKind::Decoder, first..end, Some(format!("model_layers_{}_out", end - 1)));
    }
    push(PieceKind::Lmhead, spec.n_layers..spec.n_layers, None);
    pieces
}

/// The context binary of a model that lies in one.
const MODEL_FILE: &str = "model.bin";

/// File names of the pieces' context binaries, in the same order: `model.bin`, or `lut.bin`, `decoder.bin` (numbered
/// from 1 when there are several) and `lmhead.bin`; `model.bin` for all of them if they share `one_file`.
pub(crate) fn file_names(pieces: &[Piece], one_file: bool) -> Vec<String> {
    let n_decoders = pieces.iter().filter(|p| p.kind == PieceKind::Decoder).count();
    let mut decoder = 0;
    let name = |piece: &Piece| match piece.kind {
        _ if one_file => MODEL_FILE.into(),
        PieceKind::Model => MODEL_FILE.into(),
        PieceKind::Lut => "lut.bin".into(),
        PieceKind::Lmhead => "lmhead.bin".into(),
        PieceKind::Decoder if n_decoders == 1 => "decoder.bin".into(),
        PieceKind::Decoder => {
            decoder += 1;
            format!("decoder_{decoder}.bin")
        }
    };
    pieces.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use crate::testmodel::TestModel;

    #[test]
    fn pieces_cover_the_layers_and_hand_on_by_name() {
        for n_layers in 1..9 {
            let spec = TestModel { layers: n_layers, ..TestModel::tiny(Family::Llama) }.spec();
            for splits in [Splits::DecoderLmhead, Splits::LutDecoderLmhead] {
                for step in (1..=n_layers + 1).map(Some).chain([None]) {
                    let pieces = cut(&spec, splits, step);
                    let layers: Vec<usize> = pieces.iter().flat_map(|p| p.layers.clone()).collect();
                    assert_eq!(layers, (0..n_layers).collect::<Vec<_>>());
                    assert!(pieces.windows(2).all(|w| w[0].output.is_some() && w[0].output == w[1].input));
                    let (first, last) = (&pieces[0], &pieces[pieces.len() - 1]);
                    assert_eq!((first.input.as_ref(), last.output.as_ref(), last.has_head), (None, None, true));
                    assert_eq!(pieces.iter().filter(|p| p.has_head).count(), 1);
                    assert_eq!(first.ends_with_embedding(), splits == Splits::LutDecoderLmhead);
                }
            }
        }
    }
}
