//! Added tokens: texts that are one token wherever they stand.
//!
//! The library gives them ids of its own, the next free ones, and does not look at those in the file. A file whose ids are
//! others would be used with the wrong ones, so it is refused.

use tokenizers::{AddedToken, NormalizedString, Normalizer, Tokenizer};

use crate::document::{AddedEntry, cut};
use crate::error::Fault;
use crate::limits;
use crate::quiet::quietly;

/// Adds the tokens; every one has its id afterwards.
pub(crate) fn add(hf: &mut Tokenizer, entries: &[AddedEntry]) -> Result<(), Fault> {
    let mut total = 0;
    for (place, entry) in entries.iter().enumerate() {
        let at = || format!("/added_tokens/{place}");
        total += entry.content.len();
        if entry.content.len() > limits::ADDED || total > limits::ADDED_TOTAL {
            let expected = format!("at most {}, and {} for all of them", limits::ADDED, limits::ADDED_TOTAL);
            return Err(Fault::value(at(), format!("a text of {} bytes", entry.content.len()), expected));
        }
        if entry.normalized && !entry.content.is_empty() {
            check_normalized(hf, entry, &at())?;
        }
    }
    let tokens: Vec<AddedToken> = entries.iter().map(token).collect();
    let add = quietly(|| hf.add_tokens(&tokens));
    add.map_err(|reason| Fault::Library { at: "/added_tokens".into(), reason })?;
    for (place, entry) in entries.iter().enumerate().filter(|(_, entry)| !entry.content.is_empty()) {
        let given = hf.token_to_id(&entry.content);
        if given != Some(entry.id.0) {
            let found = format!("id {} for `{}`", entry.id.0, cut(&entry.content));
            let given = given.map_or("no id".into(), |id| format!("{id}"));
            let expected = format!("{given}: its id in the vocabulary, or the next free one in the order of the list");
            return Err(Fault::value(format!("/added_tokens/{place}/id"), found, expected));
        }
    }
    Ok(())
}

/// The library looks for such a token in normalized text: nothing must not be left of it.
fn check_normalized(hf: &Tokenizer, entry: &AddedEntry, at: &str) -> Result<(), Fault> {
    let Some(normalizer) = hf.get_normalizer() else { return Ok(()) };
    let mut text = NormalizedString::from(entry.content.as_str());
    let library = |reason: String| Fault::Library { at: at.to_owned(), reason };
    quietly(|| normalizer.normalize(&mut text)).map_err(library)?.map_err(|e| library(e.to_string()))?;
    if text.get().is_empty() {
        let found = format!("`{}`, of which the normalizer leaves nothing", cut(&entry.content));
        return Err(Fault::value(at, found, "a text that can be found, or `normalized` false"));
    }
    Ok(())
}

fn token(entry: &AddedEntry) -> AddedToken {
    AddedToken {
        content: entry.content.clone(),
        single_word: entry.single_word,
        lstrip: entry.lstrip,
        rstrip: entry.rstrip,
        normalized: entry.normalized,
        special: entry.special,
    }
}
