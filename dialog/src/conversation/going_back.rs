//! Taking tokens back: of the history, of the cache, and of what penalties look at.
//!
//! A cache that has dropped rows cannot take back tokens whose successors need them: what stays is processed again there, except where a
//! query states the whole conversation, whose tokens are all at hand.

use engine::{EngineError, StopFlag, TokenModel};

use super::decoding::Decoding;
use super::dialog::Dialog;
use super::error::DialogError;
use super::history::History;

impl Dialog {
    /// Goes back to the first `keep` tokens; where long context has dropped what the next token needs, to none.
    pub(super) fn forget_or_clear(&mut self, keep: usize) -> Result<bool, DialogError> {
        match self.forget_from(keep) {
            Err(DialogError::Engine(error)) if error.rows_are_gone() => {
                self.forget_from(0)?;
                Ok(false)
            }
            done => done.map(|()| true),
        }
    }

    /// Keeps the first `keep` tokens; where long context has dropped what the next one needs, they are processed again.
    pub(super) fn go_back(&mut self, keep: usize) -> Result<(), DialogError> {
        match self.forget_from(keep) {
            Err(DialogError::Engine(error)) if error.rows_are_gone() => {
                process_again(&mut *self.model, keep)?;
                self.forget_from(keep)?;
                self.relearn_history();
                Ok(())
            }
            done => done,
        }
    }

    /// Keeps the first `keep` tokens.
    fn forget_from(&mut self, keep: usize) -> Result<(), DialogError> {
        let n_past = self.n_past();
        if keep == 0 && n_past > 0 {
            self.model.reset()?;
        } else if keep < n_past {
            self.model.rewind(keep)?;
        }
        if keep <= n_past {
            self.unprocessed = None;
        }
        if keep < n_past {
            self.relearn_history();
        }
        Ok(())
    }

    /// Penalties look at what is left of the history.
    pub(super) fn relearn_history(&mut self) {
        self.sampler.relearn(History::new(self.model.transcript(), self.unprocessed).tokens());
    }
}

impl Decoding<'_> {
    /// Forgets what the model holds from `n_past` on. Where long context has dropped rows that are needed then, what stays is
    /// processed again, also after an abort: else the conversation would end with the signal. A cache that cannot be brought
    /// back is cleared, and the error returned.
    pub(crate) fn rewind(&mut self, n_past: usize) -> Result<(), DialogError> {
        if self.model.n_past() <= n_past {
            return Ok(());
        }
        let rewound = match self.model.rewind(n_past) {
            Err(error) if error.rows_are_gone() => process_again(self.model, n_past),
            done => done,
        };
        Ok(rewound.or_else(|e| self.model.reset().and(Err(e)))?)
    }

    /// After a cut of the history: penalties look at what is left of it.
    pub(crate) fn relearn_history(&mut self) {
        self.reply.sampler.relearn(History::new(self.model.transcript(), *self.unprocessed).tokens());
    }
}

/// Goes back to the first `keep` tokens by processing them again, all of them: an abort meanwhile ends what runs next.
fn process_again(model: &mut dyn TokenModel, keep: usize) -> Result<(), EngineError> {
    let transcript = model.transcript();
    let tokens = transcript.tokens()[..keep].to_vec();
    let generated: Vec<usize> = (0..keep).filter(|&index| transcript.is_generated(index)).collect();
    tracing::info!("the cache cannot go back to {keep} tokens: they are processed again");
    model.reset()?;
    let (mut n_done, mut aborted) = (0, None);
    loop {
        match model.prefill(&tokens[n_done..]) {
            Err(EngineError::Stopped { n_processed, .. }) => n_done += n_processed,
            done => break done?,
        }
        aborted = model.stop_flag();
        aborted.iter().for_each(StopFlag::clear);
    }
    aborted.iter().for_each(StopFlag::set);
    generated.into_iter().for_each(|index| model.mark_generated(index));
    Ok(())
}
