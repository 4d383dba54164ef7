//! BPE over the text itself, the kind `gemma4`: SentencePiece's pieces, with the merges in the file.

use serde_json::{Value, json};

use super::{Gguf, Vocabulary};
use crate::Result;

impl Gguf {
    pub(super) fn raw_merges(&self, vocabulary: &Vocabulary<'_>) -> Result<Value> {
        let unknown = self.unknown_piece(vocabulary)?;
        let space = |pattern: &str, content: &str| json!({"type": "Replace", "pattern": {"String": pattern}, "content": content});
        Ok(json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": space(" ", "▁"),
            // Merges never reach over the end of a line.
            "pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"[^\n]+|\n+"}, "behavior": "Isolated", "invert": false},
            "post_processor": null,
            "decoder": {"type": "Sequence", "decoders": [space("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}]},
            "model": {"type": "BPE", "dropout": null, "unk_token": unknown,
                      "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true,
                      "byte_fallback": true, "ignore_merges": true, "vocab": vocabulary.to_json(),
                      "merges": self.merges(vocabulary)?},
        }))
    }
}
