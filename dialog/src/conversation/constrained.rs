//! Replies that follow a grammar: where it starts and where it goes on, from query to query.
//!
//! | query | the grammar |
//! |---|---|
//! | `COMPLETE`, `BEGIN` | starts |
//! | `CONTINUE`, `END` | goes on; starts if its end was reached |
//! | `RESUME` | goes on before the token that is delivered again |
//! | `REWIND` | goes on where the list ends within the reply; else starts |

use genie_types::TokenId;
use grammar::{Constraint, Grammar, Progress, Vocabulary, WhiteSpace};
use session_store::GrammarState;

use super::codes::SentenceCode;
use super::dialog::Dialog;
use super::error::DialogError;
use super::history::History;
use crate::sampler::SamplerRules;

impl Dialog {
    /// Constrains replies from the next query on; `None` lifts it. The bytes of the vocabulary are looked up once. Under libGenie's rules JSON may
    /// have any white space, unless the grammar says otherwise.
    ///
    /// # Errors
    /// The grammar cannot be followed with this vocabulary; the one before stays.
    pub fn set_grammar(&mut self, grammar: Option<&Grammar>) -> Result<(), DialogError> {
        self.grammar = match grammar {
            None => None,
            Some(grammar) => {
                let vocabulary = match &self.vocabulary {
                    Some(vocabulary) => vocabulary.clone(),
                    None => Vocabulary::new(self.tokenizer(), self.model.vocab_size())?,
                };
                let genie = self.sampler.settings().rules() == SamplerRules::Genie;
                let white_space = if genie { WhiteSpace::Any } else { WhiteSpace::default() };
                let constraint = Constraint::new(&grammar.with_default_white_space(white_space)?, &vocabulary)?;
                self.vocabulary = Some(vocabulary);
                Some(Box::new(constraint))
            }
        };
        Ok(())
    }

    /// What replies are constrained by.
    pub fn grammar(&self) -> Option<&Grammar> {
        self.grammar.as_deref().map(Constraint::grammar)
    }

    /// Brings the grammar to where a query begins, and says whether it starts there. `list`: the whole conversation, if it was stated again.
    pub(super) fn begin_grammar(&mut self, code: SentenceCode, list: &[TokenId]) -> bool {
        let Some(grammar) = &mut self.grammar else { return false };
        match code {
            SentenceCode::Continue | SentenceCode::End if !grammar.has_ended() => return false,
            SentenceCode::Resume => {
                grammar.forget(1);
                return false;
            }
            SentenceCode::Rewind => {
                let history = History::new(self.model.transcript(), self.unprocessed).to_vec();
                if let Some(n) = kept_of_reply(grammar, &history, list) {
                    grammar.forget(grammar.tokens().len() - n);
                    return false;
                }
            }
            _ => {}
        }
        grammar.restart();
        true
    }

    /// The grammar's progress for a saved dialog.
    pub(super) fn saved_grammar(&self) -> Option<GrammarState> {
        let Progress { grammar, tokens, ended } = self.grammar.as_ref()?.progress();
        Some(GrammarState { grammar, tokens, ended })
    }

    /// Goes on where the saved dialog's grammar was, if it is the same one.
    pub(super) fn restore_grammar(&mut self, saved: Option<&GrammarState>) {
        let Some(grammar) = &mut self.grammar else { return };
        match saved {
            Some(GrammarState { grammar: which, tokens, ended }) => {
                let progress = Progress { grammar: *which, tokens: tokens.clone(), ended: *ended };
                if !grammar.restore(&progress) {
                    tracing::warn!("the saved dialog was of another grammar: this one starts");
                }
            }
            None => grammar.restart(),
        }
    }
}

/// How many tokens of the constrained reply, which is the end of the history, a list of tokens keeps; `None` if it goes on
/// otherwise.
fn kept_of_reply(grammar: &Constraint, history: &[TokenId], list: &[TokenId]) -> Option<usize> {
    let reply = grammar.tokens();
    let end = history.len().checked_sub(usize::from(grammar.has_ended()))?;
    let begin = end.checked_sub(reply.len())?;
    let same = history[begin..end] == *reply && history[..end].starts_with(list);
    list.len().checked_sub(begin).filter(|_| same)
}
