//! Random operations on an engine and on the naive cache, side by side.

use engine::{Engine, EngineError, SeqId, SeqTokens, SeqTree, Snapshot, TokenModel, TreeRow};
use genie_types::{TokenId, Variant};
use kvmanager::KvError;
use proptest::prelude::*;
use testkit::{Decoder, Entry, Form, Naive, Rule, distance};

/// One operation. Numbers are cut down to what the state allows.
#[derive(Clone, Debug)]
pub enum Op {
    /// New tokens of the dialog; logits of the last.
    Process(usize),
    /// The same, logits of each.
    Rows(usize),
    /// New tokens without logits.
    Prefill(usize),
    /// New tokens of several sequences, in one batch.
    Batch(Vec<(u8, usize)>),
    /// A draft of a sequence, and which of its tokens are kept.
    Draft(u8, Vec<bool>),
    /// Trees of drafts in one step, the first of each sequence: steps back from each row to its parent (0: it has none), whether it wants
    /// logits, and the row whose path is kept.
    Trees(Vec<TreeOp>),
    /// Back to a length.
    Rewind(usize),
    /// Back to what a list shares with the history.
    Prefix(usize),
    Remove(u8, usize, usize),
    Keep(u8),
    Share(u8, u8, usize, usize),
    Copy(u8, u8, usize, usize),
    Shift(u8, usize, usize, isize),
    Divide(u8, usize, usize, usize),
    ShiftOut(usize, usize),
    Compact(usize),
    /// Take that shape now.
    Variant(usize),
    /// Save here, restore into the other engine, go on there.
    Move,
    /// A draft with a token that no vocabulary has: refused, nothing changes.
    BadToken,
    Reset,
}

/// A tree of drafts: see [`Op::Trees`].
type TreeOp = (u8, Vec<(usize, bool)>, usize);

/// Any operation. Those that run graphs are likelier.
pub fn any_op() -> impl Strategy<Value = Op> {
    let seq = || 0u8..3;
    let place = || (0usize..34, 0usize..34);
    prop_oneof![
        6 => (1usize..12).prop_map(Op::Process),
        2 => (1usize..7).prop_map(Op::Rows),
        2 => (1usize..9).prop_map(Op::Prefill),
        4 => prop::collection::vec((seq(), 1usize..4), 1..4).prop_map(Op::Batch),
        3 => (seq(), prop::collection::vec(any::<bool>(), 1..5)).prop_map(|(s, keep)| Op::Draft(s, keep)),
        4 => prop::collection::vec(
            (seq(), prop::collection::vec((0usize..4, prop::bool::weighted(0.8)), 1..5), 0usize..9), 1..3
        ).prop_map(Op::Trees),
        2 => (0usize..34).prop_map(Op::Rewind),
        1 => (0usize..34).prop_map(Op::Prefix),
        2 => (seq(), place()).prop_map(|(s, (a, b))| Op::Remove(s, a, b)),
        1 => seq().prop_map(Op::Keep),
        2 => (seq(), seq(), place()).prop_map(|(a, b, (x, y))| Op::Share(a, b, x, y)),
        2 => (seq(), seq(), place()).prop_map(|(a, b, (x, y))| Op::Copy(a, b, x, y)),
        2 => (seq(), place(), -6isize..6).prop_map(|(s, (a, b), d)| Op::Shift(s, a, b, d)),
        1 => (seq(), place(), 1usize..4).prop_map(|(s, (a, b), by)| Op::Divide(s, a, b, by)),
        1 => (0usize..4, 1usize..8).prop_map(|(s, n)| Op::ShiftOut(s, n)),
        1 => (0usize..5).prop_map(Op::Compact),
        1 => (0usize..4).prop_map(Op::Variant),
        1 => Just(Op::Move),
        1 => Just(Op::BadToken),
        1 => Just(Op::Reset),
    ]
}

/// Two engines of the same model, one of which is live, and the naive cache.
pub struct Pair<'a> {
    engines: &'a mut [Engine; 2],
    live: usize,
    naive: Naive<'a>,
    decoder: &'a Decoder,
    windowed: bool,
    tolerance: f64,
    state: u32,
    pub n_checked: usize,
    pub n_whole: usize,
    pub n_refused: usize,
}

type Outcome = Result<(), TestCaseError>;

impl<'a> Pair<'a> {
    pub fn new(
        engines: &'a mut [Engine; 2],
        decoder: &'a Decoder,
        form: &'a Form,
        rules: &[Rule],
        tolerance: f64,
    ) -> Self {
        engines.iter_mut().for_each(|e| e.reset().unwrap());
        let naive = Naive::new(decoder, form, rules);
        let windowed = rules.iter().any(|rule| *rule != Rule::All);
        Self { engines, live: 0, naive, decoder, windowed, tolerance, state: 1, n_checked: 0, n_whole: 0, n_refused: 0 }
    }

    fn engine(&mut self) -> &mut Engine {
        &mut self.engines[self.live]
    }

    fn draw(&mut self, n: usize) -> Vec<u32> {
        let vocab = self.decoder.size.vocab as u32;
        let mut token = || {
            self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (self.state >> 8) % vocab
        };
        (0..n).map(|_| token()).collect()
    }

    /// Holds logits against the naive cache, and against full recomputation where the sequence is a plain dialog.
    fn check(&mut self, seq: u8, found: &[f32], want: &[f64], op: &Op) -> Outcome {
        let off = distance(found, want);
        prop_assert!(off < self.tolerance, "{op:?}: sequence {seq} is off by {off}");
        self.n_checked += 1;
        if let Some(path) = self.naive.path(seq) {
            let whole = self.naive.recompute(path);
            let off = distance(found, &whole);
            // The cache's own rounding (of quantised rows) is in there too.
            prop_assert!(off < self.tolerance * 4.0, "{op:?}: off by {off} from recomputing {path:?}");
            self.n_whole += 1;
        }
        Ok(())
    }

    /// Several sequences may be too many for the few slots of a window group. The planner foresees that for whole requests; what
    /// it lets through is refused before a step runs, or, behind steps that have dropped rows, with all lost and said so.
    fn crowded(&mut self, e: EngineError, op: &Op) -> Outcome {
        match e {
            EngineError::Kv(KvError::PastTooLong { .. }) if self.windowed => {}
            EngineError::StateLost { .. } if self.windowed => self.naive.clear(),
            e => return Err(TestCaseError::fail(format!("{op:?}: {e}"))),
        }
        self.n_refused += 1;
        Ok(())
    }

    /// An operation that the cache may refuse; the naive one follows if it did not.
    fn follow(&mut self, done: Result<(), EngineError>, then: impl FnOnce(&mut Naive<'a>)) -> Outcome {
        match done {
            Ok(()) => then(&mut self.naive),
            Err(EngineError::Kv(_)) => self.n_refused += 1,
            Err(e) => return Err(TestCaseError::fail(format!("unexpected refusal: {e}"))),
        }
        Ok(())
    }

    pub fn apply(&mut self, op: &Op, specs: &[Variant]) -> Outcome {
        let range = |a: usize, b: usize| a.min(b)..a.max(b);
        match op {
            Op::Process(n) | Op::Rows(n) | Op::Prefill(n) => {
                let n = (*n).min(self.engine().admission().n_fit);
                let tokens = self.draw(n);
                let ids: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
                let mut rows = Vec::new();
                let done = match op {
                    Op::Process(_) if n > 0 => self.engine().process(&ids).map(|l| rows.push((n - 1, l.to_vec()))),
                    Op::Rows(_) => {
                        let each = &mut |place: usize, logits: &[f32]| rows.push((place, logits.to_vec()));
                        self.engine().process_rows(&ids, each)
                    }
                    _ => self.engine().prefill(&ids),
                };
                if let Err(e) = done {
                    return self.crowded(e, op);
                }
                prop_assert!(!matches!(op, Op::Rows(_)) || rows.len() == n);
                for (place, token) in tokens.into_iter().enumerate() {
                    let want = self.naive.go_on(0, &[token]).remove(0);
                    if let Some((_, found)) = rows.iter().find(|(at, _)| *at == place) {
                        self.check(0, found, &want, op)?;
                    }
                }
            }
            Op::Batch(wanted) => self.batch(wanted, op)?,
            Op::Draft(seq, keep) => self.draft(*seq, keep, op)?,
            Op::Trees(trees) => self.trees(trees, op)?,
            Op::Rewind(n) => {
                let n = n % (self.naive.next(0) + 1);
                let done = self.engine().rewind(n);
                self.follow(done, |naive| naive.rewind(n))?;
            }
            Op::Prefix(n) => {
                let mut list: Vec<TokenId> = self.engine().history().to_vec();
                list.truncate(n % (list.len() + 1));
                list.push(TokenId(self.decoder.size.vocab as u32 - 1));
                let entries: Vec<_> = self.engine().tokens_of(SeqId(0)).collect();
                let same =
                    |(i, ((token, pos), wanted)): &(usize, (&(TokenId, usize), &TokenId))| i == pos && token == *wanted;
                let common = entries.iter().zip(&list).enumerate().take_while(same).count().min(list.len() - 1);
                let done = self.engine().rewind_to_prefix(&list);
                if let Ok(found) = &done {
                    prop_assert_eq!(*found, common);
                }
                self.follow(done.map(drop), |naive| naive.rewind(common))?;
            }
            Op::Remove(seq, a, b) => {
                let done = self.engine().remove(SeqId(*seq), range(*a, *b));
                self.follow(done.map(drop), |naive| naive.remove(*seq, &range(*a, *b)))?;
            }
            Op::Keep(seq) => {
                let done = self.engine().keep(SeqId(*seq));
                self.follow(done, |naive| naive.keep(*seq))?;
            }
            Op::Share(src, dst, a, b) => {
                let done = self.engine().share(SeqId(*src), SeqId(*dst), range(*a, *b));
                self.follow(done, |naive| naive.share(*src, *dst, &range(*a, *b)))?;
            }
            Op::Copy(src, dst, a, b) => {
                let done = self.engine().copy(SeqId(*src), SeqId(*dst), range(*a, *b));
                self.follow(done, |naive| naive.copy(*src, *dst, &range(*a, *b)))?;
            }
            Op::Shift(seq, a, b, delta) => {
                let done = self.engine().shift(SeqId(*seq), range(*a, *b), *delta);
                self.follow(done, |naive| naive.remap(*seq, &range(*a, *b), |p| p.checked_add_signed(*delta)))?;
            }
            Op::Divide(seq, a, b, by) => {
                let done = self.engine().divide(SeqId(*seq), range(*a, *b), *by);
                self.follow(done, |naive| naive.remap(*seq, &range(*a, *b), |p| Some(p / by)))?;
            }
            Op::ShiftOut(sinks, n) => {
                let n_past = self.naive.next(0);
                let done = self.engine().shift_out(SeqId(0), *sinks, *n);
                self.follow(done.map(drop), |naive| {
                    naive.remove(0, &(*sinks..sinks + n));
                    if naive.next(0) == n_past {
                        naive.remap(0, &(sinks + n..n_past), |p| p.checked_sub(*n));
                    }
                })?;
            }
            Op::Compact(most) => drop(self.engine().compact(*most).unwrap()),
            Op::Variant(i) => {
                let done = self.engine().set_variant(specs[i % specs.len()]);
                self.follow(done, |_| ())?;
            }
            Op::Move => {
                let mut snapshot = self.engine().snapshot().unwrap();
                snapshot.user_data = b"mine".to_vec();
                let snapshot = Snapshot::from_bytes(&snapshot.to_bytes()).unwrap();
                self.live = 1 - self.live;
                self.engine().restore_snapshot(&snapshot).unwrap();
                prop_assert_eq!(snapshot.user_data, b"mine");
            }
            Op::BadToken => {
                let bad = [TokenId(0), TokenId(self.decoder.size.vocab as u32)];
                prop_assert!(self.engine().process(&bad).is_err());
            }
            Op::Reset => {
                self.engine().reset().unwrap();
                self.naive.clear();
            }
        }
        for seq in 0..3 {
            let (found, want) = (self.engine().next_pos(SeqId(seq)), self.naive.next(seq));
            prop_assert_eq!(found, want, "{:?}: next position of sequence {}", op, seq);
        }
        let cells = self.engine().cells(0).unwrap().n_used();
        prop_assert_eq!(cells, self.naive.n_rows(), "{:?}: rows", op);
        Ok(())
    }

    fn batch(&mut self, wanted: &[(u8, usize)], op: &Op) -> Outcome {
        let mut inputs: Vec<(u8, Vec<u32>)> = Vec::new();
        for &(seq, n) in wanted {
            if inputs.iter().all(|(s, _)| *s != seq) {
                let tokens = self.draw(n);
                inputs.push((seq, tokens));
            }
        }
        let ids: Vec<Vec<TokenId>> = inputs.iter().map(|(_, t)| t.iter().copied().map(TokenId).collect()).collect();
        let tokens = inputs.iter().zip(&ids).map(|((seq, _), tokens)| SeqTokens { seq: SeqId(*seq), tokens });
        let tokens: Vec<SeqTokens<'_>> = tokens.collect();
        let mut found: Vec<(usize, Vec<f32>)> = Vec::new();
        match self.engine().process_batch(&tokens, &mut |place, logits| found.push((place, logits.to_vec()))) {
            Ok(()) => {}
            Err(EngineError::Overflow(_) | EngineError::Plan(_)) => {
                prop_assert!(found.is_empty());
                self.n_refused += 1;
                return Ok(());
            }
            Err(e) => return self.crowded(e, op),
        }
        prop_assert_eq!(found.len(), inputs.len());
        for ((seq, tokens), (place, found)) in inputs.iter().zip(&found) {
            prop_assert_eq!(inputs[*place].0, *seq);
            let want = self.naive.go_on(*seq, tokens).pop().expect("no input is empty");
            self.check(*seq, found, &want, op)?;
        }
        Ok(())
    }

    fn draft(&mut self, seq: u8, keep: &[bool], op: &Op) -> Outcome {
        let tokens = self.draw(keep.len());
        let ids: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
        let mut found: Vec<Vec<f32>> = Vec::new();
        let judge = &mut |rows: &[&[f32]]| {
            found = rows.iter().map(|row| row.to_vec()).collect();
            keep.to_vec()
        };
        match self.engine().verify_draft(SeqTokens { seq: SeqId(seq), tokens: &ids }, judge) {
            Ok(n) => prop_assert_eq!(n, keep.iter().filter(|k| **k).count()),
            Err(EngineError::Overflow(_) | EngineError::Plan(_) | EngineError::DraftTooLong { .. }) => {
                self.n_refused += 1;
                return Ok(());
            }
            Err(e) => return self.crowded(e, op),
        }
        let first = self.naive.next(seq);
        let entry = |(i, &token)| Entry { token, seq, pos: first + i };
        let entries: Vec<Entry> = tokens.iter().enumerate().map(entry).collect();
        let want = self.naive.process_some(&entries, keep);
        for (found, want) in found.iter().zip(&want) {
            let off = distance(found, want);
            prop_assert!(off < self.tolerance, "{op:?}: draft of sequence {seq} is off by {off}");
            self.n_checked += 1;
        }
        Ok(())
    }

    fn trees(&mut self, wanted: &[TreeOp], op: &Op) -> Outcome {
        let mut trees: Vec<Drafted> = Vec::new();
        for (seq, rows, leaf) in wanted {
            if trees.iter().all(|tree| tree.seq != *seq) {
                let tokens = self.draw(rows.len());
                trees.push(Drafted::new(*seq, rows, *leaf, tokens));
            }
        }
        let given: Vec<SeqTree<'_>> =
            trees.iter().map(|tree| SeqTree { seq: SeqId(tree.seq), rows: &tree.rows }).collect();
        let mut found: Vec<Vec<Vec<f32>>> = vec![Vec::new(); trees.len()];
        let choose = &mut |at: usize, logits: &[&[f32]]| {
            found[at] = logits.iter().map(|row| row.to_vec()).collect();
            trees[at].kept.clone()
        };
        match self.engine().process_trees(&given, choose) {
            Ok(()) => {}
            Err(EngineError::Overflow(_) | EngineError::Plan(_) | EngineError::DraftTooLong { .. }) => {
                self.n_refused += 1;
                return Ok(());
            }
            Err(e) => return self.crowded(e, op),
        }
        // A row is what the last token of its path would be if the path were the only draft.
        for (tree, found) in trees.iter().zip(&found) {
            let first = self.naive.next(tree.seq);
            for (i, row) in tree.rows.iter().enumerate() {
                prop_assert_eq!(found[i].is_empty(), !row.logits, "logits of row {} of {:?}", i, op);
                if row.logits {
                    let entries = tree.entries(&tree.path(i), first);
                    let want = self.naive.process_some(&entries, &vec![false; entries.len()]);
                    let off = distance(&found[i], want.last().expect("a path has a row"));
                    prop_assert!(off < self.tolerance, "{op:?}: row {i} of sequence {} is off by {off}", tree.seq);
                    self.n_checked += 1;
                }
            }
        }
        let kept: Vec<Entry> =
            trees.iter().flat_map(|tree| tree.entries(&tree.kept, self.naive.next(tree.seq))).collect();
        self.naive.process_some(&kept, &vec![true; kept.len()]);
        Ok(())
    }
}

/// A tree of one sequence in a step.
struct Drafted {
    seq: u8,
    rows: Vec<TreeRow>,
    tokens: Vec<u32>,
    kept: Vec<usize>,
}

impl Drafted {
    fn new(seq: u8, rows: &[(usize, bool)], leaf: usize, tokens: Vec<u32>) -> Self {
        let row = |(i, &(back, logits)): (usize, &(usize, bool))| {
            let parent = i.checked_sub(back).filter(|_| back > 0);
            TreeRow { logits, ..TreeRow::new(TokenId(tokens[i]), parent) }
        };
        let rows: Vec<TreeRow> = rows.iter().enumerate().map(row).collect();
        let mut tree = Self { seq, rows, tokens, kept: Vec::new() };
        tree.kept = tree.path(leaf % tree.rows.len());
        tree
    }

    fn path(&self, row: usize) -> Vec<usize> {
        let mut path: Vec<usize> = std::iter::successors(Some(row), |&at| self.rows[at].parent).collect();
        path.reverse();
        path
    }

    fn entries(&self, path: &[usize], first: usize) -> Vec<Entry> {
        let entry =
            |(depth, &row): (usize, &usize)| Entry { token: self.tokens[row], seq: self.seq, pos: first + depth };
        path.iter().enumerate().map(entry).collect()
    }
}
