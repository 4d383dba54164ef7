//! SentencePiece BPE, the kind `llama`: its merges are made from the pieces' scores.

use super::super::value::shown;
use super::{Gguf, Vocabulary, key, kind};
use crate::Result;
use serde_json::{Value, json};

/// Bytes of the longest piece that is made by merging. The work grows with the square of a piece; published models stay below 100.
const LONGEST_PIECE: usize = 512;

impl Gguf {
    pub(super) fn sentence_piece(&self, vocabulary: &Vocabulary<'_>) -> Result<Value> {
        let tokens = &vocabulary.tokens;
        let scores = self.meta.required(&key("scores"), self.meta.numbers(&key("scores"))?)?;
        if scores.len() != tokens.len() {
            return Err(self.meta.refused(&key("scores"), format!("one for each of the {} tokens", tokens.len())));
        }
        let scores: Vec<f64> = scores.floats().into_iter().flatten().collect();
        if let Some(id) = scores.iter().position(|score| score.is_nan()) {
            return Err(self.bad_tokenizer(format!("the score of token {id} is NaN")));
        }
        let is_long = |id: usize| tokens[id].len() > LONGEST_PIECE;
        // Entries of other types are found whole, without merging.
        if let Some(id) = (0..tokens.len()).find(|&id| is_long(id) && vocabulary.kind(id) == kind::NORMAL) {
            let (length, begin) = (tokens[id].len(), shown(&tokens[id]));
            let detail = format!("token {id}, `{begin}`, has {length} bytes, expected at most {LONGEST_PIECE}");
            return Err(self.bad_tokenizer(detail));
        }
        let unknown = self.unknown_piece(vocabulary)?;
        let prefix = self.meta.bool(&key("add_space_prefix"))?.unwrap_or(true);
        let mut normalizers = vec![json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})];
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if prefix {
            normalizers.insert(0, json!({"type": "Prepend", "prepend": "▁"}));
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        Ok(json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": {"type": "Sequence", "normalizers": normalizers},
            "pre_tokenizer": null,
            "post_processor": null,
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": {"type": "BPE", "dropout": null, "unk_token": unknown,
                      "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true,
                      "byte_fallback": true, "ignore_merges": false, "vocab": vocabulary.to_json(),
                      "merges": merges_of(vocabulary, &scores)},
        }))
    }
}

/// Pairs of pieces that make a piece, best score first; of one piece's pairs the one with the earlier parts first.
fn merges_of<'v>(vocabulary: &'v Vocabulary<'_>, scores: &[f64]) -> Vec<(&'v str, &'v str)> {
    let ids = &vocabulary.ids;
    let mut found = Vec::new();
    for (token, &score) in vocabulary.tokens.iter().zip(scores).filter(|(token, _)| token.len() <= LONGEST_PIECE) {
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if let (Some(&l), Some(&r)) = (ids.get(left), ids.get(right)) {
                found.push((score, l, r, left, right));
            }
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    found.into_iter().map(|(_, _, _, left, right)| (left, right)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_follow_the_scores() {
        let tokens = ["a", "b", "c", "ab", "abc", "bc"];
        let ids = tokens.iter().enumerate().map(|(id, token)| (*token, id)).collect();
        let vocabulary = Vocabulary { tokens: tokens.map(Into::into).into(), ids, kinds: None };
        let scores = [0.0, 0.0, 0.0, -1.0, -3.0, -2.0];
        assert_eq!(merges_of(&vocabulary, &scores), [("a", "b"), ("b", "c"), ("a", "bc"), ("ab", "c")]);
    }
}
