//! When to stop drafting: a draft that is rejected costs a wider step, and the draft model's steps, for one token.
//!
//! *Rule*: each draft that gains nothing doubles the number of plain steps until the next one, from 1 up to
//! [`LONGEST_REST`]; one that gains tokens lets drafting go on, but only as many as it gained are forgiven. So a reply with
//! nothing to gain has a draft about every 256 tokens, and one that becomes predictable is found out within that.

/// Most plain steps between two drafts.
pub const LONGEST_REST: usize = 256;
/// Drafts in a row that may gain nothing before the first rest.
const PATIENCE: usize = 2;

/// Counts drafts that gain nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    /// Drafts in a row that gained nothing.
    failed: usize,
    /// Plain steps until the next draft.
    rest: usize,
}

impl Backoff {
    /// Whether this step is a plain one. Asked once a step.
    pub fn rests(&mut self) -> bool {
        let rests = self.rest > 0;
        self.rest = self.rest.saturating_sub(1);
        rests
    }

    /// Takes in what became of a draft; one of no tokens says nothing.
    pub fn saw(&mut self, n_drafted: usize, n_accepted: usize) {
        if n_drafted == 0 {
            return;
        }
        if n_accepted > 0 {
            self.failed = self.failed.saturating_sub(n_accepted);
            return;
        }
        self.failed += 1;
        let over = self.failed.saturating_sub(PATIENCE);
        self.rest = match over {
            0 => 0,
            n => 1_usize.checked_shl(n as u32).unwrap_or(LONGEST_REST).min(LONGEST_REST),
        };
        // What was gained long ago is not worth more drafts than it takes to rest longest.
        self.failed = self.failed.min(PATIENCE + LONGEST_REST.ilog2() as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps and drafts of a reply whose drafts gain what the closure says.
    fn drafts(n_steps: usize, mut gains: impl FnMut(usize) -> usize) -> usize {
        let (mut backoff, mut n) = (Backoff::default(), 0);
        for step in 0..n_steps {
            if !backoff.rests() {
                n += 1;
                backoff.saw(4, gains(step));
            }
        }
        n
    }

    #[test]
    fn drafts_that_gain_nothing_become_rare() {
        let n = drafts(1_000, |_| 0);
        assert!((8..=13).contains(&n), "{n} drafts in 1,000 steps");
        assert!(drafts(100_000, |_| 0) < 100_000 / LONGEST_REST + 12);
    }

    #[test]
    fn drafts_that_gain_go_on() {
        assert_eq!(drafts(100, |_| 2), 100);
        assert_eq!(drafts(100, |step| step % 2), 100, "every other one");
        // A text that becomes predictable is found out.
        let n = drafts(2_000, |step| if step < 700 { 0 } else { 3 });
        assert!(n > 1_000, "{n}");
    }

    #[test]
    fn an_empty_draft_says_nothing() {
        let mut backoff = Backoff::default();
        (0..100).for_each(|_| backoff.saw(0, 0));
        assert_eq!(backoff, Backoff::default());
    }
}
