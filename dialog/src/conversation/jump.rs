//! Jumps: where the grammar leaves one text only, its tokens are processed together with the one that was drawn last, in one
//! step, and the next token is drawn behind them.
//!
//! The last token of what is certain is drawn all the same: the tokenizer may write it together with what follows. libGenie jumps
//! over two tokens or more, never after the first of a reply, counts a jump as one token of the limit, and forgets to process
//! the token before it, which is not repeated here.

use engine::EngineError;
use genie_types::TokenId;

use super::codes::StopReason;
use super::decoding::{Decoding, Drawn, is_overflow};
use super::error::DialogError;
use crate::sampler::SamplerRules;

impl Decoding<'_> {
    /// Processes the token drawn last together with what must follow it; draws the token behind. `None` if nothing is certain,
    /// or if a step of several tokens has no place.
    pub(super) fn jump(&mut self, last: TokenId) -> Result<Option<Option<StopReason>>, DialogError> {
        let genie = self.reply.sampler.settings().rules() == SamplerRules::Genie;
        let n_wanted = self.max_tokens().saturating_sub(self.reply.query.n_counted());
        let forced = self.forced(genie, n_wanted);
        if forced.is_empty() {
            return Ok(None);
        }
        let tokens: Vec<TokenId> = std::iter::once(last).chain(forced.iter().copied()).collect();
        let (n_past, mut drawn) = (self.model.n_past(), Drawn::default());
        match self.model.process(&tokens) {
            Ok(logits) => {
                let reply = &mut self.reply;
                let n_chunks = reply.query.ends.len();
                drawn.inject(reply, n_past + 1, &forced);
                if genie {
                    reply.query.join_chunks(n_chunks);
                    reply.query.n_uncounted += forced.len() - 1;
                }
                // In libGenie a jump may be the last token that the limit allows.
                if !(drawn.is_over() || genie && n_wanted == 1) {
                    drawn.draw(reply, n_past + tokens.len(), logits);
                }
            }
            Err(e) if is_overflow(&e) => return Ok(None),
            Err(EngineError::Stopped { .. }) => {
                let stop = self.aborted();
                return self.rewind(n_past).map(|()| Some(Some(stop)));
            }
            Err(e) => return Err(e.into()),
        }
        self.apply(n_past, tokens.len(), drawn).map(Some)
    }

    /// The tokens to jump over.
    fn forced(&mut self, genie: bool, n_wanted: usize) -> Vec<TokenId> {
        let n_left = self.n_left().saturating_sub(1);
        let (least, n_most) = if genie { (3, n_left) } else { (2, n_left.min(n_wanted.saturating_sub(1))) };
        let is_first = self.reply.query.tokens.len() < 2;
        let Some(grammar) = self.reply.grammar.as_mut().filter(|_| !(genie && is_first) && n_most > 0) else {
            return Vec::new();
        };
        let mut forced = grammar.forced();
        if forced.len() < least {
            return Vec::new();
        }
        forced.pop();
        forced.truncate(n_most);
        forced
    }
}
