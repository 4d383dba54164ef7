//! What came of a trace: times to the first token and between tokens, rates, goodput.
//!
//! *Units*: milliseconds, tokens/s. A percentile is the value that that share of the list does not exceed.

use serde::Serialize;

/// One request as its client saw it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// When it was sent, when each token came; ms since the run began.
    pub sent: f64,
    pub tokens_at: Vec<f64>,
    pub n_prompt: usize,
    /// Tokens of the prompt that were not processed.
    pub n_shared: usize,
    pub n_parked: usize,
    /// Tokens of the reply.
    pub tokens: Vec<u32>,
    /// It was refused or failed.
    pub failed: Option<String>,
}

/// A step as it ran.
#[derive(Clone, Debug)]
pub struct Ran {
    /// ms since the run began.
    pub at: f64,
    pub ms: f64,
    pub width: usize,
    /// Request, rows, of a prompt.
    pub rows: Vec<(u64, usize, bool)>,
}

/// Percentiles of a list of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}

impl Percentiles {
    /// Of any list; zeros for an empty one.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (share * values.len() as f64).ceil() as usize;
            values.get(place.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Self { p50: at(0.5), p95: at(0.95), p99: at(0.99), max: at(1.0) }
    }
}

/// A policy's result.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub test: &'static str,
    pub policy: &'static str,
    pub seed: u64,
    pub requests: usize,
    pub failed: usize,
    /// Most requests that were sent and not yet over, at any time.
    pub most_at_once: usize,
    pub seconds: f64,
    pub ttft_ms: Percentiles,
    pub itl_ms: Percentiles,
    pub end_to_end_ms: Percentiles,
    pub in_tok_s: f64,
    pub out_tok_s: f64,
    /// Requests a second whose first token came within 2 s, and every other within the target.
    pub goodput: f64,
    /// Of all rows of all steps, those that no token was in.
    pub padding: f64,
    pub steps: usize,
    pub mean_rows: f64,
    pub shared_tokens: usize,
    pub parked: usize,
    /// Whole replies that are the same, token by token, as under the first policy of the run.
    pub same_replies: usize,
}

/// First token within this, for goodput.
const TTFT_MS: f64 = 2_000.0;

impl Summary {
    /// Of one run. `first`: the replies under the first policy.
    pub fn new(
        policy: &'static str,
        seed: u64,
        seen: &[Seen],
        steps: &[Ran],
        first: &[Vec<u32>],
        itl_target: f64,
    ) -> Self {
        let good = |seen: &Seen| {
            let first = seen.tokens_at.first().is_some_and(|at| at - seen.sent <= TTFT_MS);
            seen.failed.is_none() && first && gaps(seen).all(|gap| gap <= itl_target)
        };
        let seconds = steps.last().map_or(0.0, |step| step.at + step.ms) / 1e3;
        let per_second = |n: usize| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        let ends = |seen: &Seen| Some(seen.tokens_at.last()? - seen.sent);
        let (rows, width): (usize, usize) = steps.iter().fold((0, 0), |(rows, width), step| {
            (rows + step.rows.iter().map(|(_, n, _)| n).sum::<usize>(), width + step.width)
        });
        Self {
            test: "serve",
            policy,
            seed,
            requests: seen.len(),
            failed: seen.iter().filter(|seen| seen.failed.is_some()).count(),
            most_at_once: most_at_once(seen),
            seconds,
            ttft_ms: Percentiles::of(
                seen.iter().filter_map(|seen| Some(seen.tokens_at.first()? - seen.sent)).collect(),
            ),
            itl_ms: Percentiles::of(seen.iter().flat_map(gaps).collect()),
            end_to_end_ms: Percentiles::of(seen.iter().filter_map(ends).collect()),
            // A prompt without a token behind it was refused, or not finished.
            in_tok_s: per_second(seen.iter().filter(|seen| !seen.tokens.is_empty()).map(|seen| seen.n_prompt).sum()),
            out_tok_s: per_second(seen.iter().map(|seen| seen.tokens.len()).sum()),
            goodput: per_second(seen.iter().filter(|seen| good(seen)).count()),
            padding: if width > 0 { 1.0 - rows as f64 / width as f64 } else { 0.0 },
            steps: steps.len(),
            mean_rows: if steps.is_empty() { 0.0 } else { rows as f64 / steps.len() as f64 },
            shared_tokens: seen.iter().map(|seen| seen.n_shared).sum(),
            parked: seen.iter().map(|seen| seen.n_parked).sum(),
            same_replies: seen
                .iter()
                .zip(first)
                .filter(|(seen, first)| seen.failed.is_none() && seen.tokens == **first)
                .count(),
        }
    }
}

/// Of requests that had a token. One that is sent when another is over was not there at once with it.
fn most_at_once(seen: &[Seen]) -> usize {
    let mut changes: Vec<(f64, isize)> = Vec::new();
    for seen in seen {
        let Some(&last) = seen.tokens_at.last() else { continue };
        changes.extend([(seen.sent, 1), (last, -1)]);
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let counts = changes.iter().scan(0_isize, |there, (_, change)| {
        *there += change;
        Some(*there)
    });
    counts.max().unwrap_or(0).unsigned_abs()
}

fn gaps(seen: &Seen) -> impl Iterator<Item = f64> + '_ {
    seen.tokens_at.windows(2).map(|pair| pair[1] - pair[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_of_the_list() {
        let p = Percentiles::of((1..=200).rev().map(f64::from).collect());
        assert_eq!((p.p50, p.p95, p.p99, p.max), (100.0, 190.0, 198.0, 200.0));
        assert_eq!(Percentiles::of(vec![]), Percentiles::default());
        assert_eq!(Percentiles::of(vec![7.0]).p50, 7.0);
    }

    #[test]
    fn requests_at_once_are_sent_and_not_over() {
        let seen = |sent: f64, last: f64| Seen { sent, tokens_at: vec![sent, last], ..Seen::default() };
        let one_after_another = [seen(2.0, 4.0), seen(0.0, 2.0), Seen::default(), seen(4.0, 4.5)];
        assert_eq!(most_at_once(&one_after_another), 1);
        assert_eq!(most_at_once(&[seen(0.0, 3.0), seen(1.0, 2.0), seen(2.0, 9.0), seen(2.5, 2.6)]), 3);
        assert_eq!(most_at_once(&[]), 0);
    }

    #[test]
    fn goodput_counts_requests_in_time() {
        let seen = |tokens_at: &[f64]| Seen {
            tokens_at: tokens_at.to_vec(),
            tokens: vec![1; tokens_at.len()],
            n_prompt: 10,
            ..Seen::default()
        };
        let refused = Seen { failed: Some("too long".into()), ..seen(&[]) };
        let all = [seen(&[100.0, 200.0]), seen(&[2_500.0, 2_600.0]), seen(&[100.0, 400.0]), refused];
        let steps = [Ran { at: 3_000.0, ms: 1_000.0, width: 8, rows: vec![(1, 6, true)] }];
        let summary = Summary::new("one", 1, &all, &steps, &[vec![1, 1], vec![2], vec![1, 1, 1], vec![]], 150.0);
        assert_eq!((summary.goodput, summary.padding, summary.out_tok_s, summary.in_tok_s), (0.25, 0.25, 1.5, 7.5));
        assert_eq!((summary.itl_ms.max, summary.ttft_ms.max, summary.same_replies), (300.0, 2_500.0, 1));
    }
}
