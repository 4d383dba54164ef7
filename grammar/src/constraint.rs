//! A grammar on its way through a reply: which tokens may come next, and what is certain.

use genie_types::TokenId;
use llguidance::Matcher;
use llguidance::api::StopReason;

use crate::lark;
use crate::{Grammar, GrammarError, GrammarKind, Vocabulary};

/// Characters of the text so far that an error shows.
const SHOWN: usize = 40;

/// The state of a grammar: the tokens that it has taken since its start. A clone goes its own way from there.
#[derive(Clone)]
pub struct Constraint {
    grammar: Grammar,
    vocabulary: Vocabulary,
    /// The state without tokens.
    fresh: Matcher,
    matcher: Matcher,
    tokens: Vec<TokenId>,
    /// A token has ended the text.
    ended: bool,
    /// The row of logits with what is forbidden at minus infinity.
    row: Vec<f32>,
}

impl std::fmt::Debug for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Constraint")
            .field("grammar", &self.grammar)
            .field("tokens", &self.tokens)
            .field("ended", &self.ended)
            .finish()
    }
}

/// What may come next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowed<'a> {
    /// Logits, minus infinity where a token is forbidden. At least one is allowed.
    Row(&'a [f32]),
    /// The text is complete, nothing can be added, and there is no token that says so.
    Complete,
}

/// How far a grammar has come, to be saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Which grammar: [`Grammar::fingerprint`].
    pub grammar: u64,
    /// The tokens that it has taken.
    pub tokens: Vec<TokenId>,
    /// Whether its end was reached and said.
    pub ended: bool,
}

impl Constraint {
    /// A grammar at its start.
    ///
    /// # Errors
    /// The grammar cannot be compiled for the vocabulary; [`GrammarError::NoFirstToken`].
    pub fn new(grammar: &Grammar, vocabulary: &Vocabulary) -> Result<Self, GrammarError> {
        let matcher = lark::matcher(grammar.kind(), vocabulary.factory(), grammar.lowered())?;
        let mut constraint = Self {
            grammar: grammar.clone(),
            vocabulary: vocabulary.clone(),
            fresh: matcher.clone(),
            matcher,
            tokens: Vec::new(),
            ended: false,
            row: Vec::new(),
        };
        // Said now, not when a prompt has been processed.
        let zeros = vec![0.0; vocabulary.n_vocab()];
        let first = constraint.allow(&zeros, &[]).map(|_| ());
        constraint.restart();
        first.map(|()| constraint)
    }

    /// The grammar.
    pub fn grammar(&self) -> &Grammar {
        &self.grammar
    }

    /// The tokens that it has taken since its start.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Whether its end was reached and said by a stop token.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Back to the start.
    pub fn restart(&mut self) {
        self.matcher = self.fresh.clone();
        self.tokens.clear();
        self.ended = false;
    }

    /// Lets through the logits of the tokens that may come next: those whose bytes continue a text of the grammar, and
    /// the `stops` where the text may end.
    ///
    /// # Errors
    /// [`GrammarError::DeadEnd`], [`GrammarError::NoFirstToken`], [`GrammarError::TooComplex`].
    pub fn allow(&mut self, logits: &[f32], stops: &[TokenId]) -> Result<Allowed<'_>, GrammarError> {
        self.row.clear();
        self.row.resize(logits.len(), f32::NEG_INFINITY);
        let end = self.vocabulary.end();
        let may_end = if self.ended {
            true
        } else {
            let mut mask = match self.matcher.compute_mask_or_eos() {
                Ok(mask) => mask,
                Err(e) => return Err(self.failed(&e.to_string())),
            };
            let may_end = mask.is_allowed(end);
            if may_end && self.grammar.kind() == GrammarKind::JsonSchema {
                // A document that is complete needs no white space behind it.
                self.vocabulary.white().iter().for_each(|token| mask.disallow_token(*token));
            }
            let row = &mut self.row;
            mask.iter_set_entries(|token| {
                if let (Some(to), Some(from)) = (row.get_mut(token), logits.get(token)) {
                    *to = *from;
                }
            });
            for stop in stops.iter().filter(|_| !may_end) {
                if let Some(to) = self.row.get_mut(stop.0 as usize) {
                    *to = f32::NEG_INFINITY;
                }
            }
            may_end
        };
        for stop in stops.iter().map(|token| token.0 as usize).filter(|_| may_end) {
            if let (Some(to), Some(from)) = (self.row.get_mut(stop), logits.get(stop)) {
                *to = *from;
            }
        }
        if self.row.iter().all(|logit| *logit == f32::NEG_INFINITY) {
            // Minus infinity may also be what the model says of a token that is allowed.
            return if may_end { Ok(Allowed::Complete) } else { Err(self.dead_end()) };
        }
        Ok(Allowed::Row(&self.row))
    }

    /// Takes a token that was generated. A stop token ends the text and has no bytes.
    ///
    /// # Errors
    /// The token does not continue a text of the grammar; the work for it exceeds a bound.
    pub fn accept(&mut self, token: TokenId, is_stop: bool) -> Result<(), GrammarError> {
        if is_stop {
            self.ended = true;
            return Ok(());
        }
        if let Err(e) = self.matcher.consume_token(token.0) {
            return Err(self.failed(&e.to_string()));
        }
        self.tokens.push(token);
        Ok(())
    }

    /// Takes back the last `n` tokens, and the end if it was reached.
    pub fn forget(&mut self, n: usize) {
        let n = n.min(self.tokens.len());
        self.ended = false;
        self.tokens.truncate(self.tokens.len() - n);
        if n > 0 && self.matcher.rollback(n).is_err() {
            self.replay();
        }
    }

    /// The state of `tokens` again, from the start; what does not fit any more is left out.
    fn replay(&mut self) {
        let tokens = std::mem::take(&mut self.tokens);
        self.matcher = self.fresh.clone();
        for token in tokens {
            if self.matcher.consume_token(token.0).is_err() {
                break;
            }
            self.tokens.push(token);
        }
    }

    /// How many tokens of a draft the grammar could take, one after the other.
    pub fn n_valid(&mut self, draft: &[TokenId]) -> usize {
        if self.ended {
            return 0;
        }
        let draft: Vec<u32> = draft.iter().map(|token| token.0).collect();
        self.matcher.validate_tokens(&draft).unwrap_or(0)
    }

    /// What must follow, as the tokenizer writes it. Its last token may be written together with what comes behind it.
    pub fn forced(&mut self) -> Vec<TokenId> {
        if self.ended || self.matcher.is_stopped() {
            return Vec::new();
        }
        let bytes = self.matcher.compute_ff_bytes();
        if bytes.is_empty() {
            return Vec::new();
        }
        self.vocabulary.tokens_of(&bytes).unwrap_or_default()
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        Progress { grammar: self.grammar.fingerprint(), tokens: self.tokens.clone(), ended: self.ended }
    }

    /// Goes on where another value of the same grammar has stopped. False, and at the start, if it was another grammar or the
    /// tokens do not fit it.
    pub fn restore(&mut self, progress: &Progress) -> bool {
        self.restart();
        if progress.grammar != self.grammar.fingerprint() {
            return false;
        }
        if progress.tokens.iter().any(|token| self.accept(*token, false).is_err()) {
            self.restart();
            return false;
        }
        self.ended = progress.ended;
        true
    }

    /// The end of the text so far, for messages.
    fn so_far(&self) -> String {
        let bytes: Vec<u8> = self.tokens.iter().flat_map(|token| self.vocabulary.bytes(*token)).copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let n_skipped = text.chars().count().saturating_sub(SHOWN);
        let shown: String = text.chars().skip(n_skipped).collect();
        let shown = shown.escape_debug();
        if n_skipped > 0 { format!("...{shown}") } else { shown.to_string() }
    }

    /// Why the parser gave up.
    fn failed(&mut self, message: &str) -> GrammarError {
        let why = self.matcher.stop_reason();
        if matches!(why, StopReason::NoExtensionBias) || message.contains("NoExtensionBias") {
            return self.dead_end();
        }
        // A parser that has failed stays so: the next try starts from the tokens.
        self.replay();
        let kind = self.grammar.kind();
        let message = message.lines().next().unwrap_or_default().to_owned();
        GrammarError::TooComplex { kind, so_far: self.so_far(), message }
    }

    fn dead_end(&mut self) -> GrammarError {
        self.replay();
        let wanted = self.matcher.compute_ff_bytes();
        self.replay();
        let kind = self.grammar.kind();
        match self.tokens.is_empty() {
            true => GrammarError::NoFirstToken { kind, wanted },
            false => GrammarError::DeadEnd { kind, so_far: self.so_far(), wanted },
        }
    }
}
