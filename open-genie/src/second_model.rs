//! The other model of a dialog of two, opened: the config's second engine, or a bundle of its own.

use dialog::Tokenizer;
use dialog::config::EngineRole;
use engine::Engine;
use genie_types::TokenId;

use crate::Error;
use crate::backend::{self, ActiveBackend};
use crate::config_keys::OnCores;
use crate::model::Bundle;
use crate::options::Options;
use crate::speculation::Speculation;
use crate::threads::Threads;
use crate::weights::WeightCheck;

/// A loaded second model.
pub(crate) struct SecondModel {
    // Dropped in this order: the power vote outlives the engine.
    pub(crate) engine: Engine,
    pub(crate) bundle: Bundle,
    pub(crate) active: ActiveBackend,
}

/// The bundle of the second model, if one is named.
pub(crate) fn draft_bundle(speculation: &Speculation) -> Result<Option<Bundle>, Error> {
    let Some(bundle) = speculation.draft_bundle() else { return Ok(None) };
    Bundle::read(bundle).map(Some).map_err(|source| Error::SecondModel { role: "draft", source: Box::new(source) })
}

/// Says so where the draft model's ids stand for other tokens than the first model's: what it drafts hardly ever holds then.
pub(crate) fn warn_of_other_tokens(first: &Bundle, second: &Bundle) {
    let paths = [first, second].map(|bundle| bundle.config().tokenizer());
    let same_file =
        paths[0] == paths[1] || matches!((std::fs::read(paths[0]), std::fs::read(paths[1])), (Ok(a), Ok(b)) if a == b);
    if same_file {
        return;
    }
    let (Ok(own), Ok(other)) = (first.tokenizer(), second.tokenizer()) else { return };
    if let Some(note) = other_tokens(&own, &other) {
        tracing::warn!("{note}");
    }
}

/// `None` for the same ids, except a few that were added.
fn other_tokens(own: &Tokenizer, other: &Tokenizer) -> Option<String> {
    let n = own.vocab_size().min(other.vocab_size());
    let ids = (0..n).map(|id| TokenId(id as u32));
    let other: Vec<TokenId> = ids.filter(|id| own.id_to_token(*id) != other.id_to_token(*id)).collect();
    let first = other.first().filter(|_| other.len() > n / 100)?;
    Some(format!(
        "the draft model's tokenizer has other tokens than the first model's for {} of {n} ids, {} the first: hardly any draft will hold. \
         A draft model needs the same vocabulary, or a config with a `draft-token-map`",
        other.len(),
        first.0
    ))
}

impl SecondModel {
    /// Opens it beside a first one, on the same backend where both have the same. `asked`: the options as they were given;
    /// `first`: those that the first model was opened with, and its backend. What a full context drops is the first model's
    /// alone.
    ///
    /// # Errors
    /// [`Error::SecondModel`] with the cause.
    pub(crate) fn open(
        bundle: Bundle,
        asked: &Options,
        first: (&Options, &ActiveBackend),
        threads: &Threads,
    ) -> Result<(Self, WeightCheck), Error> {
        let role = bundle.config().role();
        let role = if role.is_main() { EngineRole::Draft } else { role };
        Self::load(bundle, asked, first, threads).map_err(|source| {
            let source = Box::new(source);
            Error::SecondModel { role: role.name(), source }
        })
    }

    fn load(
        bundle: Bundle,
        asked: &Options,
        (options, active): (&Options, &ActiveBackend),
        threads: &Threads,
    ) -> Result<(Self, WeightCheck), Error> {
        let own = asked.clone().for_binaries(&bundle.config().engine().ctx_bins)?;
        let active = if own.backend == options.backend {
            active.share()
        } else {
            backend::start(&own, bundle.config().backend(), threads)?
        };
        let on_cores = OnCores::of_mask(bundle.config().backend().cpu_mask);
        let mut config = bundle.engine_config(&own);
        config.shared_memory = backend::shared_memory(&own, &active.backend)?;
        let engine = Engine::open(&config, &active.backend);
        let engine = engine.map_err(|source| Error::Graphs { source })?;
        drop(on_cores);
        let weights = WeightCheck::begin(bundle.config(), own.cache_folder.as_deref())?;
        Ok((Self { engine, bundle, active }, weights))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer(words: &[&str]) -> Tokenizer {
        let vocab: serde_json::Map<_, _> =
            words.iter().enumerate().map(|(id, word)| (word.to_string(), id.into())).collect();
        let json = serde_json::json!({
            "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null,
            "decoder": null, "truncation": null, "padding": null, "model": {"type": "WordLevel", "vocab": vocab, "unk_token": words[0]},
        });
        Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn other_words_for_the_same_ids_are_said() {
        let own = tokenizer(&["a", "b", "c"]);
        assert_eq!(other_tokens(&own, &tokenizer(&["a", "b", "c", "d"])), None, "more are no others");
        let said = other_tokens(&own, &tokenizer(&["a", "x", "y"])).unwrap();
        assert!(said.contains("for 2 of 3 ids, 1 the first"), "{said}");
    }
}
