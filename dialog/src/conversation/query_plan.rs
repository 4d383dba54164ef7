//! What the model is given for a query: the rules between turns, as measured on libGenie.
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

/// How a query begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QueryPlan {
    /// Tokens of the history to keep; the rest is forgotten before anything runs.
    pub(super) keep: usize,
    /// What the model processes.
    pub(super) input: Vec<TokenId>,
    /// A reply token that is known without running anything: it is delivered again.
    pub(super) replay: Option<TokenId>,
}

/// A turn, or a part of one. `open`: a `BEGIN` or `CONTINUE` went before.
pub(super) fn of_turn(
    code: SentenceCode,
    open: bool,
    history: History<'_>,
    context: &ContextSettings,
    new: &[TokenId],
) -> QueryPlan {
    let mut input = Vec::with_capacity(new.len() + 3);
    if history.is_empty() {
        input.extend(context.bos);
        input.extend_from_slice(new);
        return QueryPlan { keep: 0, input, replay: None };
    }
    let continues = open || matches!(code, SentenceCode::Continue | SentenceCode::End);
    if continues {
        input.extend_from_slice(new);
        return QueryPlan { keep: history.n_past(), input, replay: None };
    }
    input.extend(history.unprocessed());
    let eos = context.eos.first().copied();
    let last = history.last();
    if last.is_none_or(|t| Some(t) != eos && Some(t) != context.eot) {
        input.extend(eos);
    }
    input.extend(context.bos);
    input.extend_from_slice(new);
    QueryPlan { keep: history.len(), input, replay: None }
}

/// A later turn that takes up neither the last token nor a stop token.
pub(super) fn of_bos_and_text(history: History<'_>, context: &ContextSettings, new: &[TokenId]) -> QueryPlan {
    let input = context.bos.into_iter().chain(new.iter().copied()).collect();
    QueryPlan { keep: history.n_past(), input, replay: None }
}

impl QueryPlan {
    /// The same for a list whose reply is to be drawn, not given again: its last token is processed for its logits.
    pub(super) fn drawing_again(self, list: &[TokenId]) -> Self {
        let keep = self.keep.saturating_sub(1);
        Self { keep, input: list[keep..].to_vec(), replay: None }
    }
}

/// The whole conversation stated again.
///
/// *Deviation*: with nothing in common the conversation is cleared; libGenie appends the list at the old place.
pub(super) fn of_rewind(history: History<'_>, list: &[TokenId]) -> QueryPlan {
    let common = history.common_prefix(list).min(history.n_past());
    if common < list.len() {
        return QueryPlan { keep: common, input: list[common..].to_vec(), replay: None };
    }
    match history.generated_at(common) {
        // The reply to exactly this is known: it is delivered again, without running the model.
        Some(token) => QueryPlan { keep: common, input: Vec::new(), replay: Some(token) },
        // Everything is in the cache, but no logits are: the last token is processed again.
        None => QueryPlan { keep: common, input: Vec::new(), replay: None }.drawing_again(list),
    }
}

#[cfg(test)]
mod tests {
    use engine::Transcript;

    use super::*;

    fn ids(raw: &[u32]) -> Vec<TokenId> {
        raw.iter().copied().map(TokenId).collect()
    }

    fn context() -> ContextSettings {
        ContextSettings {
            bos: Some(TokenId(256)),
            eos: ids(&[257, 414]),
            eot: Some(TokenId(300)),
            pad: None,
            size: 128,
            n_vocab: 512,
            n_embd: None,
        }
    }

    /// A prompt that was processed, tokens that were generated, the last of them not processed.
    fn history(prompt: &[u32], generated: &[u32]) -> (Transcript, Option<TokenId>) {
        let mut transcript = Transcript::default();
        transcript.extend(&ids(prompt), 0);
        let (last, processed) = generated.split_last().map_or((None, &[][..]), |(last, rest)| (Some(*last), rest));
        for token in processed {
            let index = transcript.len();
            transcript.push(TokenId(*token), index);
            transcript.mark_generated(index);
        }
        (transcript, last.map(TokenId))
    }

    #[test]
    fn turns_are_joined_as_measured() {
        use SentenceCode::{Begin, Complete, Continue, End};
        let cases: [(SentenceCode, bool, &[u32], &[u32]); 8] = [
            (Complete, false, &[53], &[53, 257, 256, 20]),
            (Complete, false, &[257], &[257, 256, 20]),
            (Complete, false, &[414], &[414, 257, 256, 20]), // an EOS, but not the first of the list
            (Complete, false, &[300], &[300, 256, 20]),
            (Begin, false, &[53], &[53, 257, 256, 20]),
            (Continue, false, &[53], &[20]),
            (End, false, &[53], &[20]),
            (Complete, true, &[], &[20]),
        ];
        for (code, open, generated, expected) in cases {
            let (transcript, last) = history(&[256, 9], generated);
            let start = of_turn(code, open, History::new(&transcript, last), &context(), &ids(&[20]));
            assert_eq!(start.input, ids(expected), "{code} after {generated:?}");
        }
        let first = of_turn(Continue, false, History::new(&Transcript::default(), None), &context(), &ids(&[20]));
        assert_eq!(first.input, ids(&[256, 20]));
        let no_specials = ContextSettings { bos: None, eos: vec![], eot: None, ..context() };
        let (transcript, last) = history(&[9], &[53]);
        let start = of_turn(Complete, false, History::new(&transcript, last), &no_specials, &ids(&[20]));
        assert_eq!(start.input, ids(&[53, 20]));
    }

    #[test]
    fn a_rewind_keeps_what_is_in_the_cache_and_the_same() {
        let (transcript, last) = history(&[256, 9, 8], &[50, 51]);
        let h = History::new(&transcript, last);
        // The list; how much is kept, what is run, what is delivered again.
        type Case = (&'static [u32], usize, &'static [u32], Option<u32>);
        let cases: [Case; 7] = [
            (&[256, 9, 1], 2, &[1], None),
            (&[256, 9, 8, 50, 2], 4, &[2], None),
            (&[256, 9, 8, 50, 51, 2], 4, &[51, 2], None), // 51 is not in the cache
            (&[256, 9, 8, 50, 51], 4, &[51], None),
            (&[256, 9, 8], 3, &[], Some(50)), // the reply to this is known
            (&[256, 9], 1, &[9], None),       // what followed was prompt: run again
            (&[7, 9], 0, &[7, 9], None),
        ];
        for (list, keep, input, replay) in cases {
            let expected = QueryPlan { keep, input: ids(input), replay: replay.map(TokenId) };
            assert_eq!(of_rewind(h, &ids(list)), expected, "{list:?}");
        }
    }
}
