//! Which nodes the tree of an `eaglet` dialog has: candidates of a row, the frontier of a level, what the target is offered.
//!
//! *Units*: the score of a node is the product of the draft's probabilities on the way to it.

use genie_types::TokenId;

/// A token that may follow, and how likely the draft model takes it to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) token: TokenId,
    /// The node that it follows; `None` for the newest token.
    pub(super) parent: Option<usize>,
    pub(super) score: f64,
}

/// When a tree ends before its last level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EarlyStop {
    /// A level is the last one where the entropy of its best nodes' scores, in nats, is above this.
    pub entropy: f64,
    /// Levels that there are in any case.
    pub min_levels: usize,
}

/// The likeliest tokens of a row, likeliest first and of equal ones the lower id: at most `n`, and no more than it takes to
/// reach the probability `top_p`. The temperature does not count.
pub(super) fn candidates(logits: &[f32], n: usize, top_p: f32) -> Vec<(TokenId, f64)> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |logit: f32| f64::from(logit - most).exp();
    let sum: f64 = logits.iter().map(|&logit| weight(logit)).sum();
    let mut best: Vec<(u32, f32)> = Vec::with_capacity(n + 1);
    for (id, &logit) in (0_u32..).zip(logits) {
        if best.len() < n || best.last().is_some_and(|last| logit > last.1) {
            let at = best.partition_point(|(_, other)| *other >= logit);
            best.insert(at, (id, logit));
            best.truncate(n);
        }
    }
    let mut reached = 0.0;
    let within = best.into_iter().map(|(id, logit)| (TokenId(id), weight(logit) / sum)).take_while(|(_, p)| {
        let takes = reached < f64::from(top_p) || reached == 0.0;
        reached += p;
        takes
    });
    within.collect()
}

/// How uncertain it is which node of a level's best will be right: the entropy, in nats, of their scores brought to sum 1.
pub(super) fn uncertainty(nodes: &[Node], best: &[usize]) -> f64 {
    let sum: f64 = best.iter().map(|&node| nodes[node].score).sum();
    let shares = best.iter().map(|&node| nodes[node].score / sum).filter(|share| *share > 0.0);
    -shares.map(|share| share * share.ln()).sum::<f64>()
}

/// The `n` best of the nodes from `first` on, best first, of equal ones the earlier.
pub(super) fn best(nodes: &[Node], first: usize, n: usize, may: impl Fn(&Node) -> bool) -> Vec<usize> {
    let mut order: Vec<usize> = (first..nodes.len()).filter(|&i| may(&nodes[i])).collect();
    order.sort_by(|&a, &b| nodes[b].score.total_cmp(&nodes[a].score));
    order.truncate(n);
    order
}

/// The `n` best nodes in the order they were made. A node is no better than the one that it follows and comes after it, so that
/// one is among them.
pub(super) fn offered(nodes: &[Node], n: usize) -> Vec<usize> {
    let mut chosen = best(nodes, 0, n, |_| true);
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_cut_by_number_and_by_probability() {
        let logits = [0.0, 3.0, 3.0, 1.0, -20.0];
        let of = |n, p| candidates(&logits, n, p).iter().map(|(token, _)| token.0).collect::<Vec<_>>();
        assert_eq!(of(3, 1.0), [1, 2, 3]);
        assert_eq!(of(9, 1.0), [1, 2, 3, 0, 4]);
        // Each of the two best has 0.457.
        assert_eq!((of(9, 0.4), of(9, 0.46), of(9, 0.0)), (vec![1], vec![1, 2], vec![1]));
        let p: f64 = candidates(&logits, 9, 1.0).iter().map(|(_, p)| p).sum();
        assert!((p - 1.0).abs() < 1e-12, "{p}");
    }

    #[test]
    fn what_is_offered_has_its_parents() {
        let node = |parent, score| Node { token: TokenId(0), parent, score };
        let nodes = [
            node(None, 0.5),
            node(None, 0.4),
            node(Some(0), 0.5),
            node(Some(1), 0.1),
            node(Some(2), 0.5),
            node(Some(2), 0.3),
        ];
        assert_eq!(offered(&nodes, 4), [0, 1, 2, 4]);
        assert_eq!(offered(&nodes, 1), [0]);
        assert!((uncertainty(&nodes, &[0, 2, 4]) - 3_f64.ln()).abs() < 1e-12);
        assert_eq!(best(&nodes, 2, 2, |_| true), [2, 4]);
        assert_eq!(best(&nodes, 2, 2, |node| node.parent != Some(0)), [4, 5]);
    }
}
