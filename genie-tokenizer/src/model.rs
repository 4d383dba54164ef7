//! The model of a `tokenizer.json`: BPE, WordPiece, WordLevel or Unigram, checked and built.
//!
//! The library's models are built through their constructors: its own reader takes any vocabulary, keeps the last of two
//! equal entries, and cuts a merge in the middle of a character.

use std::collections::{HashMap, HashSet};

use tokenizers::ModelWrapper;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::models::wordlevel::WordLevel;
use tokenizers::models::wordpiece::WordPiece;

use crate::document::{Entries, Merge, ModelPart, cut};
use crate::error::Fault;
use crate::limits;
use crate::quiet::quietly;

/// What is known of a vocabulary without asking the library.
pub(crate) struct Vocabulary {
    /// Entries.
    pub(crate) n_entries: usize,
    /// The entry of the largest id.
    pub(crate) last: (String, u32),
    /// Bytes of the longest entry.
    pub(crate) longest: usize,
    /// The model is a BPE without an entry for unknown text: what it has no entry for is left out.
    pub(crate) leaves_out: bool,
}

/// Checks and builds the model.
pub(crate) fn build(part: ModelPart) -> Result<(ModelWrapper, Vocabulary), Fault> {
    let kind = kind(&part)?;
    keys_fit(&part, kind)?;
    let build = match kind {
        "BPE" => bpe,
        "WordPiece" => word_piece,
        "WordLevel" => word_level,
        _ => unigram,
    };
    build(part)
}

/// The type; files of old versions do not name it.
fn kind(part: &ModelPart) -> Result<&'static str, Fault> {
    const KINDS: [&str; 4] = ["BPE", "WordPiece", "WordLevel", "Unigram"];
    match &part.kind {
        Some(name) => KINDS
            .into_iter()
            .find(|kind| kind == name)
            .ok_or_else(|| Fault::value("/model/type", cut(name), format!("one of {}", KINDS.join(", ")))),
        None if matches!(part.vocab, Entries::Scores(_)) => Ok("Unigram"),
        None if part.merges.is_some() => Ok("BPE"),
        None if part.max_input_chars_per_word.is_some() => Ok("WordPiece"),
        None => Ok("WordLevel"),
    }
}

/// Refuses keys that the kind of model does not have, and a vocabulary of the other form.
fn keys_fit(part: &ModelPart, kind: &'static str) -> Result<(), Fault> {
    let of = |key: &str, there: bool, kinds: &[&str]| match there && !kinds.contains(&kind) {
        true => {
            Err(Fault::value(format!("/model/{key}"), format!("a key that a {kind} model has not"), kinds.join(", ")))
        }
        false => Ok(()),
    };
    of("merges", part.merges.is_some(), &["BPE"])?;
    of("dropout", part.dropout.is_some(), &["BPE"])?;
    of("unk_token", part.unk_token.is_some(), &["BPE", "WordPiece", "WordLevel"])?;
    of("unk_id", part.unk_id.is_some(), &["Unigram"])?;
    of("continuing_subword_prefix", part.continuing_subword_prefix.is_some(), &["BPE", "WordPiece"])?;
    of("end_of_word_suffix", part.end_of_word_suffix.is_some(), &["BPE"])?;
    of("fuse_unk", part.fuse_unk.is_some(), &["BPE"])?;
    of("byte_fallback", part.byte_fallback.is_some(), &["BPE", "Unigram"])?;
    of("ignore_merges", part.ignore_merges.is_some(), &["BPE"])?;
    of("max_input_chars_per_word", part.max_input_chars_per_word.is_some(), &["WordPiece"])?;
    for (key, text) in [
        ("continuing_subword_prefix", &part.continuing_subword_prefix),
        ("end_of_word_suffix", &part.end_of_word_suffix),
    ] {
        if let Some(text) = text.as_ref().filter(|text| text.len() > limits::TEXT) {
            let expected = format!("at most {} bytes", limits::TEXT);
            return Err(Fault::value(format!("/model/{key}"), format!("{} bytes", text.len()), expected));
        }
    }
    Ok(())
}

/// Texts with ids: none twice, no id twice.
fn ids(entries: Entries) -> Result<(Vocab, Vocabulary), Fault> {
    let at = "/model/vocab";
    let Entries::Ids(entries) = entries else {
        return Err(Fault::value(at, "a list", "texts with ids"));
    };
    let mut known = Vocabulary { n_entries: entries.len(), last: (String::new(), 0), longest: 0, leaves_out: false };
    let mut by_id: HashMap<u32, usize> = HashMap::with_capacity(entries.len());
    for (place, (text, id)) in entries.iter().enumerate() {
        check_length(text, at, limits::ENTRY)?;
        known.longest = known.longest.max(text.len());
        if *id >= known.last.1 {
            known.last = (text.clone(), *id);
        }
        if let Some(other) = by_id.insert(*id, place) {
            let found = format!("id {id} for `{}` and for `{}`", cut(&entries[other].0), cut(text));
            return Err(Fault::value(at, found, "an id of its own for each entry"));
        }
    }
    let mut vocab = Vocab::default();
    vocab.reserve(entries.len());
    for (text, id) in entries {
        if let Some(other) = vocab.get(&text) {
            let found = format!("`{}` with id {other} and with id {id}", cut(&text));
            return Err(Fault::value(at, found, "each entry once"));
        }
        vocab.insert(text, id);
    }
    if vocab.is_empty() {
        return Err(Fault::value(at, "no entries", "a vocabulary"));
    }
    Ok((vocab, known))
}

fn check_length(text: &str, at: &str, limit: usize) -> Result<(), Fault> {
    if text.len() > limit {
        let found = format!("an entry of {} bytes (`{}`)", text.len(), cut(text));
        return Err(Fault::value(at, found, format!("at most {limit}")));
    }
    Ok(())
}

/// The entry that stands for unknown text must be one.
fn check_unknown(unknown: &str, vocab: &Vocab) -> Result<(), Fault> {
    if vocab.contains_key(unknown) {
        return Ok(());
    }
    Err(Fault::value("/model/unk_token", format!("`{}`", cut(unknown)), "an entry of the vocabulary"))
}

fn bpe(part: ModelPart) -> Result<(ModelWrapper, Vocabulary), Fault> {
    let (vocab, mut known) = ids(part.vocab)?;
    let Some(mut merges) = part.merges else {
        return Err(Fault::value("/model", "no `merges`", "a list, which may be empty"));
    };
    // Lists of old versions begin with theirs, as the file merges.txt does.
    if merges.first().is_some_and(|Merge(a, _)| a.starts_with("#version") && !vocab.contains_key(a)) {
        merges.remove(0);
    }
    if let Some(dropout) = part.dropout.filter(|&p| p != 0.0) {
        return Err(Fault::value("/model/dropout", dropout.to_string(), "null: tokens would be drawn by chance"));
    }
    let prefix = part.continuing_subword_prefix.filter(|prefix| !prefix.is_empty());
    check_merges(&merges, &vocab, prefix.as_deref().unwrap_or(""))?;
    let mut builder = BPE::builder();
    if let Some(unknown) = part.unk_token {
        check_unknown(&unknown, &vocab)?;
        builder = builder.unk_token(unknown);
    } else {
        known.leaves_out = true;
    }
    if let Some(prefix) = prefix {
        builder = builder.continuing_subword_prefix(prefix);
    }
    if let Some(suffix) = part.end_of_word_suffix {
        builder = builder.end_of_word_suffix(suffix);
    }
    let builder = builder
        .fuse_unk(part.fuse_unk.unwrap_or(false))
        .byte_fallback(part.byte_fallback.unwrap_or(false))
        .ignore_merges(part.ignore_merges.unwrap_or(false))
        .vocab_and_merges(vocab, merges.into_iter().map(|Merge(a, b)| (a, b)).collect());
    Ok((built(|| builder.build().map(ModelWrapper::BPE))?, known))
}

/// Both parts of a merge and what they make must be entries; the second part loses the prefix.
fn check_merges(merges: &[Merge], vocab: &Vocab, prefix: &str) -> Result<(), Fault> {
    let mut made = String::new();
    for (place, Merge(a, b)) in merges.iter().enumerate() {
        let bad = |found: String, expected: &str| Fault::value(format!("/model/merges/{place}"), found, expected);
        let Some(tail) = b.strip_prefix(prefix) else {
            let found = format!("`{}` and `{}`", cut(a), cut(b));
            return Err(bad(found, &format!("a second part that begins with the prefix `{}`", cut(prefix))));
        };
        made.clear();
        made.push_str(a);
        made.push_str(tail);
        if let Some(missing) = [a.as_str(), b.as_str(), made.as_str()].into_iter().find(|t| !vocab.contains_key(*t)) {
            let found = format!("`{}` and `{}`, of which `{}` is no entry", cut(a), cut(b), cut(missing));
            return Err(bad(found, "two entries that make an entry"));
        }
    }
    Ok(())
}

fn word_piece(part: ModelPart) -> Result<(ModelWrapper, Vocabulary), Fault> {
    let (vocab, known) = ids(part.vocab)?;
    let need = |there: bool, key: &str| match there {
        true => Ok(()),
        false => Err(Fault::value("/model", format!("no `{key}`"), "the keys of a WordPiece model")),
    };
    need(part.unk_token.is_some(), "unk_token")?;
    need(part.continuing_subword_prefix.is_some(), "continuing_subword_prefix")?;
    need(part.max_input_chars_per_word.is_some(), "max_input_chars_per_word")?;
    let unknown = part.unk_token.unwrap_or_default();
    check_unknown(&unknown, &vocab)?;
    let chars = part.max_input_chars_per_word.unwrap_or_default();
    if chars == 0 || chars > limits::WORD_CHARS {
        let expected = format!("1 to {}", limits::WORD_CHARS);
        return Err(Fault::value("/model/max_input_chars_per_word", chars.to_string(), expected));
    }
    let builder = WordPiece::builder()
        .vocab(vocab)
        .unk_token(unknown)
        .continuing_subword_prefix(part.continuing_subword_prefix.unwrap_or_default())
        .max_input_chars_per_word(usize::try_from(chars).unwrap_or(1));
    Ok((built(|| builder.build().map(ModelWrapper::WordPiece))?, known))
}

fn word_level(part: ModelPart) -> Result<(ModelWrapper, Vocabulary), Fault> {
    let (vocab, known) = ids(part.vocab)?;
    let Some(unknown) = part.unk_token else {
        return Err(Fault::value("/model", "no `unk_token`", "the entry that stands for unknown words"));
    };
    check_unknown(&unknown, &vocab)?;
    let builder = WordLevel::builder().vocab(vocab).unk_token(unknown);
    Ok((built(|| builder.build().map(ModelWrapper::WordLevel))?, known))
}

fn unigram(part: ModelPart) -> Result<(ModelWrapper, Vocabulary), Fault> {
    let at = "/model/vocab";
    let Entries::Scores(entries) = part.vocab else {
        return Err(Fault::value(at, "an object", "a list of texts with scores"));
    };
    let Some((last, _)) = entries.last() else {
        return Err(Fault::value(at, "no entries", "a vocabulary"));
    };
    let unknown = part.unk_id.and_then(|id| usize::try_from(id).ok());
    if unknown.is_none_or(|id| id >= entries.len()) {
        let found = part.unk_id.map_or("none".into(), |id| id.to_string());
        return Err(Fault::value("/model/unk_id", found, format!("an entry's place, 0 to {}", entries.len() - 1)));
    }
    let id = u32::try_from(entries.len() - 1).unwrap_or(u32::MAX);
    let mut known = Vocabulary { n_entries: entries.len(), last: (last.clone(), id), longest: 0, leaves_out: false };
    let mut seen = HashSet::with_capacity(entries.len());
    let mut total = 0;
    for (text, _) in &entries {
        check_length(text, at, limits::PIECE)?;
        known.longest = known.longest.max(text.len());
        total += text.len();
        if !seen.insert(text.as_str()) {
            return Err(Fault::value(at, format!("`{}` twice", cut(text)), "each entry once"));
        }
    }
    if total > limits::PIECES || u64::from(id) >= limits::IDS {
        let found = format!("{} entries of {total} bytes", entries.len());
        return Err(Fault::value(at, found, format!("at most {} and {} bytes", limits::IDS, limits::PIECES)));
    }
    drop(seen);
    let fallback = part.byte_fallback.unwrap_or(false);
    Ok((built(|| Unigram::from(entries, unknown, fallback).map(ModelWrapper::Unigram))?, known))
}

fn built(build: impl FnOnce() -> Result<ModelWrapper, tokenizers::Error>) -> Result<ModelWrapper, Fault> {
    let library = |reason: String| Fault::Library { at: "/model".into(), reason };
    quietly(build).map_err(library)?.map_err(|e| library(e.to_string()))
}
