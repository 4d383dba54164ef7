//! The cache of one model given to another: `kv-share`'s switch, and the way back.
//!
//! What both hold already stays as each has it; the rest is converted to the other's layout and type. The tokens go along, so
//! that the other model continues the same dialog.
//!
//! *Invariant*: a refusal leaves both models as they were.

use std::path::Path;

use engine::TokenModel;
use genie_types::TokenId;
use session_store::{Snapshot, read_handed_cache, write_handed_cache};

use super::decoding::Decoding;
use super::error::DialogError;
use crate::kinds::CacheRoute;

impl<'a> Decoding<'a> {
    /// Gives the first model's cache to the second.
    ///
    /// # Errors
    /// There is no second model; their caches differ in shape; files.
    pub fn give_cache(&mut self, kind: &'static str, route: &CacheRoute) -> Result<(), DialogError> {
        let Some(second) = self.second.as_deref_mut() else { return Err(no_second(kind)) };
        let mut snapshot = self.model.snapshot()?;
        if let CacheRoute::Folder(folder) = route {
            let schema = self.model.cache_schema()?;
            let tokens: Vec<TokenId> = snapshot.tokens().collect();
            write_handed_cache(folder, &snapshot.image, &tokens)?;
            let (image, found) = read_handed_cache(folder, &schema.tensors)?;
            if found != tokens {
                return Err(changed(kind, folder));
            }
            snapshot.image = image;
        }
        take(snapshot, second)
    }

    /// Gives the second model's cache back to the first.
    ///
    /// # Errors
    /// As [`give_cache`](Self::give_cache).
    pub fn take_cache_back(&mut self) -> Result<(), DialogError> {
        let Some(second) = self.second.as_deref_mut() else { return Ok(()) };
        take(second.snapshot()?, self.model)
    }

    /// A step with the second model in the first one's place.
    ///
    /// # Errors
    /// There is no second model; those of the step.
    pub fn on_second<T>(
        &mut self,
        kind: &'static str,
        step: impl FnOnce(&mut Self) -> Result<T, DialogError>,
    ) -> Result<T, DialogError> {
        let Some(second) = self.second.take() else { return Err(no_second(kind)) };
        let first = std::mem::replace(&mut self.model, second);
        let done = step(self);
        self.second = Some(std::mem::replace(&mut self.model, first));
        done
    }
}

/// Replaces a model's cache by another's, except the rows of the tokens that both begin with.
fn take(snapshot: Snapshot, to: &mut dyn TokenModel) -> Result<(), DialogError> {
    let schema = to.cache_schema()?;
    let own = to.transcript();
    let common = own.tokens().iter().zip(snapshot.tokens()).take_while(|(a, b)| **a == *b).count();
    let own = if common > 0 && own.is_plain() { Some(to.snapshot()?) } else { None };
    let own = own.as_ref().map(|own| (&own.image, common));
    let image = snapshot.image.converted(&schema.tensors, own).map_err(engine::EngineError::from)?;
    let adapters = Some(to.lora_label());
    Ok(to.restore_snapshot(&Snapshot { model: schema.model, image, adapters, ..snapshot })?)
}

fn changed(kind: &'static str, folder: &Path) -> DialogError {
    let expected = format!("the cache in `{}` to stay as it was written", folder.display());
    DialogError::Kind { kind, expected, found: "the tokens of another dialog".to_owned() }
}

fn no_second(kind: &'static str) -> DialogError {
    DialogError::Kind { kind, expected: "a second model".to_owned(), found: "one model".to_owned() }
}
