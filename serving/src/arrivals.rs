//! The requests that came since the last step, for whoever watches: when, how long, and what they have in common with earlier ones.
//!
//! *Bound*: the prompts of the last 256 are kept, and none while no one watches.

use std::collections::VecDeque;

use genie_types::TokenId;

use crate::RequestId;

/// Prompts that later ones are compared with.
const MOST_KEPT: usize = 256;

/// A request as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The request.
    pub request: RequestId,
    /// When, by the caller's clock.
    pub at_us: u64,
    /// Tokens of its prompt.
    pub n_prompt: usize,
    /// The earlier request whose prompt begins most alike, and how many tokens do; the last of several. `None` where no first token is
    /// the same.
    pub like: Option<(RequestId, usize)>,
}

/// Those that are in no event yet.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    new: Vec<Arrived>,
    prompts: VecDeque<(RequestId, Vec<TokenId>)>,
}

impl Arrivals {
    /// One more.
    pub(crate) fn add(&mut self, request: RequestId, prompt: &[TokenId], at_us: u64) {
        let common = |(other, tokens): &(RequestId, Vec<TokenId>)| {
            let n = tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count();
            (*other, n)
        };
        let like = self.prompts.iter().map(common).max_by_key(|(_, n)| *n).filter(|(_, n)| *n > 0);
        self.new.push(Arrived { request, at_us, n_prompt: prompt.len(), like });
        if self.prompts.len() == MOST_KEPT {
            self.prompts.pop_front();
        }
        self.prompts.push_back((request, prompt.to_vec()));
    }

    /// One is as if it had not come.
    pub(crate) fn take_back(&mut self, request: RequestId) {
        self.new.retain(|arrived| arrived.request != request);
        self.prompts.retain(|(other, _)| *other != request);
    }

    /// Those that came since it was asked last.
    pub(crate) fn take(&mut self) -> Vec<Arrived> {
        std::mem::take(&mut self.new)
    }

    /// No one watches.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_of_those_that_begin_most_alike() {
        let mut arrivals = Arrivals::default();
        let mut add = |id: u64, tokens: &[u32]| {
            let prompt: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
            arrivals.add(RequestId(id), &prompt, id * 10);
            *arrivals.new.last().unwrap()
        };
        let like = |of: Arrived| of.like.map(|(request, n)| (request.0, n));
        assert_eq!(add(1, &[5, 6, 7]), Arrived { request: RequestId(1), at_us: 10, n_prompt: 3, like: None });
        assert_eq!(like(add(2, &[5, 6, 8])), Some((1, 2)));
        assert_eq!(like(add(3, &[5, 6, 7, 9])), Some((1, 3)));
        assert_eq!(like(add(4, &[5, 6])), Some((3, 2)), "all three have two");
        assert_eq!(like(add(5, &[6])), None);
        assert_eq!(arrivals.take().len(), 5);
        assert!(arrivals.take().is_empty());
        (6..6 + MOST_KEPT as u64).for_each(|id| arrivals.add(RequestId(id), &[TokenId(9)], 0));
        assert_eq!(arrivals.prompts.len(), MOST_KEPT);
        arrivals.add(RequestId(1_000), &[TokenId(5)], 0);
        assert_eq!(like(*arrivals.new.last().unwrap()), None, "those that began with 5 are forgotten");
    }
}
