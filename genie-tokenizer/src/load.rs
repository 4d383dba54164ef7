//! From the bytes of a `tokenizer.json` to the library's tokenizer: read, checked part by part, then built.

use serde::de::DeserializeOwned;
use tokenizers::{DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, Tokenizer};

use crate::added;
use crate::decoders::{Scheme, scheme};
use crate::document::{self, AddedEntry, Part, cut};
use crate::error::Fault;
use crate::model::{self, Vocabulary};
use crate::parts::{self, Chain, Found};
use crate::quiet::quietly;

/// A tokenizer of the library, and what is known of it.
pub(crate) struct Loaded {
    pub(crate) hf: Tokenizer,
    pub(crate) scheme: Scheme,
    pub(crate) vocabulary: Vocabulary,
    /// Added tokens that are special: text and id.
    pub(crate) special: Vec<(String, u32)>,
    /// Regular expressions that text goes through.
    pub(crate) patterns: Vec<Found>,
    /// Text comes back as it was: bytes in, bytes out, and nothing is normalized.
    pub(crate) lossless: bool,
}

/// Loads a tokenizer.
pub(crate) fn load(bytes: &[u8]) -> Result<Loaded, Fault> {
    let document = document::read(bytes)?;
    if let Some(version) = document.version.as_deref().filter(|v| *v != "1.0") {
        return Err(Fault::value("/version", cut(version), "1.0"));
    }
    let mut patterns = Vec::new();
    let mut chain = |chain: Chain, part: &Option<Part>| match part {
        Some(Part(value)) if !value.is_null() => parts::check(chain, value).map(|mut summary| {
            patterns.append(&mut summary.patterns);
            summary.kinds
        }),
        _ => Ok(Vec::new()),
    };
    let normalizers = chain(parts::NORMALIZER, &document.normalizer)?;
    let pre_tokenizers = chain(parts::PRE_TOKENIZER, &document.pre_tokenizer)?;
    let decoders = chain(parts::DECODER, &document.decoder)?;
    chain(parts::POST_PROCESSOR, &document.post_processor)?;
    let scheme = match &document.decoder {
        Some(Part(decoder)) => scheme(decoder),
        None => scheme(&serde_json::Value::Null),
    };
    let scheme = scheme.map_err(Fault::Streams)?;

    let (model, mut vocabulary) = model::build(document.model)?;
    let mut hf = Tokenizer::new(model);
    hf.with_normalizer(read::<NormalizerWrapper>(parts::NORMALIZER, document.normalizer)?);
    hf.with_pre_tokenizer(read::<PreTokenizerWrapper>(parts::PRE_TOKENIZER, document.pre_tokenizer)?);
    hf.with_decoder(read::<DecoderWrapper>(parts::DECODER, document.decoder)?);
    // Adds special tokens around texts, which is never asked for here; libGenie reads it.
    read::<PostProcessorWrapper>(parts::POST_PROCESSOR, document.post_processor)?;
    vocabulary.add(&document.added_tokens, |text| hf.token_to_id(text).is_some());
    added::add(&mut hf, &document.added_tokens)?;
    let bytes = |kinds: &[String]| kinds.iter().any(|kind| kind == "ByteLevel");
    let lossless = bytes(&pre_tokenizers) && decoders == ["ByteLevel"] && normalizers.is_empty();
    let special = |entry: AddedEntry| entry.special.then_some((entry.content, entry.id.0));
    let special = document.added_tokens.into_iter().filter_map(special).collect();
    Ok(Loaded { hf, scheme, vocabulary, special, patterns, lossless })
}

impl Vocabulary {
    /// Counts added tokens that the model does not know.
    fn add(&mut self, entries: &[AddedEntry], is_known: impl Fn(&str) -> bool) {
        for entry in entries.iter().filter(|entry| !entry.content.is_empty()) {
            self.longest = self.longest.max(entry.content.len());
            self.n_entries += usize::from(!is_known(&entry.content));
            if entry.id.0 >= self.last.1 {
                self.last = (entry.content.clone(), entry.id.0);
            }
        }
    }
}

/// The library's reading of a part that was checked.
fn read<T: DeserializeOwned>(chain: Chain, part: Option<Part>) -> Result<Option<T>, Fault> {
    let library = |reason: String| Fault::Library { at: format!("/{}", chain.name), reason };
    let Some(Part(value)) = part.filter(|part| !part.0.is_null()) else { return Ok(None) };
    let part = quietly(|| serde_json::from_value(value)).map_err(library)?;
    part.map(Some).map_err(|e| library(e.to_string()))
}
