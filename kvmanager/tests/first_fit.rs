//! The slots that libGenie takes in a cache group with a window, against a list of slots: which block each step gets, which
//! keys each token sees, and what the planner cuts a prompt into.

use genie_types::SplitIdx;
use kvmanager::{
    CacheGroup, Column, Columns, Eviction, Keep, KvCache, KvForm, KvOptions, LogitsRequest, Plan, Policy, SeqId,
    Variants,
};

use crate::toy::{execute, finish, geometry, grid, process_seq, prompt, reference};

fn variants(ars: &[u32], slots: usize, size: usize) -> Variants {
    with_sinks(ars, slots, size, 0)
}

fn with_sinks(ars: &[u32], slots: usize, size: usize, sinks: usize) -> Variants {
    let specs = grid(ars, &[256]);
    let ctx = specs.iter().map(|&s| (s, slots)).collect();
    let long = Eviction::FirstFit { size, sinks };
    let swa = CacheGroup { prefix: "swa_".to_owned(), form: KvForm::Scatter, ctx, long };
    Variants::with_groups(specs, vec![CacheGroup::plain(KvForm::Scatter), swa], None).unwrap()
}

fn cache(variants: Variants) -> KvCache {
    KvCache::new(&geometry(2), variants, KvOptions::default()).unwrap()
}

fn plan(kv: &KvCache, n: usize) -> Plan {
    let mut plan = Plan::default();
    kv.plan_into(&[(SeqId(0), n)], &Policy::Genie, LogitsRequest::Last, &mut plan).unwrap();
    plan
}

/// The rule by definition.
struct Slots {
    held: Vec<Option<usize>>,
    /// Rows of the window besides the sinks.
    size: usize,
    sinks: usize,
    n_truncated: usize,
}

impl Slots {
    /// The block that `n` tokens take: all rows but the newest of the window have gone.
    fn take(&mut self, n: usize) -> usize {
        let mut rows: Vec<usize> = self.held.iter().flatten().copied().filter(|&pos| pos >= self.sinks).collect();
        rows.sort_unstable();
        let gone = &rows[..rows.len().saturating_sub(self.size - 1)];
        self.held.iter_mut().filter(|pos| pos.is_some_and(|pos| gone.contains(&pos))).for_each(|pos| *pos = None);
        let fits = |first: &usize| self.held[*first..first + n].iter().all(Option::is_none);
        let first = (0..=self.held.len() - n).find(fits);
        self.n_truncated += usize::from(first.is_none());
        let first = first.unwrap_or(0);
        self.held[first..first + n].fill(None);
        first
    }

    fn put(&mut self, first: usize, at: usize, n: usize) {
        (0..n).for_each(|i| self.held[first + i] = Some(at + i));
    }

    /// The keys that each of `n` tokens from position `at` sees, ascending.
    fn keys(&self, at: usize, n: usize) -> Vec<Vec<usize>> {
        let key_of = |row: usize| {
            let past = self.held.iter().flatten().copied();
            let mut keys: Vec<usize> = past.chain(at..=at + row).collect();
            keys.sort_unstable();
            while keys.len() > self.size + self.sinks {
                let oldest = keys.iter().position(|&key| key >= self.sinks).unwrap();
                keys.remove(oldest);
            }
            keys
        };
        (0..n).map(key_of).collect()
    }
}

#[test]
fn steps_take_the_slots_that_libgenie_takes() {
    let mut truncated = 0;
    for (ars, slots, size, sinks) in [
        (&[1, 8][..], 24, 9, 0),
        (&[1, 8], 24, 17, 0),
        (&[1, 8], 24, 20, 0),
        (&[1, 4, 16], 40, 33, 0),
        (&[1, 16], 20, 3, 0),
        (&[1, 8], 40, 32, 4),
        (&[1, 8], 24, 10, 3),
    ] {
        let mut kv = cache(with_sinks(ars, slots, size, sinks));
        let mut model = Slots { held: vec![None; slots], size, sinks, n_truncated: 0 };
        let mut state = (slots * 31 + size) as u32;
        let mut at = 0;
        while at < 220 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let n = if state >> 30 == 0 { (state >> 12) as usize % 19 + 1 } else { 1 };
            for step in plan(&kv, n).steps() {
                let what = format!("{ars:?}, {size} of {slots}, {sinks} sinks: {step}");
                let n = step.n_process();
                let first = model.take(n);
                let running = kv.begin(step).unwrap();
                assert_eq!(running.cache_index(1), first, "{what}");
                let mut seen = vec![Vec::new(); n];
                running.each_visible(1, |column| seen[column.row].extend(column.key)).unwrap();
                seen.iter_mut().for_each(|keys| keys.sort_unstable());
                assert_eq!(seen, model.keys(at, n), "{what}");
                finish(running, Keep::All);
                model.put(first, at, n);
                at += n;
            }
        }
        truncated += model.n_truncated;
    }
    assert!(truncated > 3, "the rule that writes over rows was tried {truncated} times");
}

#[test]
fn a_prompt_is_cut_into_pieces_that_leave_the_window_whole() {
    let pieces = |slots, size, n| -> Vec<usize> {
        plan(&cache(variants(&[1, 32], slots, size)), n).steps().iter().map(|step| step.n_process()).collect()
    };
    assert_eq!(pieces(64, 33, 70), [32, 32, 6], "32 and 32 are 64");
    assert_eq!(pieces(64, 40, 70), [25, 25, 20], "39 rows of the window leave 25 slots");
    assert_eq!(pieces(64, 60, 12), [5, 5, 2]);
    assert_eq!(pieces(64, 64, 3), [1, 1, 1]);
    // Recorded with a window of 36 in which 2 tokens are reserved.
    let kv = cache(with_sinks(&[1, 8], 40, 34, 2));
    assert_eq!(plan(&kv, 13).steps().iter().map(|step| step.n_process()).collect::<Vec<_>>(), [7, 6]);
}

#[test]
fn a_step_that_is_taken_back_leaves_the_slots_free() {
    let mut kv = cache(variants(&[1, 8], 24, 9));
    let first = plan(&kv, 5);
    let step = kv.begin(&first.steps()[0]).unwrap();
    step.rollback().unwrap();
    assert_eq!(kv.cells(1).unwrap().n_used(), 0);
    let mut step = kv.begin(&first.steps()[0]).unwrap();
    assert_eq!(step.cache_index(1), 0);
    execute(&mut step, &prompt(5, 0));
    // Of a draft three tokens are kept: they close up at the block's beginning.
    let keep = [true, false, true, false, true];
    (0..2).for_each(|split| step.commit(SplitIdx(split), Keep::Rows(&keep)).unwrap());
    step.finish().unwrap();
    let rows: Vec<(usize, usize)> = kv.cells(1).unwrap().used().map(|(slot, cell)| (slot, cell.pos)).collect();
    assert_eq!(rows, [(0, 0), (1, 2), (2, 4)]);
}

#[test]
fn sequences_that_share_the_group_keep_their_windows() {
    let mut kv = cache(variants(&[1, 8], 40, 9));
    let prompts = [prompt(20, 1), prompt(15, 2)];
    let mut said = [Vec::new(), Vec::new()];
    for turn in 0..30 {
        for (seq, said) in said.iter_mut().enumerate() {
            let tokens = if turn == 0 { prompts[seq].clone() } else { said[said.len() - 1..].to_vec() };
            said.push(process_seq(&mut kv, SeqId(seq as u8), &tokens));
        }
    }
    let rules = [Eviction::None, Eviction::Window { size: 9, sinks: 0 }];
    for (prompt, said) in prompts.iter().zip(&said) {
        assert_eq!(*said, reference(&rules, prompt, said.len()));
    }
}

#[test]
fn rows_beyond_the_slots_of_a_shorter_graph_move() {
    let specs = grid(&[1, 4], &[64, 128]);
    let ctx = specs.iter().map(|&s| (s, if s.cl().get() == 64 { 12 } else { 24 })).collect();
    let swa = CacheGroup {
        prefix: "swa_".to_owned(),
        form: KvForm::Scatter,
        ctx,
        long: Eviction::FirstFit { size: 12, sinks: 0 },
    };
    let variants = Variants::with_groups(specs.clone(), vec![CacheGroup::plain(KvForm::Scatter), swa], None).unwrap();
    let mut kv = cache(variants);
    let mut at = 0;
    // Blocks of 4 in the long graph: the fourth finds slot 0 free alone, so it takes 12 to 15.
    let mut run = |kv: &mut KvCache, long: bool, n: u32| {
        let variant = specs.iter().find(|s| s.ar().get() == n as usize && (s.cl().get() == 128) == long).unwrap();
        let columns = (0..n as usize).map(|i| Column { seq: SeqId(0), pos: at + i }).collect::<Columns>();
        at += n as usize;
        let step = kv.step(*variant, columns);
        let running = kv.begin(&step).unwrap();
        let mut seen = Vec::new();
        running.each_visible(1, |column| seen.extend((column.row == 0).then_some(column.key.unwrap()))).unwrap();
        seen.sort_unstable();
        finish(running, Keep::All);
        seen
    };
    for _ in 0..4 {
        run(&mut kv, true, 4);
    }
    assert!(kv.cells(1).unwrap().extent() > 12, "{:?}", kv.cells(1).unwrap());
    assert_eq!(run(&mut kv, false, 1), (5..17).collect::<Vec<_>>());
    assert!(kv.cells(1).unwrap().extent() <= 12);
}
