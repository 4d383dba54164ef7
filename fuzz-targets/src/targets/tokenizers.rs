//! `tokenizer.json`.

use genie_tokenizer::Tokenizer;
use genie_types::TokenId;

use super::places::check_message;

/// Loaded, and a few texts there and back.
pub(super) fn tokenizer(bytes: &[u8]) {
    let tokenizer = match Tokenizer::from_bytes(bytes) {
        Ok(tokenizer) => tokenizer,
        Err(error) => return check_message(&error),
    };
    for text in ["", "to be or not to be", "  zwei\n\n\u{1f600}e\u{301} \0\u{fffd}<|end|>", &"a".repeat(300)] {
        match tokenizer.encode(text) {
            Ok(ids) => {
                if let Err(error) = tokenizer.decode(&ids) {
                    check_message(&error);
                }
            }
            Err(error) => check_message(&error),
        }
    }
    let ids: Vec<TokenId> = [0, 1, 2, 77, 1 << 20, u32::MAX].map(TokenId).to_vec();
    if let Err(error) = tokenizer.decode(&ids) {
        check_message(&error);
    }
}
