//! Saving a dialog into a folder and restoring it. The files are `session-store`'s; here they meet the live dialog.
//!
//! *Invariant*: whatever is refused, the live dialog is as it was.

use std::path::Path;
use std::time::Instant;

use engine::Overflow;
use session_store::{
    DialogState, RestoreNote, Restored, SaveFormat, SaveReport, Snapshot, read_second, read_session,
    save_session_of_two,
};

use super::dialog::Dialog;
use super::error::DialogError;
use crate::sampler::Mt19937;

/// What a dialog was restored from.
#[derive(Debug)]
pub struct RestoreReport {
    /// The files that count.
    pub format: SaveFormat,
    /// How the folder's other files differ from them, if they do.
    pub note: Option<RestoreNote>,
}

impl Dialog {
    /// Saves the dialog into a folder, which is made if need be. A paused one is restored as stopped.
    ///
    /// # Errors
    /// [`DialogError::NothingToSave`]; the cache cannot be saved; the file system refuses.
    pub fn save(&mut self, dir: &Path) -> Result<SaveReport, DialogError> {
        let began = Instant::now();
        let second = self.second.as_mut().filter(|second| second.n_past() > 0);
        let second = second.map(|second| second.snapshot()).transpose()?;
        let report = save_session_of_two(dir, &self.snapshot()?, second.as_ref())?;
        self.profile.saved(began.elapsed());
        Ok(report)
    }

    /// The dialog as plain values: cache, tokens, random state.
    ///
    /// # Errors
    /// [`DialogError::NothingToSave`]; [`DialogError::Engine`] if the model cannot be saved.
    pub fn snapshot(&mut self) -> Result<Snapshot, DialogError> {
        if self.batch.is_some() {
            return Err(DialogError::BatchNotSaved);
        }
        if self.view().is_empty() {
            return Err(DialogError::NothingToSave);
        }
        let mut snapshot = self.model.snapshot()?;
        snapshot.dialog = Some(DialogState {
            unprocessed: self.unprocessed,
            open: self.open,
            random_state: self.sampler.save_rng(),
            grammar: self.saved_grammar(),
            mirostat_mu: self.sampler.mirostat_mu(),
        });
        Ok(snapshot)
    }

    /// Restores a dialog from a folder that this program or libGenie has saved; the one before is forgotten.
    ///
    /// # Errors
    /// There is none, or it is torn, corrupt, of another model, or too long for this context: nothing has changed.
    pub fn restore(&mut self, dir: &Path) -> Result<RestoreReport, DialogError> {
        let began = Instant::now();
        let starts_turn: Vec<_> = self.context.eos.first().copied().into_iter().chain(self.context.bos).collect();
        let Restored { snapshot, format, note } = read_session(dir, &self.model.cache_schema()?, &starts_turn)?;
        self.restore_snapshot(&snapshot)?;
        self.restore_second(dir)?;
        self.profile.restored(began.elapsed());
        Ok(RestoreReport { format, note })
    }

    /// Restores a dialog from plain values; the one before is forgotten.
    ///
    /// # Errors
    /// It has no dialog, is of another model, or is too long for this context: nothing has changed.
    pub fn restore_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), DialogError> {
        let state = snapshot.dialog.as_ref().ok_or(DialogError::NoDialogSaved)?;
        let (n_new, limit) = (snapshot.tokens().len(), self.limit());
        if n_new > limit {
            return Err(Overflow::ContextExceeded { n_past: 0, n_new, limit }.into());
        }
        Mt19937::from_text(&state.random_state)?;
        self.model.restore_snapshot(snapshot)?;
        self.sampler.reset();
        self.sampler.restore_rng(&state.random_state).expect("checked above");
        self.sampler.restore_mirostat_mu(state.mirostat_mu);
        // What penalties and DRY look at: prompts and replies, and the token that was drawn and not processed.
        snapshot.tokens().for_each(|token| self.sampler.accept(token));
        state.unprocessed.iter().for_each(|token| self.sampler.accept(*token));
        self.batch = None;
        self.unprocessed = state.unprocessed;
        self.open = state.open;
        self.paused = None;
        self.restore_grammar(state.grammar.as_ref());
        self.kind.forget();
        Ok(())
    }

    /// The other model's cache saves it the work of processing the dialog again; without one that fits it does that.
    fn restore_second(&mut self, dir: &Path) -> Result<(), DialogError> {
        let Some(second) = &mut self.second else { return Ok(()) };
        let restored = match read_second(dir) {
            Ok(Some(snapshot)) => second.restore_snapshot(&snapshot).map_err(DialogError::from),
            Ok(None) => return Ok(second.reset()?),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = restored {
            tracing::warn!(%error, "the second model's cache is left aside: it processes the dialog again");
            second.reset()?;
        }
        Ok(())
    }
}
