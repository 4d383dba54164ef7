//! A model whose logits say everything about the tokens before: a row that is missing, doubled or another request's changes the
//! reply. It counts rows, refuses more than there are, and fails at poisoned tokens.

#![allow(dead_code)] // each test file uses a part of it

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use dialog::config::ContextSettings;
use dialog::{RequestBase, RequestSettings, SamplerSettings, Tokenizer};
use engine::{
    EngineError, LogitsRequest, Overflow, RowBudget, SeqId, SeqRows, SeqTokens, SeqTree, SequenceModel, Snapshot,
    StepLog, StopFlag, TokenModel, Transcript,
};
use genie_types::TokenId;
use session_store::{SavedSequence, SavedToken};

pub const VOCAB: usize = 24;
/// A step with this token fails.
pub const POISON: TokenId = TokenId(22);
/// Ends a reply.
pub const EOS: TokenId = TokenId(23);
/// Rows of its steps.
pub const WIDTHS: [usize; 3] = [1, 4, 16];

pub struct Fake {
    seqs: Vec<Transcript>,
    /// The rows of each sequence; several may have one.
    rows: BTreeMap<u8, Vec<u64>>,
    next_row: u64,
    capacity: usize,
    context: usize,
    together: bool,
    /// Rows that were processed cannot be taken back: others made room for them.
    evicts: bool,
    /// A step has a piece of one prompt and a token of one reply. Where both have this many tokens behind them, the piece waits.
    pairs: Option<usize>,
    /// Every `n` steps one fails although nothing is wrong with it, and all sequences are lost.
    lose_every: Option<usize>,
    n_steps: usize,
    /// Trees with branches that ran.
    pub n_trees: Arc<AtomicUsize>,
    /// Only the last `sees` tokens count.
    sees: usize,
    /// What its ids stand for in [`VOCAB`], where they are others.
    ids: Option<Vec<u32>>,
    /// While it is set no step runs.
    pub stop: StopFlag,
    /// Steps that were asked for, also those that did not run.
    pub n_asked: Arc<AtomicUsize>,
    logits: Vec<f32>,
    steps: StepLog,
}

impl Fake {
    pub fn new(capacity: usize, context: usize) -> Self {
        Self {
            seqs: vec![Transcript::default(); SeqId::COUNT],
            rows: BTreeMap::new(),
            next_row: 0,
            capacity,
            context,
            together: true,
            evicts: false,
            pairs: None,
            lose_every: None,
            n_steps: 0,
            n_trees: Arc::default(),
            sees: usize::MAX,
            ids: None,
            stop: StopFlag::default(),
            n_asked: Arc::default(),
            logits: vec![0.0; VOCAB],
            steps: StepLog::new(vec![], 0),
        }
    }

    pub fn one_at_a_time(mut self) -> Self {
        self.together = false;
        self
    }

    /// One sequence at a time, whose last tokens cannot be taken back.
    pub fn evicting(mut self) -> Self {
        (self.together, self.evicts) = (false, true);
        self
    }

    /// As fused graphs: at most a piece of one prompt and a token of one reply in a step, and no piece where both are as long as this.
    pub fn in_pairs(mut self, long: usize) -> Self {
        self.pairs = Some(long);
        self
    }

    fn take_back(&mut self, seq: SeqId, from: usize) -> Result<(), EngineError> {
        if self.evicts && (1..self.seqs[usize::from(seq.0)].len()).contains(&from) {
            return Err(EngineError::Unsupported { what: "taking tokens back".into(), hint: "" });
        }
        self.drop_rows(seq, from);
        Ok(())
    }

    pub fn losing_all_every(mut self, n: usize) -> Self {
        self.lose_every = Some(n);
        self
    }

    /// The logits are those of the last `n` tokens: replies repeat themselves.
    pub fn seeing(mut self, n: usize) -> Self {
        self.sees = n;
        self
    }

    /// The same model with ids of its own: `ids` are the usual ones by them.
    pub fn with_ids(mut self, ids: Vec<u32>) -> Self {
        self.logits = vec![0.0; ids.len()];
        self.ids = Some(ids);
        self
    }

    fn usual(&self, id: u32) -> u32 {
        self.ids.as_ref().map_or(id, |ids| ids[id as usize])
    }

    fn distinct(&self) -> usize {
        self.rows.values().flatten().collect::<BTreeSet<_>>().len()
    }

    fn drop_rows(&mut self, seq: SeqId, from: usize) {
        self.seqs[usize::from(seq.0)].truncate(from);
        if let Some(rows) = self.rows.get_mut(&seq.0) {
            rows.truncate(from);
        }
    }

    fn begin_step(&mut self, n_inputs: usize) -> Result<(), EngineError> {
        self.n_asked.fetch_add(1, Ordering::Relaxed);
        if self.stop.is_set() {
            return Err(EngineError::Stopped { n_processed: 0, n_new: n_inputs });
        }
        self.n_steps += 1;
        if self.lose_every.is_some_and(|n| self.n_steps.is_multiple_of(n)) {
            self.reset()?;
            return Err(EngineError::Unsupported { what: "this step".into(), hint: "" });
        }
        Ok(())
    }

    fn check_rows(&self, n: usize, mut tokens: impl Iterator<Item = TokenId>) -> Result<(), EngineError> {
        if tokens.any(|token| TokenId(self.usual(token.0)) == POISON) {
            return Err(EngineError::Unsupported { what: "poison".into(), hint: "" });
        }
        let (used, most) = (self.distinct(), if self.together { self.capacity } else { self.context });
        if used + n > most {
            return Err(Overflow::ContextExceeded { n_past: used, n_new: n, limit: most }.into());
        }
        Ok(())
    }

    fn append(&mut self, seq: SeqId, token: TokenId) {
        let transcript = &mut self.seqs[usize::from(seq.0)];
        let pos = transcript.len();
        transcript.push(token, pos);
        self.next_row += 1;
        self.rows.entry(seq.0).or_default().push(self.next_row);
    }

    fn compute(&mut self, seq: SeqId) {
        self.compute_behind(seq, &[]);
    }

    /// The logits behind tokens that the sequence does not have.
    fn compute_behind(&mut self, seq: SeqId, more: &[TokenId]) {
        let tokens = self.seqs[usize::from(seq.0)].tokens().iter().chain(more).map(|token| self.usual(token.0));
        let n_hidden = tokens.clone().count().saturating_sub(self.sees);
        let seed = tokens.skip(n_hidden).fold(7_u64, |h, id| mix(h ^ (u64::from(id) + 1)));
        for v in 0..self.logits.len() {
            let id = self.usual(v as u32);
            let logit = (mix(seed ^ (u64::from(id) << 32)) % 1_000) as f32 / 250.0;
            self.logits[v] = match TokenId(id) {
                POISON => -50.0,
                EOS => logit - 1.5,
                _ => logit,
            };
        }
    }
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ (x >> 17)
}

impl TokenModel for Fake {
    fn vocab_size(&self) -> usize {
        self.ids.as_ref().map_or(VOCAB, Vec::len)
    }
    fn context_size(&self) -> usize {
        self.context
    }
    fn n_past(&self) -> usize {
        self.seqs[0].len()
    }
    fn transcript(&self) -> &Transcript {
        &self.seqs[0]
    }
    fn mark_generated(&mut self, index: usize) {
        self.seqs[0].mark_generated(index);
    }
    fn sequences(&mut self) -> Option<&mut dyn SequenceModel> {
        Some(self)
    }
    fn process(&mut self, tokens: &[TokenId]) -> Result<&[f32], EngineError> {
        let rows = SeqRows { seq: SeqId(0), tokens, wanted: LogitsRequest::Last, prompt: false };
        self.process_mixed(&[rows], &mut |_, _, _| ())?;
        self.compute(SeqId(0));
        Ok(&self.logits)
    }
    fn prefill(&mut self, tokens: &[TokenId]) -> Result<(), EngineError> {
        self.process(tokens).map(drop)
    }
    fn rewind(&mut self, n_past: usize) -> Result<(), EngineError> {
        self.take_back(SeqId(0), n_past)
    }
    fn reset(&mut self) -> Result<(), EngineError> {
        self.seqs.iter_mut().for_each(|seq| seq.truncate(0));
        self.rows.clear();
        Ok(())
    }
    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        self.snapshot_of(SeqId(0))
    }
    fn restore_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), EngineError> {
        self.reset()?;
        self.restore_sequence(SeqId(0), snapshot)
    }
    fn steps(&self) -> &StepLog {
        &self.steps
    }
}

impl SequenceModel for Fake {
    fn transcript_of(&self, seq: SeqId) -> Option<&Transcript> {
        self.seqs.get(usize::from(seq.0))
    }
    fn process_batch(
        &mut self,
        inputs: &[SeqTokens<'_>],
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        let last = |input: &SeqTokens<'_>| (input.seq, input.tokens.to_vec());
        let owned: Vec<_> = inputs.iter().map(last).collect();
        let rows: Vec<_> = owned
            .iter()
            .map(|(seq, tokens)| SeqRows { seq: *seq, tokens, wanted: LogitsRequest::Last, prompt: false })
            .collect();
        self.process_mixed(&rows, &mut |input, _, logits| each(input, logits))
    }
    fn process_mixed(
        &mut self,
        inputs: &[SeqRows<'_>],
        each: &mut dyn FnMut(usize, usize, &[f32]),
    ) -> Result<(), EngineError> {
        assert!(self.together || inputs.iter().all(|input| input.seq == SeqId(0)), "one sequence at a time");
        let first: Vec<usize> = inputs.iter().map(|input| input.tokens.len()).collect();
        assert!(
            self.pairs.is_none() || inputs.len() < 3 && first == self.tokens_of_first_step(inputs),
            "one execution"
        );
        self.begin_step(inputs.len())?;
        let n: usize = first.iter().sum();
        self.check_rows(n, inputs.iter().flat_map(|input| input.tokens).copied())?;
        for (i, input) in inputs.iter().enumerate() {
            assert!(self.seqs[usize::from(input.seq.0)].len() + input.tokens.len() <= self.context);
            for (place, token) in input.tokens.iter().enumerate() {
                self.append(input.seq, *token);
                let wanted = match input.wanted {
                    LogitsRequest::Nothing => false,
                    LogitsRequest::Last => place + 1 == input.tokens.len(),
                    LogitsRequest::Each => true,
                };
                if wanted {
                    self.compute(input.seq);
                    let logits = std::mem::take(&mut self.logits);
                    each(i, place, &logits);
                    self.logits = logits;
                }
            }
        }
        Ok(())
    }
    fn runs_together(&self) -> bool {
        self.together
    }
    fn takes_back(&self) -> bool {
        !self.evicts
    }
    fn runs_in_pairs(&self) -> bool {
        self.pairs.is_some()
    }
    fn tokens_of_first_step(&self, inputs: &[SeqRows<'_>]) -> Vec<usize> {
        let Some(long) = self.pairs else { return inputs.iter().map(|input| input.tokens.len()).collect() };
        let beside = inputs.iter().any(|input| !input.prompt);
        let all_long = inputs.iter().all(|input| self.seqs[usize::from(input.seq.0)].len() >= long);
        let widest = WIDTHS[2] - usize::from(beside);
        let of_prompt = |n: usize| if beside && all_long { 0 } else { n.min(widest) };
        inputs.iter().map(|input| if input.prompt { of_prompt(input.tokens.len()) } else { 1 }).collect()
    }
    fn rows(&self) -> RowBudget {
        RowBudget { total: self.capacity, used: self.distinct() }
    }
    fn own_rows(&self, seqs: &[SeqId]) -> usize {
        let of = |own: bool| {
            let rows = self.rows.iter().filter(move |(seq, _)| seqs.contains(&SeqId(**seq)) == own);
            rows.flat_map(|(_, rows)| rows).collect::<BTreeSet<_>>()
        };
        of(true).difference(&of(false)).count()
    }
    fn widths(&self) -> Vec<usize> {
        WIDTHS.to_vec()
    }
    fn snapshot_of(&mut self, seq: SeqId) -> Result<Snapshot, EngineError> {
        let token = |(token, position)| SavedToken { token, position, generated: false };
        let tokens = self.seqs[usize::from(seq.0)].entries().map(token).collect();
        Ok(Snapshot { sequences: vec![SavedSequence { seq: SeqId(0), tokens }], ..Snapshot::default() })
    }
    fn restore_sequence(&mut self, seq: SeqId, snapshot: &Snapshot) -> Result<(), EngineError> {
        assert!(self.seqs[usize::from(seq.0)].is_empty(), "sequence {} is in use", seq.0);
        let tokens: Vec<_> = snapshot.sequence(SeqId(0)).iter().map(|saved| saved.token).collect();
        if tokens.contains(&POISON) {
            return Err(EngineError::Unsupported { what: "poison".into(), hint: "" });
        }
        let (used, n_new, limit) = (self.distinct(), tokens.len(), self.capacity);
        if used + n_new > limit {
            return Err(Overflow::ContextExceeded { n_past: used, n_new, limit }.into());
        }
        tokens.into_iter().for_each(|token| self.append(seq, token));
        Ok(())
    }
    fn verify_draft(
        &mut self,
        _: SeqTokens<'_>,
        _: &mut dyn FnMut(&[&[f32]]) -> Vec<bool>,
    ) -> Result<usize, EngineError> {
        Err(EngineError::Unsupported { what: "drafts of one sequence".into(), hint: "" })
    }
    fn process_trees(&mut self, trees: &[SeqTree<'_>], choose: engine::ChoosePaths<'_>) -> Result<(), EngineError> {
        let n: usize = trees.iter().map(|tree| tree.rows.len()).sum();
        if n > WIDTHS[2] {
            return Err(EngineError::DraftTooLong { expected: WIDTHS[2], found: n });
        }
        self.begin_step(trees.len())?;
        let branches = |tree: &&SeqTree<'_>| (0..tree.rows.len()).any(|at| tree.rows[at].parent != at.checked_sub(1));
        let n_trees = trees.iter().filter(branches).count();
        self.n_trees.fetch_add(n_trees, Ordering::Relaxed);
        let tokens = trees.iter().flat_map(|tree| tree.rows).map(|row| row.token);
        self.check_rows(n, tokens)?;
        for (at, SeqTree { seq, rows }) in trees.iter().enumerate() {
            let path = |row: usize| {
                let mut path: Vec<_> = std::iter::successors(Some(row), |&at| rows[at].parent).collect();
                path.reverse();
                path
            };
            let mut logits = vec![Vec::new(); rows.len()];
            for row in (0..rows.len()).filter(|&row| rows[row].logits) {
                let tokens: Vec<_> = path(row).iter().map(|&row| rows[row].token).collect();
                self.compute_behind(*seq, &tokens);
                logits[row].clone_from(&self.logits);
            }
            let kept = choose(at, &logits.iter().map(Vec::as_slice).collect::<Vec<_>>());
            assert!(kept.last().is_none_or(|&last| path(last) == kept), "{kept:?} is no path");
            kept.iter().for_each(|&row| self.append(*seq, rows[row].token));
            assert!(self.seqs[usize::from(seq.0)].len() <= self.context);
        }
        Ok(())
    }
    fn share(&mut self, src: SeqId, dst: SeqId, range: Range<usize>) -> Result<(), EngineError> {
        assert!(self.seqs[usize::from(dst.0)].is_empty(), "sequence {} is in use", dst.0);
        let tokens: Vec<_> = self.seqs[usize::from(src.0)].tokens()[range.clone()].to_vec();
        let rows = self.rows[&src.0][range].to_vec();
        self.seqs[usize::from(dst.0)].extend(&tokens, 0);
        self.rows.insert(dst.0, rows);
        Ok(())
    }
    fn remove(&mut self, seq: SeqId, range: Range<usize>) -> Result<usize, EngineError> {
        let before = self.distinct();
        self.take_back(seq, range.start)?;
        Ok(before - self.distinct())
    }
    fn keep(&mut self, seq: SeqId) -> Result<(), EngineError> {
        (0..SeqId::COUNT as u8).filter(|other| *other != seq.0).for_each(|other| self.drop_rows(SeqId(other), 0));
        Ok(())
    }
}

/// Letters `a` to `x`, each a token. Those of one context share what grammars need of the vocabulary.
pub fn base(context: usize) -> RequestBase {
    static MADE: OnceLock<RequestBase> = OnceLock::new();
    let made = MADE.get_or_init(|| make_base(context));
    if made.context_size() == context { made.clone() } else { make_base(context) }
}

fn make_base(context: usize) -> RequestBase {
    let vocab: Vec<String> = (0..VOCAB).map(|i| format!("\"{}\": {i}", char::from(b'a' + i as u8))).collect();
    let json = format!(
        "{{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": {{\"type\": \"Whitespace\"}}, \
         \"post_processor\": null, \"decoder\": {{\"type\": \"Fuse\"}}, \"truncation\": null, \"padding\": null, \"model\": {{\"type\": \
         \"WordLevel\", \"vocab\": {{{}}}, \"unk_token\": \"a\"}}}}",
        vocab.join(", ")
    );
    let tokenizer = Tokenizer::from_bytes(json.as_bytes()).expect("it is a tokenizer");
    RequestBase::new(context_settings(context), tokenizer, RequestSettings::new(SamplerSettings::argmax()))
}

pub fn context_settings(size: usize) -> ContextSettings {
    ContextSettings { bos: None, eos: vec![EOS], eot: None, pad: None, size, n_vocab: VOCAB, n_embd: None }
}
