//! The text as tokens, and the tokenizer that makes them.

use std::path::Path;
use std::str::FromStr;

use serde_json::{Value, json};
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::BpeTrainer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer};

use crate::error::{Result, TrainError};
use crate::options::Vocabulary;

/// Begins and ends every text.
pub(crate) const END: &str = "<|endoftext|>";
/// Its id.
pub(crate) const END_ID: u32 = 0;

/// A text in tokens.
pub(crate) struct Text {
    pub(crate) ids: Vec<u32>,
    pub(crate) n_vocab: usize,
    /// `tokenizer.json`.
    pub(crate) tokenizer: String,
}

/// Learns the vocabulary of a text and encodes it.
pub(crate) fn encode(path: &Path, text: &str, vocabulary: Vocabulary) -> Result<Text> {
    let failed = |e: tokenizers::Error| TrainError::Tokenizer(e.to_string());
    let mut tokenizer = Tokenizer::from_str(&empty().to_string()).map_err(failed)?;
    // All bytes, so that any text can be encoded.
    let trainer = BpeTrainer::builder()
        .show_progress(false)
        .special_tokens(vec![AddedToken::from(END, true)])
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .min_frequency(2)
        .vocab_size(match vocabulary {
            Vocabulary::Characters => 0,
            Vocabulary::Bpe(n) => n,
        });
    let mut trainer = TrainerWrapper::from(trainer.build());
    tokenizer.train(&mut trainer, std::iter::once(text)).map_err(failed)?;
    let n_vocab = tokenizer.get_vocab_size(true);
    if let Vocabulary::Bpe(wanted) = vocabulary
        && n_vocab != wanted
    {
        return Err(TrainError::Vocabulary { text: path.to_owned(), wanted, found: n_vocab });
    }
    let encoded = tokenizer.encode(text, false).map_err(failed)?;
    let mut ids = vec![END_ID];
    ids.extend(encoded.get_ids());
    ids.push(END_ID);
    let tokenizer = tokenizer.to_string(true).map_err(failed)?;
    Ok(Text { ids, n_vocab, tokenizer })
}

/// A byte-level tokenizer without tokens.
fn empty() -> Value {
    let bytes = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": bytes, "post_processor": null, "decoder": bytes,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": {}, "merges": [],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &str, vocabulary: Vocabulary) -> Result<Text> {
        encode(Path::new("t.txt"), text, vocabulary)
    }

    #[test]
    fn characters_are_tokens_and_come_back() {
        let text = "abba cab\n";
        let characters = encoded(text, Vocabulary::Characters).unwrap();
        assert_eq!((characters.n_vocab, characters.ids.len()), (257, text.len() + 2), "bytes, and the end");
        assert_eq!(characters.ids.first(), Some(&END_ID));
        let tokenizer = Tokenizer::from_str(&characters.tokenizer).unwrap();
        assert_eq!(tokenizer.decode(&characters.ids[1..], true).unwrap(), text);
        let odd = tokenizer.encode("日", false).unwrap();
        assert_eq!((odd.len(), tokenizer.decode(odd.get_ids(), true).unwrap()), (3, "日".to_owned()));
        assert_eq!(encoded(text, Vocabulary::Characters).unwrap().tokenizer, characters.tokenizer);
    }

    #[test]
    fn bpe_has_as_many_tokens_as_asked_for_or_says_how_many_there_are() {
        let text = "the cat and the hat and the bat ".repeat(4);
        let learned = encoded(&text, Vocabulary::Bpe(262)).unwrap();
        assert_eq!(learned.n_vocab, 262);
        assert!(learned.ids.len() < text.len(), "pairs are joined");
        let tokenizer = Tokenizer::from_str(&learned.tokenizer).unwrap();
        assert_eq!(tokenizer.decode(&learned.ids, true).unwrap(), text);
        let error = encoded(&text, Vocabulary::Bpe(5000)).err().unwrap().to_string();
        assert!(error.starts_with("a vocabulary of 5000 tokens: `t.txt` gives "), "{error}");
    }
}
