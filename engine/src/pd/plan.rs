//! Which graph a step takes, from numbers alone: pure.
//!
//! *Rules*: the smallest N that takes the largest chunk; a request is put into a graph only if its rows and the new ones fit that graph's past,
//! so nothing is cut; a decode row that does not fit runs alone, where the past is longest; so does a prompt's last token without a decode row,
//! and a prompt too long for every fused graph goes on token by token there. *Units*: rows.

use super::PairConfig;

/// What the graphs can take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairLimits {
    /// Columns of a mask.
    pub context: usize,
    /// Rows of each graph for both requests, rising.
    pub totals: Vec<usize>,
    /// Most rows of a prompt in one step.
    pub prefill_len: usize,
    /// A fused graph's past has a last row that holds nothing.
    pub last_row_unused: bool,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairStep {
    /// A graph for both requests, by its place among them.
    Fused {
        /// The graph.
        graph: usize,
        /// Rows of the prompt.
        chunk: usize,
        /// The decode row runs as well.
        decodes: bool,
    },
    /// The decode row alone.
    Decode,
    /// One token of the prompt, as a decode row alone.
    PromptToken,
}

impl PairLimits {
    /// Of graphs with these numbers of rows, as the settings restrict them.
    pub fn new(context: usize, totals: &[usize], updates: bool, config: &PairConfig) -> Self {
        let mut totals = totals.to_vec();
        let allowed = config.total_len.unwrap_or(usize::MAX);
        totals.retain(|&n| n <= allowed);
        let widest = totals.last().copied().unwrap_or(1) - 1;
        let prefill_len = config.prefill_len.unwrap_or(widest).min(widest);
        Self { context, totals, prefill_len, last_row_unused: updates && config.last_row_unused }
    }

    /// Rows that a fused graph of `total` rows keeps for each request.
    pub fn capacity(&self, total: usize) -> usize {
        (self.context - total).saturating_sub(usize::from(self.last_row_unused))
    }

    /// Rows that a sequence may have at all: those of the graph for a decode row.
    pub const fn limit(&self) -> usize {
        self.context - 1
    }
}

/// The next step for a prompt with `rest` tokens left behind `n_past`, and a decode row behind `n_past`; `None` if there is neither.
/// Requests that do not fit [`PairLimits::limit`] are for the caller to refuse.
pub fn next_step(limits: &PairLimits, prompt: Option<(usize, usize)>, decode: Option<usize>) -> Option<PairStep> {
    let Some((n_past, rest)) = prompt.filter(|(_, rest)| *rest > 0) else { return decode.map(|_| PairStep::Decode) };
    let wanted = rest.min(limits.prefill_len);
    let chunk_in = |total: usize| wanted.min(total - 1).min(limits.capacity(total).saturating_sub(n_past));
    let best = |takes: &dyn Fn(usize) -> bool| {
        let fitting = limits.totals.iter().enumerate().filter(|(_, total)| takes(**total));
        let chunks = fitting.map(|(graph, &total)| (graph, chunk_in(total))).filter(|(_, chunk)| *chunk > 0);
        // The first of the largest is the narrowest graph.
        chunks.fold(None, |best: Option<(usize, usize)>, found| match best {
            Some(best) if best.1 >= found.1 => Some(best),
            _ => Some(found),
        })
    };
    let both = decode.and_then(|n_past| best(&|total| n_past < limits.capacity(total)));
    if let Some((graph, chunk)) = both {
        return Some(PairStep::Fused { graph, chunk, decodes: true });
    }
    // The decode row has the longer wait behind it, and does not fit beside any chunk.
    if decode.is_some() {
        return Some(PairStep::Decode);
    }
    match best(&|_| rest > 1) {
        Some((graph, chunk)) => Some(PairStep::Fused { graph, chunk, decodes: false }),
        None => Some(PairStep::PromptToken),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limits(context: usize, totals: &[usize], unused: bool) -> PairLimits {
        PairLimits::new(context, totals, unused, &PairConfig::default())
    }

    #[test]
    fn the_narrowest_graph_that_takes_the_chunk() {
        let limits = limits(64, &[4, 8, 16], false);
        let step = |prompt, decode| next_step(&limits, prompt, decode);
        let fused = |graph, chunk, decodes| Some(PairStep::Fused { graph, chunk, decodes });
        assert_eq!(step(Some((0, 3)), None), fused(0, 3, false));
        assert_eq!(step(Some((0, 4)), Some(5)), fused(1, 4, true));
        assert_eq!(step(Some((0, 40)), Some(5)), fused(2, 15, true));
        // 46 + 2 rows are all that the widest keeps; the next one takes more.
        assert_eq!(step(Some((46, 15)), None), fused(1, 7, false));
        // A decode row at 52 fits beside the narrower ones only, at 60 beside none.
        assert_eq!(step(Some((0, 15)), Some(52)), fused(1, 7, true));
        assert_eq!(step(Some((0, 15)), Some(60)), Some(PairStep::Decode));
        assert_eq!(step(Some((60, 2)), None), Some(PairStep::PromptToken));
        // One token is narrower still, unless a decode row is beside it.
        assert_eq!(
            (step(Some((9, 1)), None), step(Some((9, 1)), Some(5))),
            (Some(PairStep::PromptToken), fused(0, 1, true))
        );
        assert_eq!(
            (step(None, Some(62)), step(Some((3, 0)), None), step(None, None)),
            (Some(PairStep::Decode), None, None)
        );
    }

    #[test]
    fn settings_restrict_graphs_and_chunks() {
        let config = PairConfig { total_len: Some(8), prefill_len: Some(5), ..PairConfig::default() };
        let limits = PairLimits::new(64, &[4, 8, 16], true, &config);
        assert_eq!((limits.totals.as_slice(), limits.prefill_len), (&[4, 8][..], 5));
        assert_eq!(
            next_step(&limits, Some((0, 40)), None),
            Some(PairStep::Fused { graph: 1, chunk: 5, decodes: false })
        );
        // One of 56 rows is not used.
        assert_eq!(limits.capacity(8), 55);
    }

    proptest! {
        #[test]
        fn every_prompt_ends_and_nothing_is_cut(
            context in 8usize..80, totals in prop::collection::btree_set(2usize..24, 1..4),
            n in 1usize..80, at in 0usize..80, unused: bool,
        ) {
            let totals: Vec<usize> = totals.into_iter().filter(|&t| t + 2 <= context).collect();
            prop_assume!(!totals.is_empty());
            let limits = limits(context, &totals, unused);
            let (mut n_past, mut rest, mut decode) = (0, n.min(limits.limit()), Some(at.min(limits.limit() - 1)));
            let mut steps = 0;
            while let Some(step) = next_step(&limits, Some((n_past, rest)), decode) {
                steps += 1;
                prop_assert!(steps <= n + 1, "no end");
                match step {
                    PairStep::Fused { graph, chunk, decodes } => {
                        let total = limits.totals[graph];
                        prop_assert!(chunk > 0 && chunk < total && chunk <= rest);
                        prop_assert!(n_past + chunk <= limits.capacity(total));
                        prop_assert_eq!(decodes, decode.is_some());
                        if let Some(at) = decode.take() {
                            prop_assert!(at < limits.capacity(total));
                        }
                        // A narrower one would take less.
                        prop_assert!(graph == 0 || limits.totals[graph - 1] - 1 < chunk || n_past + chunk > limits.capacity(limits.totals[graph - 1]));
                        (n_past, rest) = (n_past + chunk, rest - chunk);
                    }
                    PairStep::Decode => prop_assert!(decode.take().is_some()),
                    PairStep::PromptToken => {
                        prop_assert!(rest == 1 || limits.totals.iter().all(|&t| n_past >= limits.capacity(t)));
                        (n_past, rest) = (n_past + 1, rest - 1);
                    }
                }
            }
            prop_assert_eq!((rest, decode), (0, None));
        }
    }
}
