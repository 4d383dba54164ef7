//! `kv-share`: one model processes the prompts, another one generates from its cache.
//!
//! *A reply*: the first model processes the input and gives the first token; its cache goes to the second, in the second's layout and
//! type; the second generates the rest, and its rows go back at the end. So the first model always has the whole dialog: turns,
//! rewinds, saving and resuming work as with one model. Each keeps its own numbers of the rows that it has had before.
//!
//! *Limits*: a reply ends where the first model alone would have been full.
//!
//! *Source*: libGenie 1.21, docs/dialog-kinds.md. Its second engine could not be run (its library is not in the wheel).

use std::path::PathBuf;

use engine::TokenModel;

use super::{DialogKind, Models};
use crate::config::DialogConfig;
use crate::conversation::codes::StopReason;
use crate::conversation::decoding::Decoding;
use crate::conversation::error::DialogError;

/// Genie's name of the kind.
const KIND: &str = "kv-share";

/// The folder that libGenie's first dialog of a process writes, in the working folder.
const FOLDER: &str = "dialog0-kv-share";

/// How the cache gets to the second model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheRoute {
    /// In memory.
    Memory,
    /// By files in libGenie's format, in this folder. They stay there.
    Folder(PathBuf),
}

impl CacheRoute {
    /// What a config asks for.
    pub(super) fn of_config(config: &DialogConfig) -> Self {
        if config.kind_blocks().kv_share_in_memory { Self::Memory } else { Self::Folder(PathBuf::from(FOLDER)) }
    }
}

/// Genie's `kv-share` dialog.
#[derive(Debug)]
pub struct KvShare {
    route: CacheRoute,
    /// The second model has the dialog; how many tokens the first can still hold, if it knows.
    switched: Option<Option<usize>>,
}

impl KvShare {
    /// The second model gets the cache this way.
    pub fn new(route: CacheRoute) -> Self {
        Self { route, switched: None }
    }

    fn take_back(&mut self, decoding: &mut Decoding<'_>) -> Result<(), DialogError> {
        if self.switched.take().is_some() { decoding.take_cache_back() } else { Ok(()) }
    }
}

impl DialogKind for KvShare {
    fn name(&self) -> &'static str {
        KIND
    }

    fn check(&self, models: &Models<'_>) -> Result<(), DialogError> {
        let refuse = |expected: String, found: String| Err(DialogError::Kind { kind: KIND, expected, found });
        if models.main.shifts_context() {
            return refuse("a context that ends when it is full".into(), "long context".into());
        }
        let Some(second) = models.second else { return Ok(()) };
        let (wanted, found) = (models.main.vocab_size(), second.vocab_size());
        if found != wanted {
            return refuse(
                format!("a secondary model with the vocabulary of the primary, {wanted} tokens"),
                format!("one of {found}"),
            );
        }
        Ok(())
    }

    fn check_caches(&self, main: &mut dyn TokenModel, second: &mut dyn TokenModel) -> Result<(), DialogError> {
        let (from, to) = (main.cache_schema()?, second.cache_schema()?);
        Ok(engine::check_shapes(&from.tensors, &to.tensors).map_err(engine::EngineError::from)?)
    }

    fn context_size(&self, models: &Models<'_>) -> usize {
        let own = models.main.context_size();
        models.second.map_or(own, |second| own.min(second.context_size()))
    }

    fn step(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<StopReason>, DialogError> {
        if !decoding.has_started() {
            return decoding.advance();
        }
        let fits = match self.switched {
            Some(fits) => fits,
            None => {
                let fits = decoding.model().admission().map(|fits| fits.n_fit + decoding.processed().len());
                decoding.give_cache(KIND, &self.route)?;
                self.switched = Some(fits);
                fits
            }
        };
        decoding.on_second(KIND, |decoding| {
            let is_full = fits.is_some_and(|fits| decoding.processed().len() >= fits);
            if is_full { Ok(Some(StopReason::ContextLimit)) } else { decoding.advance() }
        })
    }

    fn finished(&mut self, decoding: &mut Decoding<'_>) -> Result<(), DialogError> {
        self.take_back(decoding)
    }

    fn clean_up(&mut self, decoding: &mut Decoding<'_>) -> Result<(), DialogError> {
        self.take_back(decoding)
    }
}
