//! What the model is given for a query: the rules between turns, as measured on the real Genie.
//!
//! | query | input |
//! |---|---|
//! | first one | `[bos] + new` |
//! | `COMPLETE` or `BEGIN` later | `[last sampled token, if unprocessed] + [first eos, unless that was it or eot] + [bos] + new` |
//! | `CONTINUE` or `END`, and any that follows an open `BEGIN` | `new`; an unprocessed token is dropped |
//! | `REWIND` | what follows the common prefix with the history |

use genie_types::TokenId;

use super::codes::SentenceCode;
use super::history::History;
use crate::config::ContextSettings;

/// How a query starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// Tokens of the history to keep; the rest is forgotten before anything runs.
    pub(super) keep: usize,
    /// What the model processes.
    pub(super) input: Vec<TokenId>,
    /// A reply token that is known without running anything: it is said again.
    pub(super) replay: Option<TokenId>,
}

/// A turn, or a part of one. `open`: a `BEGIN` or `CONTINUE` went before.
pub(super) fn of_turn(
    code: SentenceCode,
    open: bool,
    history: &History,
    context: &ContextSettings,
    new: &[TokenId],
) -> Start {
    let mut input = Vec::with_capacity(new.len() + 3);
    if history.is_empty() {
        input.extend(context.bos);
        input.extend_from_slice(new);
        return Start { keep: 0, input, replay: None };
    }
    let continues = open || matches!(code, SentenceCode::Continue | SentenceCode::End);
    if continues {
        input.extend_from_slice(new);
        return Start { keep: history.n_past(), input, replay: None };
    }
    input.extend(history.unprocessed());
    let eos = context.eos.first().copied();
    let last = history.tokens().last().copied();
    if last.is_none_or(|t| Some(t) != eos && Some(t) != context.eot) {
        input.extend(eos);
    }
    input.extend(context.bos);
    input.extend_from_slice(new);
    Start { keep: history.len(), input, replay: None }
}

/// The whole conversation anew.
///
/// *Deviation*: with nothing in common the conversation is cleared; the real one appends the list at the old place.
pub(super) fn of_rewind(history: &History, list: &[TokenId]) -> Start {
    let common = history.common_prefix(list).min(history.n_past());
    if common < list.len() {
        return Start { keep: common, input: list[common..].to_vec(), replay: None };
    }
    match history.said_at(common) {
        // The reply to exactly this is known: it is said again, without running the model.
        Some(token) => Start { keep: common, input: Vec::new(), replay: Some(token) },
        // Everything is in the cache, but no logits are: the last token is run again.
        None => {
            let keep = common.saturating_sub(1);
            Start { keep, input: list[keep..].to_vec(), replay: None }
        }
    }
}
