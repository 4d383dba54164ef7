//! How the tree of an `ssd-q1` dialog grows: how many tokens each level tries.

use genie_types::TokenId;

use crate::conversation::trees::DraftTree;
use crate::sampler::SamplerRules;

/// Which nodes of a level have children, by Genie's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BranchMode {
    /// `all-expand`: every one.
    #[default]
    AllExpand,
    /// `top-1`: the first one only.
    Top1,
}

impl BranchMode {
    /// By Genie's name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "all-expand" => Some(Self::AllExpand),
            "top-1" => Some(Self::Top1),
            _ => None,
        }
    }
}

/// Children of a node, level by level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branches {
    counts: Vec<usize>,
    mode: BranchMode,
}

impl Branches {
    /// A node of level `d - 1` has `counts[d - 1]` children.
    pub fn new(counts: Vec<usize>, mode: BranchMode) -> Self {
        Self { counts, mode }
    }

    /// The numbers.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// Levels below the newest token.
    pub fn n_levels(&self) -> usize {
        self.counts.len()
    }

    /// Nodes of a whole tree, the newest token among them.
    pub fn n_nodes(&self) -> usize {
        let (mut n_nodes, mut n_parents) = (1_usize, 1_usize);
        for &n in &self.counts {
            let level = n_parents.saturating_mul(n);
            n_nodes = n_nodes.saturating_add(level);
            n_parents = if self.mode == BranchMode::AllExpand { level } else { 1 };
        }
        n_nodes
    }

    /// From the logits of a node's forecast rows the best tokens of each level, as many as a level may need: one more than it
    /// has branches, since a parent's own token is passed over. Of equal ones the lower id comes first, by libGenie's rules the
    /// higher.
    pub(super) fn candidates<'l>(
        &self,
        rows: impl Iterator<Item = &'l [f32]>,
        n_vocab: usize,
        rules: SamplerRules,
    ) -> Vec<Vec<TokenId>> {
        rows.zip(&self.counts).map(|(logits, n)| best(&logits[..n_vocab.min(logits.len())], n + 1, rules)).collect()
    }

    /// Adds the nodes behind row 0, level by level.
    pub(super) fn grow(&self, tree: &mut DraftTree, candidates: &[Vec<TokenId>]) {
        let mut parents = vec![0];
        for (&n, level) in self.counts.iter().zip(candidates) {
            let mut nodes = Vec::with_capacity(parents.len() * n);
            for parent in parents {
                let own = tree.rows()[parent].token;
                let tokens = level.iter().filter(|token| **token != own).take(n);
                nodes.extend(tokens.map(|&token| tree.offer(parent, token)));
            }
            if self.mode == BranchMode::Top1 {
                nodes.truncate(1);
            }
            parents = nodes;
        }
    }
}

/// The ids of the largest logits, best first.
fn best(logits: &[f32], n: usize, rules: SamplerRules) -> Vec<TokenId> {
    let higher = rules == SamplerRules::Genie;
    let mut found: Vec<(usize, f32)> = Vec::with_capacity(n + 1);
    for (id, &logit) in logits.iter().enumerate() {
        let place = found.partition_point(|other| if higher { other.1 > logit } else { other.1 >= logit });
        if place == n {
            continue;
        }
        found.insert(place, (id, logit));
        found.truncate(n);
    }
    found.into_iter().map(|(id, _)| TokenId(id as u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(raw: &[u32]) -> Vec<TokenId> {
        raw.iter().copied().map(TokenId).collect()
    }

    #[test]
    fn the_largest_come_first() {
        let logits = [1.0, 5.0, 5.0, 2.0, 7.0, 5.0];
        assert_eq!(best(&logits, 3, SamplerRules::Documented), ids(&[4, 1, 2]));
        assert_eq!(best(&logits, 3, SamplerRules::Genie), ids(&[4, 5, 2]));
        assert_eq!(best(&[1.0], 3, SamplerRules::Genie), ids(&[0]));
        assert!(best(&[1.0], 0, SamplerRules::Documented).is_empty());
    }

    #[test]
    fn a_tree_as_recorded() {
        // `br_3_2_all-expand` and a tree of the same candidates by `top-1`.
        let candidates = [ids(&[1214, 932, 904, 38]), ids(&[932, 904, 1214])];
        let cases = [
            (BranchMode::AllExpand, vec![626, 1214, 932, 904, 932, 904, 904, 1214, 932, 1214]),
            (BranchMode::Top1, vec![626, 1214, 932, 904, 932, 904]),
        ];
        for (mode, expected) in cases {
            let branches = Branches::new(vec![3, 2], mode);
            let mut tree = DraftTree::new(TokenId(626));
            branches.grow(&mut tree, &candidates);
            assert_eq!(tree.rows().iter().map(|row| row.token).collect::<Vec<_>>(), ids(&expected), "{mode:?}");
            assert_eq!((tree.n_rows(), tree.n_offers()), (branches.n_nodes(), branches.n_nodes() - 1));
        }
        let parents: Vec<_> = {
            let mut tree = DraftTree::new(TokenId(626));
            Branches::new(vec![3, 2], BranchMode::AllExpand).grow(&mut tree, &candidates);
            tree.rows().iter().map(|row| row.parent).collect()
        };
        assert_eq!(parents[1..], [0, 0, 0, 1, 1, 2, 2, 3, 3].map(Some));
    }

    #[test]
    fn modes_have_names() {
        assert_eq!(BranchMode::from_name("top-1"), Some(BranchMode::Top1));
        assert_eq!(BranchMode::from_name("all-expand"), Some(BranchMode::default()));
        assert_eq!(BranchMode::from_name("best"), None);
    }
}
