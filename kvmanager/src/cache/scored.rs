//! What `KeyDiff` drops next, as plain values: the order of eviction that a saved cache goes on with.

use super::group_state::GroupState;
use crate::group::Eviction;
use crate::keydiff::Queue;
use genie_types::LayerIdx;

/// The last scoring of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScoredRows {
    /// Steps since then.
    pub age: usize,
    /// Reserved tokens that it left out. A cache that reserves another number scores again.
    pub sinks: usize,
    /// The heads of all key tensors.
    pub heads: Vec<ScoredHead>,
}

/// The order of eviction of one head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScoredHead {
    /// Its layer.
    pub layer: LayerIdx,
    /// The tensor's own head number, if it holds just one.
    pub own_head: Option<usize>,
    /// The head within the tensor.
    pub head: usize,
    /// Rows that were scored and are left, the next one to go last.
    pub rows: Vec<usize>,
}

impl ScoredRows {
    /// What is wrong with it for a group of `n` rows.
    pub(super) fn fault(&self, n: usize) -> Option<String> {
        let mut seen = vec![false; n];
        for ScoredHead { layer, head, rows, .. } in &self.heads {
            seen.fill(false);
            for &row in rows {
                match seen.get_mut(row) {
                    Some(seen) if !*seen => *seen = true,
                    Some(_) => {
                        return Some(format!("layer {}, head {head}: row {row} is to be dropped twice", layer.0));
                    }
                    None => return Some(format!("layer {}, head {head}: row {row} is to be dropped of {n}", layer.0)),
                }
            }
        }
        None
    }
}

impl GroupState {
    /// The last scoring; `None` before the first.
    pub(super) fn scored_rows(&self) -> Option<ScoredRows> {
        let Eviction::KeyDiff { sinks, .. } = self.rule.long else { return None };
        let head = |(&(layer, own_head, head), queue): (_, &Queue)| ScoredHead {
            layer,
            own_head,
            head,
            rows: queue.rows().to_vec(),
        };
        let heads: Vec<_> = self.queues.iter().map(head).collect();
        (!heads.is_empty()).then_some(ScoredRows { age: self.age, sinks, heads })
    }

    /// Goes on with a saved scoring, where it is one of this rule.
    pub(super) fn take_scored_rows(&mut self, saved: Option<&ScoredRows>) {
        let (Some(saved), Eviction::KeyDiff { sinks, .. }) = (saved, self.rule.long) else { return };
        if saved.sinks == sinks {
            self.age = saved.age;
            let queue = |head: &ScoredHead| ((head.layer, head.own_head, head.head), Queue::of_rows(head.rows.clone()));
            self.queues = saved.heads.iter().map(queue).collect();
        }
    }
}
