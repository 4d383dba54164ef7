//! `multistream`: several replies to one prompt, which begin with its most likely first tokens.
//!
//! Each stream is a sequence that shares the prompt's rows; one step takes a token of each. The dialog goes on with the first
//! stream, the likeliest; under libGenie's rules with the rows of all of them.

use engine::SeqId;
use genie_types::TokenId;

use super::DialogKind;
use crate::conversation::codes::StopReason;
use crate::conversation::decoding::{Decoding, constrained};
use crate::conversation::error::DialogError;
use crate::conversation::lanes::{LaneRules, Lanes, several_sequences};
use crate::sampler::SamplerError;

/// Genie's `multistream` dialog.
#[derive(Debug)]
pub struct MultiStream {
    n_streams: usize,
    p_threshold: f32,
    lanes: Option<Lanes>,
}

impl MultiStream {
    /// Most streams: each is a sequence of the cache.
    pub const MOST: usize = SeqId::COUNT;

    /// `n` streams, less those whose first token is less likely than the threshold; the likeliest always runs.
    ///
    /// # Errors
    /// No stream, or more than [`Self::MOST`].
    pub fn new(n_streams: usize, p_threshold: f32) -> Result<Self, DialogError> {
        if !(1..=Self::MOST).contains(&n_streams) {
            return Err(DialogError::StreamCount { found: n_streams, most: Self::MOST });
        }
        Ok(Self { n_streams, p_threshold, lanes: None })
    }

    fn start(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<StopReason>, DialogError> {
        let rules = LaneRules { whole_texts: decoding.as_genie(), own_context: false };
        let logits = match decoding.process_input()? {
            Ok(logits) => logits,
            Err(stop) => return Ok(Some(stop)),
        };
        let n_past = decoding.model.n_past();
        let reply = &mut decoding.reply;
        let allowed = match constrained(&mut reply.grammar, reply.context, reply.sampler, &logits) {
            Err(DialogError::GrammarComplete) => return Ok(Some(StopReason::GrammarEnd)),
            allowed => allowed?,
        };
        let allowed = reply.sampler.biased(allowed);
        let firsts = likeliest(allowed, self.n_streams, self.p_threshold);
        if firsts.is_empty() {
            return Err(SamplerError::AllMasked { n_vocab: allowed.len() }.into());
        }
        let model = decoding.model.sequences().ok_or_else(several_sequences)?;
        for number in 1..firsts.len() {
            model.share(SeqId(0), SeqId(number as u8), 0..n_past)?;
        }
        let mut lanes = Lanes { list: Vec::new(), rules, n_rows: n_past };
        for (number, token) in firsts.into_iter().enumerate() {
            lanes.list.push(decoding.lane(SeqId(number as u8), Vec::new()));
            lanes.take_first(decoding, number, n_past, token)?;
        }
        let over = lanes.give_out(decoding);
        self.lanes = Some(lanes);
        over
    }
}

impl DialogKind for MultiStream {
    fn name(&self) -> &'static str {
        "multistream"
    }

    fn takes_tokens(&self, as_genie: bool) -> bool {
        !as_genie
    }

    fn step(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<StopReason>, DialogError> {
        match &mut self.lanes {
            None => {
                decoding.reply.query.in_streams(decoding.as_genie());
                self.start(decoding)
            }
            Some(lanes) => lanes.step(decoding),
        }
    }

    fn clean_up(&mut self, decoding: &mut Decoding<'_>) -> Result<(), DialogError> {
        let Some(mut lanes) = self.lanes.take() else { return Ok(()) };
        let replies = lanes.replies();
        let others: Vec<SeqId> = lanes.list[1..].iter().map(|lane| lane.seq).collect();
        let first = &mut lanes.list[0];
        if let (Some(own), Some(grammar)) = (&mut decoding.reply.grammar, first.grammar.take()) {
            **own = *grammar;
        }
        let first = &lanes.list[0];
        let model = decoding.model.sequences().ok_or_else(several_sequences)?;
        if lanes.rules.whole_texts {
            model.merge(&others, SeqId(0))?;
            *decoding.unprocessed = None;
        } else {
            others.into_iter().try_for_each(|seq| model.remove(seq, 0..usize::MAX).map(drop))?;
            *decoding.unprocessed = first.unprocessed();
            if let Some(cut) = first.cut.filter(|cut| *cut < decoding.model.n_past()) {
                decoding.rewind(cut)?;
            }
        }
        decoding.reply.sampler.set_window(first.window.clone());
        if first.cut.is_some() {
            decoding.relearn_history();
        }
        decoding.reply.query.set_streams(replies);
        Ok(())
    }
}

/// The best tokens by logit, ties by id, whose probability is not below the threshold; the best one in any case.
fn likeliest(logits: &[f32], n: usize, threshold: f32) -> Vec<TokenId> {
    // What a grammar forbids is no stream's beginning.
    let mut order: Vec<usize> = (0..logits.len()).filter(|&id| logits[id] > f32::NEG_INFINITY).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    let best = order.first().map_or(0.0, |&id| logits[id]);
    let weight = |id: usize| f64::from(logits[id] - best).exp();
    let sum: f64 = (0..logits.len()).map(weight).sum();
    let likely = |place: usize, id: usize| place == 0 || weight(id) / sum >= f64::from(threshold);
    let kept = order.into_iter().take(n).enumerate().take_while(|&(place, id)| likely(place, id));
    kept.map(|(_, id)| TokenId(id as u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_begin_with_the_likeliest_tokens() {
        let of =
            |n, threshold| likeliest(&[0.0, 3.0, 3.0, 2.0, -9.0], n, threshold).iter().map(|t| t.0).collect::<Vec<_>>();
        assert_eq!(of(3, 0.0), [1, 2, 3]);
        assert_eq!(of(9, 0.0), [1, 2, 3, 0, 4]);
        assert_eq!(of(9, 0.1), [1, 2, 3]);
        assert_eq!(of(9, 1.0), [1], "the likeliest always runs");
        let forbidden = [f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY];
        assert_eq!(likeliest(&forbidden, 3, 0.0), [TokenId(1)]);
        assert_eq!(likeliest(&[f32::NEG_INFINITY; 3], 3, 0.0), [], "no token is left");
        assert!(MultiStream::new(0, 0.0).is_err() && MultiStream::new(65, 0.0).is_err());
    }
}
