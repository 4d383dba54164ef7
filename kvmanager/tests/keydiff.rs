//! KeyDiff with several heads and wide steps, beside a naive one: each head has its own list of tokens, its own queue, and
//! forgets tokens of its own; keys and values must always hold the same ones.

use genie_types::{LayerIdx, SplitIdx, Variant};
use kvmanager::{
    CacheGroup, Eviction, Keep, KeyDiff, KeyScorer, KvCache, KvDtype, KvForm, KvGeometry, KvKind, KvLayout, KvOptions,
    KvTensor, ModeKind, Policy, ScoredRows, SeqId, SplitGeometry, Variants,
};
use proptest::prelude::{ProptestConfig, prop, proptest};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const HEADS: usize = 3;
const DIM: usize = 4;

/// What a token's key scores in a head: its first element. No two tokens score the same.
fn score(token: usize, head: usize) -> f32 {
    ((token * 7919 + head * 104_729) % 9973) as f32 + token as f32 / 1024.0
}

struct First;

impl KeyScorer for First {
    fn score(&mut self, _: LayerIdx, _: usize, keys: &[f32], scores: &mut [f32]) {
        scores.iter_mut().zip(keys.chunks_exact(DIM)).for_each(|(score, key)| *score = key[0]);
    }
}

#[derive(Default)]
struct Naive {
    /// Tokens by head.
    rows: [Vec<usize>; HEADS],
    queues: [Vec<usize>; HEADS],
    age: usize,
}

impl Naive {
    fn evict(&mut self, n: usize, sinks: usize, update_every: usize) {
        let n = n.min(self.rows[0].len().saturating_sub(sinks));
        if n == 0 {
            return;
        }
        if self.queues[0].len() < n || self.age + n > update_every {
            self.age = 0;
            for (head, (queue, rows)) in self.queues.iter_mut().zip(&self.rows).enumerate() {
                *queue = rows.iter().copied().filter(|&token| token >= sinks).collect();
                queue.sort_by(|&a, &b| score(a, head).total_cmp(&score(b, head)));
            }
        }
        self.age += n;
        for (queue, rows) in self.queues.iter_mut().zip(&mut self.rows) {
            let gone: Vec<usize> = queue.drain(..n).collect();
            rows.retain(|token| !gone.contains(token));
        }
    }
}

fn column(tensor: &KvTensor, n: usize, col: usize, head: usize, dim: usize) -> usize {
    match tensor.layout {
        KvLayout::HeadDimSeq => (head * DIM + dim) * n + col,
        KvLayout::HeadSeqDim => (head * n + col) * DIM + dim,
    }
}

fn play(mode: ModeKind, (by_row, transposed): (bool, bool), sinks: usize, update_every: usize, chunks: &[usize]) {
    let value = KvTensor::new(KvKind::Value, 0, HEADS, DIM, KvDtype::F32);
    let value = if transposed { value.transposed() } else { value };
    let key = KvTensor::new(KvKind::Key, 0, HEADS, DIM, KvDtype::F32);
    let tensors = vec![if by_row { key.by_row() } else { key }, value];
    let spec = |ar| Variant::new(ar, 16).unwrap();
    let long = Eviction::KeyDiff { sinks, update_every };
    let group = CacheGroup { long, ..CacheGroup::plain(KvForm::Concat) };
    let variants = Variants::with_groups([spec(1), spec(4)], vec![group], Some(1000)).unwrap();
    let geometry = KvGeometry { splits: vec![SplitGeometry { tensors }] };
    let options = KvOptions { mode, scorer: Some(Box::new(First)), ..KvOptions::default() };
    let mut kv = KvCache::new(&geometry, variants, options).unwrap();
    let mut naive = Naive::default();
    for &n in chunks {
        for step in kv.plan(&[(SeqId(0), n)], &Policy::Lenient).unwrap().steps() {
            let room = 16 - step.ar();
            let mut running = kv.begin(step).unwrap();
            naive.evict(naive.rows[0].len().saturating_sub(room), sinks, update_every);
            let n_rows = naive.rows[0].len();
            assert_eq!(running.cells(0).unwrap().n_used(), n_rows);
            let first = if mode == ModeKind::SMART_MASK { 0 } else { room - n_rows };
            for view in running.split(SplitIdx(0)).unwrap().views() {
                for (head, rows) in naive.rows.iter().enumerate() {
                    let read = |col| {
                        let at = column(view.spec, room, first + col, head, 1) * 4;
                        f32::from_le_bytes(view.past[at..at + 4].try_into().unwrap()) as usize
                    };
                    let mut held: Vec<_> = (0..n_rows).map(read).collect();
                    held.sort_unstable();
                    assert_eq!(&held, rows, "{} head {head} at {step}", view.spec.name());
                }
                for (col, head) in (0..step.n_process()).flat_map(|col| (0..HEADS).map(move |head| (col, head))) {
                    let token = step.n_past() + col;
                    for (dim, x) in [score(token, head), token as f32, 0.5, -0.5].into_iter().enumerate() {
                        let at = column(view.spec, step.ar(), col, head, dim) * 4;
                        view.new[at..at + 4].copy_from_slice(&x.to_le_bytes());
                    }
                }
            }
            running.commit(SplitIdx(0), Keep::All).unwrap();
            running.finish().unwrap();
            naive.evict((n_rows + step.n_process()).saturating_sub(room), sinks, update_every);
            naive.rows.iter_mut().for_each(|rows| rows.extend(step.n_past()..step.n_past() + step.n_process()));
        }
    }
}

/// Saves a cache in the middle of a queue and lets both go on: each head must drop the same rows, which only the saved order
/// of eviction, its age and the running anchor give.
fn saved_and_going_on(update_every: usize, n_before: usize, alpha: Option<f32>) {
    let group = CacheGroup { long: Eviction::KeyDiff { sinks: 2, update_every }, ..CacheGroup::plain(KvForm::Concat) };
    let geometry = KvGeometry::uniform(2, HEADS, DIM, KvDtype::F32);
    let cache = || {
        let spec = |ar| Variant::new(ar, 16).unwrap();
        let variants = Variants::with_groups([spec(1), spec(4)], vec![group.clone()], Some(1000)).unwrap();
        let scorer = alpha.map(|alpha| Box::new(KeyDiff::running(alpha)) as Box<dyn KeyScorer>);
        KvCache::new(&geometry, variants, KvOptions { scorer, ..KvOptions::default() }).unwrap()
    };
    let go_on = |kv: &mut KvCache, n: usize| {
        for step in kv.plan(&[(SeqId(0), n)], &Policy::Lenient).unwrap().steps() {
            let mut running = kv.begin(step).unwrap();
            for view in running.split(SplitIdx(0)).unwrap().views() {
                let first = step.n_past();
                for (i, x) in view.new.chunks_exact_mut(4).enumerate() {
                    // Numbers that differ in every place, so that scores do.
                    let x_new = ((first * 131 + i * 29 + view.spec.layer.0 * 7) % 97) as f32 - 40.0;
                    x.copy_from_slice(&x_new.to_le_bytes());
                }
            }
            running.commit(SplitIdx(0), Keep::All).unwrap();
            running.finish().unwrap();
        }
    };
    let (mut live, mut other) = (cache(), cache());
    go_on(&mut live, n_before);
    go_on(&mut other, 33);
    other.import(&live.export().unwrap()).unwrap();
    assert_eq!(other.export().unwrap(), live.export().unwrap());
    for n in [1, 1, 1, 3, 1, 4, 9] {
        go_on(&mut live, n);
        go_on(&mut other, n);
        assert_eq!(
            other.export().unwrap(),
            live.export().unwrap(),
            "saved after {n_before}, scored every {update_every}"
        );
    }
}

#[test]
fn a_restored_cache_goes_on_with_the_saved_order_of_eviction() {
    for update_every in [1, 3, 5, 100] {
        for n_before in [3, 15, 16, 17, 18, 21, 40] {
            for alpha in [None, Some(0.2)] {
                saved_and_going_on(update_every, n_before, alpha);
            }
        }
    }
}

#[test]
fn an_order_of_eviction_that_cannot_be_is_refused() {
    let rule = Eviction::KeyDiff { sinks: 1, update_every: 9 };
    let image = cache(rule, 20, &Arc::default()).export().unwrap();
    let refused = |change: &dyn Fn(&mut ScoredRows)| {
        let mut image = image.clone();
        change(image.groups[0].scored.as_mut().expect("it has scored"));
        let mut other = cache(rule, 3, &Arc::default());
        let why = other.import(&image).unwrap_err().to_string();
        assert_eq!(other.state().n_past, 3, "as it was");
        why
    };
    let far = refused(&|scored| scored.heads[0].rows[0] = 15);
    assert!(far.contains("layer 0, head 0: row 15 is to be dropped of 15"), "{far}");
    let twice = refused(&|scored| scored.heads[1].rows = vec![4, 4]);
    assert!(twice.contains("layer 0, head 1: row 4 is to be dropped twice"), "{twice}");
    let few = refused(&|scored| drop(scored.heads.pop()));
    assert!(few.contains("has the order of eviction of"), "{few}");
    // A cache that reserves more tokens must not drop them by an order that did not know of it.
    let mut other = cache(Eviction::KeyDiff { sinks: 3, update_every: 9 }, 3, &Arc::default());
    other.import(&image).unwrap();
    assert_eq!(other.export().unwrap().groups[0].scored, None);
}

/// A cache of 15 rows whose rule is given, its reference scorer counting resets, and tokens of sequence 0 in it.
fn cache(long: Eviction, n: usize, n_resets: &Arc<AtomicUsize>) -> KvCache {
    struct Counting(Arc<AtomicUsize>);
    impl KeyScorer for Counting {
        fn score(&mut self, layer: LayerIdx, head: usize, keys: &[f32], scores: &mut [f32]) {
            First.score(layer, head, keys, scores);
        }
        fn reset(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let group = CacheGroup { long, ..CacheGroup::plain(KvForm::Concat) };
    let variants = Variants::with_groups([Variant::new(1, 16).unwrap()], vec![group], Some(1000)).unwrap();
    let scorer: Option<Box<dyn KeyScorer>> = Some(Box::new(Counting(n_resets.clone())));
    let geometry = KvGeometry::uniform(1, HEADS, DIM, KvDtype::F32);
    let mut kv = KvCache::new(&geometry, variants, KvOptions { scorer, ..KvOptions::default() }).unwrap();
    for step in kv.plan(&[(SeqId(0), n)], &Policy::Lenient).unwrap().steps() {
        let mut running = kv.begin(step).unwrap();
        running.split(SplitIdx(0)).unwrap().views().for_each(|view| view.new.fill(1));
        running.commit(SplitIdx(0), Keep::All).unwrap();
        running.finish().unwrap();
    }
    kv
}

#[test]
fn another_sequence_rewinds_nothing_and_the_own_one_all() {
    let n_resets = Arc::new(AtomicUsize::new(0));
    let mut kv = cache(Eviction::KeyDiff { sinks: 1, update_every: 1 }, 20, &n_resets);
    kv.rewind(SeqId(1), 0).unwrap();
    assert_eq!((kv.state().n_past, kv.state().n_valid_kv, n_resets.load(Ordering::Relaxed)), (20, 15, 0));
    kv.rewind(SeqId(0), 0).unwrap();
    assert_eq!((kv.state().n_past, kv.state().n_valid_kv, n_resets.load(Ordering::Relaxed)), (0, 0, 1));
}

#[test]
fn rows_by_head_go_to_a_cache_of_the_same_rule_only() {
    let scored = Eviction::KeyDiff { sinks: 1, update_every: 1 };
    let image = cache(scored, 20, &Arc::default()).export().unwrap();
    let mut other = cache(Eviction::Ring { sinks: 1 }, 3, &Arc::default());
    let refused = other.import(&image).unwrap_err().to_string();
    assert!(
        refused.ends_with("group 0 was saved after KeyDiff had evicted, and here it has another rule"),
        "{refused}"
    );
    assert_eq!(other.state().n_past, 3, "as it was");
    // Before KeyDiff evicts, rows are those of any cache.
    let whole = cache(scored, 9, &Arc::default()).export().unwrap();
    other.import(&whole).unwrap();
    cache(scored, 3, &Arc::default()).import(&image).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 1_000 })
    })]

    #[test]
    fn each_head_forgets_what_its_queue_says(
        mode in 0..3usize, layouts: (bool, bool), sinks in 0..5usize, update_every in 1..12usize,
        chunks in prop::collection::vec(1..9usize, 1..24),
    ) {
        play(ModeKind::ALL[mode], layouts, sinks, update_every, &chunks);
    }
}
