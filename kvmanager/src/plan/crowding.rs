//! Window groups that several sequences share: where a group ends before the positions do.
//!
//! A sequence alone never fills a group with a window. Beside others, each keeps its own window there, and their sum may be
//! more than the group's slots.

use super::variants::Variants;
use super::{KvState, PlanError, Request};
use crate::group::{CacheGroup, MAX_GROUPS};

/// A number of rows for each cache group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupRows([usize; MAX_GROUPS]);

impl GroupRows {
    /// No rows.
    pub const NONE: Self = Self([0; MAX_GROUPS]);

    /// The rows of each group, by number; 0 beyond the last group.
    pub fn by_group(rows: impl Fn(usize) -> usize) -> Self {
        Self(std::array::from_fn(rows))
    }

    /// The rows of a group.
    pub fn of(&self, group: usize) -> usize {
        self.0.get(group).copied().unwrap_or(0)
    }
}

/// The variants with the ends that the rows of several sequences set; `None` where they set none.
pub(super) fn crowded(state: &KvState, requests: &[Request], variants: &Variants) -> Option<Variants> {
    if requests.len() < 2 && state.other_rows == GroupRows::NONE {
        return None;
    }
    let ends = |variant| {
        let groups = variants.groups().iter().enumerate();
        let left =
            groups.filter_map(|(g, group)| tokens(group, g, group.room(variant), state.other_rows.of(g), requests));
        // One that cannot even start ends before the rows there are.
        left.map(|n| n.map_or(state.n_valid_kv.saturating_sub(1), |n| state.n_valid_kv.saturating_add(n))).min()
    };
    variants.with_ends(&ends)
}

/// How many of the requests' tokens, in their order, a step may follow before the group is full: `None` without an end,
/// `Some(None)` where no step can start at all.
fn tokens(group: &CacheGroup, g: usize, room: usize, others: usize, requests: &[Request]) -> Option<Option<usize>> {
    let (size, sinks) = group.long.window()?;
    let most = size - 1 + sinks;
    let held: usize = requests.iter().map(|r| r.own_rows.of(g).min(most)).sum();
    let Some(mut left) = room.checked_sub(others + held) else { return Some(None) };
    let mut n = 0usize;
    for request in requests {
        let grows = (most - request.own_rows.of(g).min(most)).min(request.n_new);
        if grows > left {
            return Some(Some(n + left));
        }
        left -= grows;
        n = n.saturating_add(request.n_new);
    }
    None
}

/// The group that stops a plan, with the rows of other sequences in it and the most it holds as a step starts.
pub(super) fn full_group(state: &KvState, variants: &Variants) -> Option<PlanError> {
    let mut groups = variants.groups().iter().enumerate().map(|(g, group)| (group, state.other_rows.of(g)));
    let (group, others) = groups.find(|(group, n)| *n > 0 && group.long.window().is_some())?;
    let room = variants.all().iter().map(|&v| group.room(v)).max().unwrap_or(0);
    Some(PlanError::GroupFull { prefix: group.prefix.clone(), n_other: others, room })
}

#[cfg(test)]
mod tests {
    use super::super::{Admission, ContextLimit, KvForm, Policy, admit, plan};
    use super::*;
    use crate::cells::SeqId;
    use crate::group::Eviction;
    use genie_types::Variant;

    /// A default group of 128 and a window of 9 keys and 2 sinks on 32 slots.
    fn variants() -> Variants {
        let all = [Variant::new(1, 128).unwrap(), Variant::new(8, 128).unwrap()];
        let swa = CacheGroup {
            prefix: "swa_".into(),
            form: KvForm::Concat,
            ctx: all.iter().map(|&v| (v, 32)).collect(),
            long: Eviction::Window { size: 9, sinks: 2 },
        };
        Variants::with_groups(all, vec![CacheGroup::plain(KvForm::Concat), swa], None).unwrap()
    }

    fn rows(swa: usize) -> GroupRows {
        GroupRows::by_group(|g| if g == 1 { swa } else { 0 })
    }

    #[test]
    fn a_sequence_alone_has_no_end() {
        assert!(
            crowded(&KvState::at(90), &[Request { n_past: 90, n_new: 5, ..Request::default() }], &variants()).is_none()
        );
    }

    #[test]
    fn the_rows_of_others_shorten_steps_and_then_end_the_sequence() {
        // 10 rows of its own at most, 31 slots before a step of 1, 24 before one of 8.
        let at = |others: usize| KvState { n_valid_kv: 60, other_rows: rows(others), shared: true, ..KvState::at(0) };
        let ars = |others: usize, n_new: usize| {
            let request = Request { n_new, ..Request::default() };
            plan(&at(others), &[request], &variants(), &Policy::Lenient)
                .map(|plan| plan.steps().iter().map(|step| step.ar()).collect::<Vec<_>>())
        };
        assert_eq!(ars(14, 16), Ok(vec![8, 8]), "24 hold 14 and 10");
        assert_eq!(ars(20, 16).unwrap()[..2], [8, 1], "24 do not hold 20 and 8");
        assert_eq!(admit(&at(21), &variants()).n_fit, 68, "31 hold 21 and 10: the default group ends first");
        // 31 hold 22 and 9: after 10 tokens of its own nothing starts any more.
        let found = admit(&at(22), &variants());
        assert_eq!(found, Admission { n_fit: 10, bound: ContextLimit::Rows { reach: 70 } });
        assert!(ars(22, 10).is_ok());
        let full = PlanError::GroupFull { prefix: "swa_".into(), n_other: 22, room: 31 };
        assert_eq!(ars(22, 11), Err(full));
        assert_eq!(admit(&at(32), &variants()).n_fit, 0);
    }

    #[test]
    fn requests_fill_the_group_in_their_order() {
        let request =
            |seq: u8, own: usize, n_new: usize| Request { seq: SeqId(seq), n_past: own, n_new, own_rows: rows(own) };
        let state = |others| KvState { n_valid_kv: 40, other_rows: rows(others), shared: true, ..KvState::at(0) };
        let ends = |others, requests: &[Request]| {
            let (variants, state) = (variants(), state(others));
            let swa = &variants.groups()[1];
            tokens(swa, 1, swa.room(variants.all()[0]), state.other_rows.of(1), requests)
        };
        assert_eq!(
            ends(0, &[request(0, 10, 50), request(1, 0, 50), request(2, 0, 50)]),
            None,
            "three windows of 10 fit 31"
        );
        assert_eq!(ends(5, &[request(0, 10, 50), request(1, 0, 50), request(2, 0, 50)]), Some(Some(50 + 50 + 6)));
        assert_eq!(ends(5, &[request(0, 3, 4), request(1, 0, 50), request(2, 0, 50)]), Some(Some(4 + 50 + 9)));
        assert_eq!(ends(22, &[request(0, 10, 1)]), Some(None), "32 rows and 31 slots: no step can start");
    }
}
