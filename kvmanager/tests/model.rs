//! The cache against a naive one: random sequences of all operations, on every mode, type and shape set in turn, beside
//! a model that keeps its rows in a `Vec`. After each operation both must hold the same rows of the same owners, with
//! the same bytes; during each step the graph's inputs and the mask must show exactly the rows that they should.
//!
//! 10,000 sequences a run, 125 for each of the 80 combinations; `KV_MODEL_CASES` changes that. Form, holes, threads, one
//! tensor per head, values transposed, keys by row, a type for each tensor and the groups' rules are drawn. A kind of action that
//! hardly ever has an effect would prove nothing, so effects are counted. Its many lines: one run applies every operation,
//! each beside its naive twin.

use genie_types::{SplitIdx, Variant};
use kvmanager::{
    Column, Columns, HolePolicy, InferenceStep, Keep, KvCache, KvDtype, KvError, KvForm, ModeKind, Policy, Reason,
    SeqId, Step, Tree, TreeColumn,
};
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use std::ops::Range;

use crate::actions::{Action, any_action};
use crate::effects::Effects;
use crate::naive::{self, Begun, Group, Model, read_past, token_bytes};
use crate::setup::{DTYPES, Rules, SHAPES, Setup, any_setup, build, frequencies, full, geometry, mode, windowed};

/// The tree of a step's columns, if it has one, and the other sequence that all of them see.
type Shape<'a> = Option<(&'a Tree, Option<SeqId>)>;

struct Run {
    setup: Setup,
    kv: KvCache,
    model: Model,
    serial: usize,
    /// Rows moved, caches moved and steps taken back: effects that the model's rows do not show.
    unseen: usize,
}

impl Run {
    /// A drawn action, aimed at what there is: most of them name a sequence that has rows, and a range within it.
    fn aim(&self, drawn: &Action) -> Action {
        let next = |seq: u8| self.model.next[usize::from(seq)];
        let live: Vec<u8> = (0..3).filter(|&seq| next(seq) > 0).collect();
        let seq = |seq: u8| if seq < 6 && !live.is_empty() { live[usize::from(seq) % live.len()] } else { seq % 3 };
        let other = |seq: u8| seq % 3;
        let range = |seq: u8, range: &Range<usize>| {
            let start = range.start % (next(seq) + 2);
            start..range.end.saturating_add(start).saturating_sub(range.start)
        };
        match drawn.clone() {
            Action::Rewind(n) => Action::Rewind(n % (next(0) + 2)),
            Action::Remove(s, r) => Action::Remove(seq(s), range(seq(s), &r)),
            Action::Keep(s) => Action::Keep(seq(s)),
            Action::Share(a, b, r) => Action::Share(seq(a), other(b), range(seq(a), &r)),
            Action::Copy(a, b, r) => Action::Copy(seq(a), other(b), range(seq(a), &r)),
            Action::Shift(s, r, by) => Action::Shift(seq(s), range(seq(s), &r), by),
            Action::Divide(s, r, by) => Action::Divide(seq(s), range(seq(s), &r), by),
            Action::Batch(slices) => Action::Batch(slices.into_iter().map(|(s, n)| (other(s), n)).collect()),
            aimed => aimed,
        }
    }

    /// Applies an action; whether it had an effect: other rows, positions or owners, or one of the unseen.
    fn takes_effect(&mut self, action: &Action) -> bool {
        let state = |run: &Self| {
            let owners: Vec<_> = (0..run.model.groups.len()).map(|g| run.model.owners(g)).collect();
            (owners, run.model.next.clone(), run.serial, run.unseen)
        };
        let before = state(self);
        self.apply(action);
        state(self) != before
    }

    fn check(&mut self) {
        for group in 0..self.model.groups.len() {
            let by_head = self.model.groups[group].by_head().is_some();
            let cells = self.kv.cells(group).unwrap().used();
            let mut cells: Vec<_> = cells.map(|(_, c)| (if by_head { 0 } else { c.pos }, c.seqs)).collect();
            cells.sort_unstable();
            assert_eq!(cells, self.model.owners(group), "rows of group {group}");
            let Group { window, ring, scored, .. } = &self.model.groups[group];
            let keeps_all = window.is_none() && ring.is_none();
            if scored.is_some() || self.setup.holes == HolePolicy::Close && keeps_all {
                let cells = self.kv.cells(group).unwrap();
                assert_eq!(cells.n_used(), cells.extent(), "holes are closed");
            }
        }
        for seq in 0..4 {
            assert_eq!(self.kv.next_pos(SeqId(seq)), self.model.next[usize::from(seq)], "next position of {seq}");
        }
    }

    /// All bytes, by way of an export.
    fn check_bytes(&mut self) {
        self.model.turn();
        let image = self.kv.export().unwrap();
        for (group, saved) in image.groups.iter().enumerate() {
            let n = saved.cells.len();
            let rows: Vec<_> = (0..n)
                .map(|row| {
                    let mut bytes = Vec::new();
                    for (tensor, data) in image.tensors.iter().zip(&image.data).filter(|(t, _)| t.group == group) {
                        naive::dense_row(tensor, data, n, row, &mut bytes);
                    }
                    (saved.cells[row].pos, saved.cells[row].seqs, bytes)
                })
                .collect();
            assert_eq!(saved.per_head_rows, self.model.groups[group].by_head().is_some());
            self.model.assert_rows(group, rows, "exported");
        }
    }

    /// One step, as an engine runs it; `keep` selects the columns to keep. Refused steps keep nothing; one that would make
    /// KeyDiff evict from several sequences changes nothing at all.
    fn step(&mut self, planned: &InferenceStep, keep: Option<&[bool]>, tree: Shape<'_>) -> Result<(), KvError> {
        self.step_before(planned, None, keep, tree)
    }

    /// One step with the variant of the one that comes behind it in its plan.
    fn step_before(
        &mut self,
        planned: &InferenceStep,
        next: Option<Variant>,
        keep: Option<&[bool]>,
        tree: Shape<'_>,
    ) -> Result<(), KvError> {
        let first = self.serial;
        let columns: Vec<Column> = planned.columns.iter().collect();
        let before = self.limits(planned.variant, false);
        let after = self.limits(planned.variant, true);
        let mixes = self.model.mixes(&columns, &before, &after);
        let slots = self.slots(planned);
        let begun = self.kv.begin(planned);
        let refused = matches!(&begun, Err(KvError::Refused { why: Reason::SeveralSequences, .. }));
        assert_eq!(refused, mixes, "{planned} with rows of several sequences");
        let mut step = begun?;
        self.serial += columns.len();
        if let Some((tree, _)) = tree {
            step.attend(tree).unwrap();
        }
        next.into_iter().for_each(|next| step.then(next).unwrap());
        self.model.make_room(&before, &slots);
        check_inputs(&mut step, &mut self.model, &self.setup, tree);
        for split in (0..step.n_splits()).map(SplitIdx) {
            let mut guard = step.split(split).unwrap();
            for view in guard.views() {
                view.new.fill(0xEE);
                for col in 0..columns.len() {
                    token_bytes(view.spec, self.setup.mode, planned.ar(), col, first + col, view.new);
                }
            }
            step.commit(split, keep.map_or(Keep::All, Keep::Rows)).unwrap();
        }
        step.finish().unwrap();
        let kept = (0..columns.len()).filter(|&i| keep.is_none_or(|k| k.get(i) == Some(&true)));
        let kept: Vec<_> = kept.map(|i| (columns[i], first + i)).collect();
        self.model.append(&kept, &after);
        Ok(())
    }

    /// What the slots hold as a step begins.
    fn slots(&self, step: &InferenceStep) -> Begun {
        let groups = self.kv.variants().groups();
        let held = |g: usize| self.kv.cells(g).unwrap().used().map(|(slot, c)| (slot, c.pos)).collect();
        Begun {
            columns: step.columns.iter().collect(),
            slots: (0..groups.len()).map(held).collect(),
            widths: groups.iter().map(|g| g.ctx_of(step.variant)).collect(),
        }
    }

    /// Rows that each group may hold as a step starts, or once it is kept: beyond the past of a shape there is still its
    /// context, unless it is the last.
    fn limits(&self, spec: Variant, kept: bool) -> Vec<usize> {
        let variants = self.kv.variants();
        let wide = kept && spec.cl().get() < variants.max_ctx();
        variants.groups().iter().map(|g| if wide { g.ctx_of(spec) } else { g.room(spec) }).collect()
    }

    /// A planned step that was refused: what it dropped by then stays dropped.
    fn refused(&mut self, step: &InferenceStep, e: &KvError) {
        if matches!(e, KvError::Refused { .. }) {
            return;
        }
        // A window counts on each position once and on one sequence; `share` and `divide` may have doubled some, sinks
        // among them.
        let has_company = self.model.groups.iter().any(|g| g.seqs() & !1 != 0);
        let crowded =
            self.model.has_doubles() || self.model.by_head() || has_company && self.setup.rules != Rules::Plain;
        assert!(matches!(e, KvError::PastTooLong { .. }) && crowded, "{step}: {e}");
        let limits = self.limits(step.variant, false);
        // A step that is refused has company in the group, so that no row is written over.
        let slots = self.slots(step);
        self.model.make_room(&limits, &slots);
        let too_long = self.model.groups.iter().zip(&limits).any(|(group, &limit)| group.len() > limit);
        assert!(too_long, "{step}: {e}");
    }

    /// A tree of columns, of which one path is kept.
    fn tree(&mut self, back: &[usize], leaf: usize, also: u8) {
        let also = (also < 3).then_some(SeqId(also));
        let parent = |(i, &back): (usize, &usize)| i.checked_sub(back).filter(|_| back > 0);
        let columns = back.iter().enumerate().map(|column| TreeColumn { parent: parent(column), also });
        let tree = Tree::new(columns).unwrap();
        let n_past = self.kv.next_pos(SeqId(0));
        let Ok(plan) = self.kv.plan(&[(SeqId(0), tree.len())], &Policy::Lenient) else { return };
        let [planned] = plan.steps() else { return };
        if plan.is_reprocess() {
            return;
        }
        let step = self.kv.step(planned.variant, tree.columns(SeqId(0), n_past));
        let path = tree.path(leaf % tree.len());
        let keep: Vec<bool> = (0..tree.len()).map(|column| path.contains(&column)).collect();
        if let Err(e) = self.step(&step, Some(&keep), Some((&tree, also))) {
            self.refused(&step, &e);
        }
    }

    fn process(&mut self, n: usize, keep: Option<&[bool]>) {
        let Ok(plan) = self.kv.plan(&[(SeqId(0), n)], &Policy::Lenient) else { return };
        let has_company = self.model.groups.iter().any(|g| g.seqs() & !1 != 0);
        for (i, step) in plan.steps().iter().enumerate() {
            let next = plan.steps().get(i + 1).map(|next| next.variant);
            if plan.is_reprocess() {
                // The whole sequence again: only without company.
                assert!(!has_company);
                self.model.remove(0, 0..usize::MAX);
                self.model.next[0] = 0;
            }
            let keep_of_step = keep.map(|k| &k[..k.len().min(step.n_process())]);
            let done = self.step_before(step, next, keep_of_step, None);
            if let Err(e) = done {
                return self.refused(step, &e);
            }
            if keep.is_some() {
                return;
            }
        }
    }

    fn batch(&mut self, slices: &[(u8, usize)]) {
        let mut next = self.model.next.clone();
        let mut columns = Vec::new();
        for &(seq, n) in slices {
            for _ in 0..n {
                columns.push(Column { seq: SeqId(seq), pos: next[usize::from(seq)] });
                next[usize::from(seq)] += 1;
            }
        }
        // The smallest variant that takes them all and still sees what there is.
        let used: Vec<_> = self.model.groups.iter().map(Group::len).collect();
        let rules = self.kv.variants().groups().to_vec();
        let specs = self.kv.variants().all().to_vec();
        let fits =
            |s: &&Variant| s.ar().get() >= columns.len() && rules.iter().zip(&used).all(|(r, &n)| n <= r.room(**s));
        let Some(&spec) = specs.iter().find(fits) else { return };
        let step = self.kv.step(spec, columns.into_iter().collect::<Columns>());
        match self.step(&step, None, None) {
            Ok(()) | Err(KvError::Refused { .. }) => {}
            Err(e) => panic!("{e}"),
        }
    }

    /// Whether the cache refuses an operation on rows, as it must once heads differ.
    fn refuses_by_head(&mut self, action: &Action) -> bool {
        if !self.model.by_head() {
            return false;
        }
        let kv = &mut self.kv;
        let done = match action {
            Action::Remove(seq, range) => kv.remove(SeqId(*seq), range.clone()).map(drop),
            Action::Keep(seq) => kv.keep(SeqId(*seq)),
            Action::Share(src, dst, range) => kv.share(SeqId(*src), SeqId(*dst), range.clone()),
            Action::Copy(src, dst, range) => kv.copy(SeqId(*src), SeqId(*dst), range.clone()),
            Action::Shift(seq, range, delta) => kv.shift(SeqId(*seq), range.clone(), *delta),
            Action::Divide(seq, range, by) => kv.divide(SeqId(*seq), range.clone(), *by),
            Action::ShiftOut(sinks, n) if sinks + n <= self.model.next[0] => {
                kv.shift_out(SeqId(0), *sinks, *n).map(drop)
            }
            Action::Compact(max) => kv.compact(*max).map(drop),
            _ => return false,
        };
        assert!(matches!(done, Err(KvError::Refused { why: Reason::PerHeadRows, .. })), "{action:?}: {done:?}");
        true
    }

    /// A step that is taken back once a split has kept it. What the rules have dropped by then stays dropped.
    fn abandon(&mut self, planned: &InferenceStep) {
        let columns: Vec<Column> = planned.columns.iter().collect();
        let (before, after) = (self.limits(planned.variant, false), self.limits(planned.variant, true));
        let refused = self.model.mixes(&columns, &before, &after);
        let slots = self.slots(planned);
        match self.kv.begin(planned) {
            Ok(mut step) => {
                assert!(!refused);
                self.model.make_room(&before, &slots);
                self.model.turn();
                step.commit(SplitIdx(0), Keep::All).unwrap();
                step.rollback().unwrap();
                self.model.drop_for(&columns, &after);
                self.unseen += 1;
            }
            Err(KvError::PastTooLong { .. }) => self.model.make_room(&before, &slots),
            Err(e) => assert!(refused, "{e}"),
        }
    }

    fn apply(&mut self, action: &Action) {
        // A ring counts on the positions of one dialog.
        let many = matches!(
            action,
            Action::Batch(_) | Action::Share(..) | Action::Copy(..) | Action::Shift(..) | Action::Divide(..)
        );
        if self.setup.rules == Rules::Ring && (many || matches!(action, Action::Keep(seq) if *seq != 0)) {
            return;
        }
        // The model finds the rows of slots by their positions, so none may be there twice.
        if self.setup.rules == Rules::PlainAndFirstFit && matches!(action, Action::Shift(..) | Action::Divide(..)) {
            return;
        }
        if self.refuses_by_head(action) {
            return;
        }
        match action {
            Action::Process(n) => self.process(*n, None),
            Action::Select(keep) => self.process(keep.len(), Some(keep)),
            Action::Tree(back, leaf, also) => self.tree(back, *leaf, *also),
            Action::Batch(spans) => self.batch(spans),
            Action::Rewind(n) => match self.kv.rewind(SeqId(0), *n) {
                Ok(()) => {
                    assert!(!self.model.by_head() || *n == 0 || *n == self.model.next[0], "rewind to {n}");
                    self.model.rewind(*n);
                }
                Err(_) => assert!(*n > self.model.next[0] || self.model.lacks(*n)),
            },
            Action::Remove(seq, range) => {
                self.kv.remove(SeqId(*seq), range.clone()).unwrap();
                self.model.remove(*seq, range.clone());
            }
            Action::Keep(seq) => {
                self.kv.keep(SeqId(*seq)).unwrap();
                self.model.keep(*seq);
            }
            Action::Share(src, dst, range) => {
                self.kv.share(SeqId(*src), SeqId(*dst), range.clone()).unwrap();
                self.model.share(*src, *dst, range.clone());
            }
            Action::Copy(src, dst, range) => match self.kv.copy(SeqId(*src), SeqId(*dst), range.clone()) {
                Ok(()) => self.model.copy(*src, *dst, range.clone()),
                Err(KvError::Refused { .. }) => {
                    assert!(src != dst && !self.model.can_copy(*src, range.clone(), &self.kv))
                }
                Err(e) => panic!("{e}"),
            },
            Action::Shift(seq, range, delta) => match self.kv.shift(SeqId(*seq), range.clone(), *delta) {
                Ok(()) => self.model.remap(*seq, range.clone(), |p| p.checked_add_signed(*delta)),
                Err(KvError::Refused { .. }) => assert!(!self.model.can_part(*seq, range.clone(), &self.kv)),
                Err(e) => panic!("{e}"),
            },
            Action::Divide(seq, range, by) => match self.kv.divide(SeqId(*seq), range.clone(), *by) {
                Ok(()) => self.model.remap(*seq, range.clone(), |p| Some(p / by)),
                Err(KvError::Refused { .. }) => assert!(!self.model.can_part(*seq, range.clone(), &self.kv)),
                Err(e) => panic!("{e}"),
            },
            Action::ShiftOut(sinks, n) => {
                let n_past = self.model.next[0];
                if sinks + n <= n_past && self.model.can_part(0, 0..usize::MAX, &self.kv) {
                    self.kv.shift_out(SeqId(0), *sinks, *n).unwrap();
                    self.model.remove(0, *sinks..sinks + n);
                    if self.model.next[0] == n_past {
                        self.model.remap(0, sinks + n..n_past, |p| p.checked_sub(*n));
                    }
                }
            }
            Action::Compact(max) => {
                self.unseen += self.kv.compact(*max).unwrap();
            }
            Action::Move { mode: to, shapes } => {
                let to = if self.setup.form == KvForm::Scatter { to % 2 * 3 } else { *to };
                let image = self.kv.export().unwrap();
                let mut kv = build(&self.setup, mode(to), *shapes).unwrap();
                match kv.import(&image) {
                    Ok(()) => {
                        self.model.turn();
                        (self.kv, self.setup.mode) = (kv, to % 4);
                        self.unseen += 1;
                    }
                    Err(KvError::Foreign { .. }) => {
                        assert!(
                            (0..image.groups.len())
                                .any(|g| image.groups[g].cells.len() > kv.cells(g).unwrap().capacity())
                        );
                        self.model.turn();
                    }
                    Err(e) => panic!("{e}"),
                }
            }
            Action::Abandon => {
                if let Ok(plan) = self.kv.plan(&[(SeqId(0), 2)], &Policy::Lenient)
                    && !plan.is_reprocess()
                {
                    self.abandon(&plan.steps()[0]);
                }
            }
            Action::Clear => {
                self.kv.clear().unwrap();
                self.model.clear();
            }
        }
    }
}

/// What the graph would see: past inputs and mask, against the model.
fn check_inputs(step: &mut Step<'_>, model: &mut Model, setup: &Setup, tree: Shape<'_>) {
    let (spec, tokens) = (step.variant(), step.columns().to_vec());
    model.turn();
    for group in 0..model.groups.len() {
        let rule = step.variants().groups()[group].clone();
        let by_count = model.groups[group].by_count;
        let (ar, width) = (spec.ar().get(), rule.ctx_of(spec));
        let past_len = rule.past_len(spec);
        let mut mask = vec![0u8; ar * width];
        step.fill_mask(group, 0, 1, &mut mask).unwrap();
        let cells: Vec<_> = step.cells(group).unwrap().used().map(|(s, c)| (s, *c)).collect();
        let extent = step.cells(group).unwrap().extent();
        let past = match (rule.form, mode(setup.mode)) {
            (KvForm::Concat, ModeKind::ShiftConcat(_) | ModeKind::PointerShift(_)) => past_len - extent,
            _ => 0,
        };
        let new = match rule.form {
            KvForm::Concat => width - ar,
            KvForm::Scatter if past_len > 0 => step.cache_index(group),
            KvForm::Scatter => 0,
        };
        // The bytes that each used slot shows to the graph.
        let mut slots: Vec<Vec<u8>> = cells.iter().map(|_| Vec::new()).collect();
        for split in (0..step.n_splits()).map(SplitIdx) {
            let mut guard = step.split(split).unwrap();
            for view in guard.views().filter(|v| v.spec.group == group) {
                for ((slot, _), bytes) in cells.iter().zip(&mut slots) {
                    read_past(view.spec, setup.mode, past_len, past + slot, view.past, bytes);
                }
            }
        }
        let rows = cells.iter().zip(&slots).map(|((_, c), b)| (c.pos, c.seqs, b.clone())).collect();
        model.assert_rows(group, rows, &format!("as inputs of {spec}"));
        // Scatter graphs overwrite their block: nothing may live there.
        if rule.form == KvForm::Scatter && past_len > 0 {
            // libGenie's rule has the padding cover what it will.
            let n = if model.groups[group].first_fit { tokens.len() } else { ar };
            assert!(new + n <= width && cells.iter().all(|(slot, _)| !(new..new + n).contains(slot)));
        }
        for i in 0..ar {
            let mut seen = vec![0u8; width];
            if let Some(token) = tokens.get(i) {
                let before = |j: usize| match tree {
                    Some((tree, _)) => tree.path(i).contains(&j),
                    None => tokens[j].pos < token.pos,
                };
                // Rows that libGenie's window hides: the oldest, until it shows no more than it should.
                let mut hidden: Vec<usize> = Vec::new();
                if let Some((w, s)) = model.groups[group].window.filter(|_| by_count) {
                    let new = (0..tokens.len()).filter(|&j| j == i || before(j)).map(|j| tokens[j].pos);
                    let mut keys: Vec<usize> = cells.iter().map(|(_, c)| c.pos).chain(new).collect();
                    keys.sort_unstable();
                    let excess = keys.len().saturating_sub(w + s);
                    hidden = keys.into_iter().filter(|&pos| pos >= s).take(excess).collect();
                }
                let visible = |pos: usize| match model.groups[group].window {
                    Some(_) if by_count => !hidden.contains(&pos),
                    window => window.is_none_or(|(w, s)| pos + w > token.pos || pos < s),
                };
                let by_head = model.groups[group].by_head().is_some();
                for (slot, cell) in &cells {
                    let also = tree.is_some_and(|(_, also)| also.is_some_and(|seq| cell.has(seq)));
                    if by_head || also || cell.has(token.seq) && cell.pos <= token.pos && visible(cell.pos) {
                        seen[past + slot] = 1;
                    }
                }
                for (j, other) in tokens.iter().enumerate() {
                    if j == i || (other.seq == token.seq && before(j) && visible(other.pos)) {
                        seen[new + j] = 1;
                    }
                }
            }
            assert_eq!(mask[i * width..(i + 1) * width], seen, "mask row {i} of group {group}");
        }
    }
}

fn cases() -> u32 {
    std::env::var("KV_MODEL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(if cfg!(miri) { 80 } else { 10_000 })
}

fn start(setup: Setup) -> Run {
    let kv = build(&setup, mode(setup.mode), setup.shapes).unwrap();
    let model = Model::new(&geometry(&setup), &kv, frequencies(setup.rules));
    Run { model, kv, setup, serial: 0, unseen: 0 }
}

fn play(setup: Setup, actions: &[Action]) {
    let mut run = start(setup);
    for action in actions {
        run.apply(action);
        run.check();
    }
    run.check_bytes();
}

/// Plays drawn actions; `played` lists what they were aimed at.
fn play_drawn(setup: Setup, drawn: &[Action], effects: &Effects, played: &mut Vec<Action>) {
    let mut run = start(setup);
    for action in drawn {
        let action = run.aim(action);
        played.push(action.clone());
        let dropped = run.model.n_dropped;
        let took_effect = run.takes_effect(&action);
        effects.count(action.kind(), took_effect);
        if matches!(action, Action::Process(_)) && run.setup.rules != Rules::Plain {
            let rules = Rules::ALL.iter().position(|r| *r == run.setup.rules).unwrap();
            effects.count(Action::KINDS.len() + rules, run.model.n_dropped > dropped);
        }
        run.check();
    }
    run.check_bytes();
}

#[test]
fn a_scatter_window_comes_back_to_a_shorter_context() {
    let actions = [Action::Process(11), Action::Process(1)];
    play(windowed(KvForm::Scatter, 1, Rules::Window, 7, 2), &actions);
}

#[test]
fn copying_nothing_parts_nothing() {
    let actions = [Action::Process(10), Action::Share(0, 2, 5..9), Action::Copy(1, 0, 0..8)];
    play(windowed(KvForm::Concat, 0, Rules::PlainAndWindow, 1, 0), &actions);
}

#[test]
fn a_window_without_its_sinks_goes_on() {
    let actions = [Action::Process(6), Action::ShiftOut(0, 1), Action::Process(5)];
    play(windowed(KvForm::Concat, 0, Rules::Window, 1, 2), &actions);
}

#[test]
fn doubled_positions_are_refused_when_a_window_cannot_hold_them() {
    let actions =
        [Action::Move { mode: 0, shapes: 3 }, Action::Process(10), Action::Divide(0, 8..10, 2), Action::Process(4)];
    play(windowed(KvForm::Concat, 0, Rules::Window, 5, 1), &actions);
}

#[test]
fn a_divided_end_does_not_go_behind_other_rows() {
    let actions = [Action::Process(2), Action::Process(13), Action::Divide(0, 14..15, 3), Action::Process(5)];
    play(windowed(KvForm::Concat, 1, Rules::PlainAndWindow, 7, 2), &actions);
}

#[test]
fn a_refused_step_turns_no_keys() {
    let setup = Setup { mode: 1, dtype: KvDtype::F16, ..windowed(KvForm::Concat, 1, Rules::Window, 6, 2) };
    let actions = [
        Action::Process(5),
        Action::Shift(0, 1..5, -1),
        Action::Process(3),
        Action::Shift(0, 0..1, 2),
        Action::Process(2),
        Action::ShiftOut(0, 1),
    ];
    play(setup, &actions);
}

#[test]
fn a_graph_without_past_is_not_for_company() {
    let actions = [Action::Batch(vec![(1, 3), (1, 2), (1, 3)]), Action::Process(13)];
    play(windowed(KvForm::Concat, 3, Rules::PlainAndWindow, 1, 0), &actions);
}

#[test]
fn a_rewind_to_where_it_stands_keeps_rows_by_head() {
    let (setup, mut actions) = full(1);
    actions.extend([Action::Process(1), Action::Rewind(12), Action::Process(1)]);
    play(setup, &actions);
}

#[test]
fn keys_are_turned_before_they_are_scored() {
    let (setup, mut actions) = full(0);
    // AR-4 holds 8 rows: it evicts as it begins.
    actions.extend([Action::Shift(0, 5..11, 3), Action::Process(4)]);
    play(setup, &actions);
}

#[test]
fn a_step_that_is_taken_back_leaves_the_same_rows_in_all_splits() {
    let (setup, mut actions) = full(2);
    actions.extend([Action::Abandon, Action::Process(3), Action::Abandon, Action::Process(1)]);
    play(setup, &actions);
}

#[test]
fn keydiff_evicts_from_one_sequence() {
    let actions = [
        Action::Batch(vec![(0, 2), (1, 2)]),
        Action::Process(4),
        // Refused: 8 rows, two of them another sequence's, and a past of 8.
        Action::Process(4),
        Action::Batch(vec![(0, 1), (1, 1)]),
        Action::Remove(1, 0..usize::MAX),
        Action::Process(4),
        // Refused: the rows by head are not this sequence's.
        Action::Batch(vec![(1, 1)]),
        Action::Process(4),
    ];
    play(full(1).0, &actions);
}

#[test]
fn sinks_are_positions_wherever_their_rows_lie() {
    // Rows from the end take the places of rows 0 and 1, so the sinks 0 and 1 that are left lie elsewhere.
    let actions = [
        Action::Process(4),
        Action::Shift(0, 0..2, 4),
        Action::Shift(0, 2..4, -2),
        Action::Process(4),
        Action::Process(4),
        Action::Process(13),
    ];
    play(full(2).0, &actions);
    let actions = [Action::Process(8), Action::Remove(0, 0..1), Action::Process(9), Action::Process(5)];
    play(full(2).0, &actions);
}

#[test]
fn a_step_that_evicts_and_is_taken_back_finds_its_rows_in_any_mode() {
    let setup = Setup { per_head: true, update_every: 1, ..windowed(KvForm::Concat, 0, Rules::PlainAndKeyDiff, 1, 0) };
    let actions = [Action::Move { mode: 2, shapes: 3 }, Action::Batch(vec![(0, 2), (0, 3), (0, 2)]), Action::Abandon];
    play(Setup { dtype: KvDtype::F32, shapes: 3, ..setup }, &actions);
}

#[test]
fn the_cache_is_the_naive_cache() {
    let combinations = ModeKind::ALL.len() * DTYPES.len() * SHAPES.len();
    let each = cases().div_ceil(combinations as u32);
    let effects = Effects::new([&Action::KINDS[..], &Rules::NAMES].concat());
    for (mode, dtype) in (0..ModeKind::ALL.len()).flat_map(|mode| DTYPES.map(|dtype| (mode, dtype))) {
        for shapes in 0..SHAPES.len() {
            let config = ProptestConfig {
                max_shrink_iters: 4_000,
                failure_persistence: None,
                ..ProptestConfig::with_cases(each)
            };
            let sequences = (any_setup(mode, dtype, shapes), prop::collection::vec(any_action(), 1..16));
            let done = TestRunner::new(config).run(&sequences, |(setup, drawn)| {
                play_drawn(setup, &drawn, &effects, &mut Vec::new());
                Ok(())
            });
            if let Err(failure) = done {
                let mut played = Vec::new();
                if let TestError::Fail(_, (setup, drawn)) = &failure {
                    let again = || play_drawn(setup.clone(), drawn, &effects, &mut played);
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(again)).ok();
                }
                panic!("mode {mode}, {dtype:?}, shapes {shapes}: {failure}\nplayed: {played:?}");
            }
        }
    }
    println!("{effects}");
    effects.check();
}
