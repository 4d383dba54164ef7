//! A model whose logits follow from its tokens: plain, in trees, and drafting from hidden states.

use std::collections::HashMap;
use std::ops::Range;

use engine::{
    ChoosePath, EngineError, FeatureModel, FeatureWidths, OnFeatures, Overflow, RowBudget, SeqId, SeqRows, SeqTokens,
    SequenceModel, StepLog, StopFlag, TokenModel, Transcript, TreeRow,
};
use genie_types::TokenId;

/// Letters and a few more, all of them ids of the tokenizer.
pub const N_VOCAB: usize = 128;

/// A model whose logits follow from the last `order` tokens. `noise` makes it another one in part of its rows.
pub struct Toy {
    n_vocab: usize,
    order: usize,
    noise: u64,
    context_size: usize,
    widest: usize,
    past: Transcript,
    /// Tokens of sequences beside the dialog's.
    others: HashMap<u8, Vec<TokenId>>,
    /// It takes another model's hidden states.
    drafts: bool,
    /// The hidden states of the dialog's tokens.
    features: Vec<f32>,
    /// What a model that drafts has made of its rows, by sequence.
    states: HashMap<u8, Vec<u64>>,
    logits: Vec<f32>,
    steps: StepLog,
}

impl Toy {
    pub fn new(n_vocab: usize, order: usize, noise: u64) -> Self {
        let (past, logits, steps) = (Transcript::default(), vec![0.0; n_vocab], StepLog::new(vec!["toy".into()], 0));
        Self {
            n_vocab,
            order,
            noise,
            context_size: 4_096,
            widest: 32,
            past,
            others: HashMap::new(),
            drafts: false,
            features: Vec::new(),
            states: HashMap::new(),
            logits,
            steps,
        }
    }

    /// With room for that number of tokens, and logits for at most `widest` at once.
    pub fn with_limits(self, context_size: usize, widest: usize) -> Self {
        Self { context_size, widest, ..self }
    }

    /// A model that drafts from the hidden states of one of the same order.
    pub fn drafting(self) -> Self {
        Self { drafts: true, ..self }
    }

    /// What a row is made of: the last tokens; with order 0 the hidden states of the token before it, and so all tokens.
    fn state(&self, tokens: &[TokenId], before: Option<u64>) -> u64 {
        let step = |h: u64, token: &TokenId| mix(h ^ u64::from(token.0)) & MOST_STATE;
        match (self.order, before) {
            (0, Some(before)) => step(before, tokens.last().expect("a row has a token")),
            (0, None) => tokens.iter().fold(17, step),
            (n, _) => tokens[tokens.len().saturating_sub(n)..].iter().fold(17, step),
        }
    }

    /// Brings the hidden states to the dialog's tokens.
    fn follow(&mut self) {
        self.features.truncate(2 * self.past.len());
        for n in self.features.len() / 2..self.past.len() {
            let state = self.state(&self.past.tokens()[..=n], None);
            self.features.extend(pack(state));
        }
    }

    /// Rows in the cache.
    fn n_rows(&self) -> usize {
        self.states.values().map(Vec::len).sum::<usize>().max(self.past.len())
    }

    fn fits(&self, n_new: usize) -> Result<(), EngineError> {
        match self.n_rows() + n_new > self.context_size {
            true => Err(Overflow::ContextExceeded { n_past: self.past.len(), n_new, limit: self.context_size }.into()),
            false => Ok(()),
        }
    }

    /// Of `noise` in 100 contexts the answers are others.
    fn row(&mut self) {
        let state = self.state(self.past.tokens(), None);
        self.row_of(state);
    }

    fn row_of(&mut self, mut state: u64) {
        if mix(state ^ 0x5eed) % 100 < self.noise {
            state = mix(state ^ self.noise);
        }
        for (id, logit) in (0_u64..).zip(&mut self.logits) {
            *logit = (mix(state ^ (id << 32)) % 4_000) as f32 / 1_000.0;
        }
    }
}

/// Two float32 numbers hold a state exactly.
const MOST_STATE: u64 = (1 << 48) - 1;

fn pack(state: u64) -> [f32; 2] {
    [(state & 0xff_ffff) as f32, (state >> 24) as f32]
}

fn unpack(row: &[f32]) -> u64 {
    row[0] as u64 | (row[1] as u64) << 24
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ (x >> 29)
}

impl TokenModel for Toy {
    fn vocab_size(&self) -> usize {
        self.n_vocab
    }
    fn widest_step(&self) -> Option<usize> {
        Some(self.widest)
    }
    fn context_size(&self) -> usize {
        self.context_size
    }
    fn n_past(&self) -> usize {
        self.past.len()
    }
    fn transcript(&self) -> &Transcript {
        &self.past
    }
    fn mark_generated(&mut self, index: usize) {
        self.past.mark_generated(index);
    }
    fn stop_flag(&self) -> Option<StopFlag> {
        None
    }
    fn process(&mut self, tokens: &[TokenId]) -> Result<&[f32], EngineError> {
        assert!(!tokens.is_empty());
        self.prefill(tokens)?;
        self.row();
        Ok(&self.logits)
    }
    fn prefill(&mut self, tokens: &[TokenId]) -> Result<(), EngineError> {
        assert!(tokens.iter().all(|token| (token.0 as usize) < self.n_vocab.max(300)), "{tokens:?}");
        let (n_past, n_new) = (self.past.len(), tokens.len());
        if n_past + n_new > self.context_size {
            return Err(Overflow::ContextExceeded { n_past, n_new, limit: self.context_size }.into());
        }
        self.past.extend(tokens, n_past);
        self.follow();
        Ok(())
    }
    fn sequences(&mut self) -> Option<&mut dyn SequenceModel> {
        Some(self)
    }
    fn feature_widths(&self) -> FeatureWidths {
        FeatureWidths { given: Some(2), taken: self.drafts.then_some(2) }
    }
    fn features(&mut self) -> Option<&mut dyn FeatureModel> {
        Some(self)
    }
    fn process_rows(&mut self, tokens: &[TokenId], each: &mut dyn FnMut(usize, &[f32])) -> Result<(), EngineError> {
        assert!(tokens.len() <= self.widest, "a draft in one step");
        if self.past.len() + tokens.len() > self.context_size {
            let (n_past, n_new) = (self.past.len(), tokens.len());
            return Err(Overflow::ContextExceeded { n_past, n_new, limit: self.context_size }.into());
        }
        for (place, token) in tokens.iter().enumerate() {
            self.prefill(&[*token])?;
            self.row();
            each(place, &self.logits);
        }
        Ok(())
    }
    fn rewind(&mut self, n_past: usize) -> Result<(), EngineError> {
        assert!(n_past <= self.past.len(), "rewind ahead");
        self.past.truncate(n_past);
        self.states.entry(0).or_default().truncate(n_past);
        self.follow();
        Ok(())
    }
    fn reset(&mut self) -> Result<(), EngineError> {
        (self.others, self.states) = (HashMap::new(), HashMap::new());
        self.rewind(0)
    }
    fn steps(&self) -> &StepLog {
        &self.steps
    }
}

impl SequenceModel for Toy {
    fn transcript_of(&self, seq: SeqId) -> Option<&Transcript> {
        (seq.0 == 0).then_some(&self.past)
    }
    fn process_batch(&mut self, _: &[SeqTokens<'_>], _: &mut dyn FnMut(usize, &[f32])) -> Result<(), EngineError> {
        unreachable!("no kind here asks for it")
    }
    fn process_mixed(&mut self, _: &[SeqRows<'_>], _: &mut dyn FnMut(usize, usize, &[f32])) -> Result<(), EngineError> {
        unreachable!("no kind here asks for it")
    }
    fn runs_together(&self) -> bool {
        unreachable!("no kind here asks for it")
    }
    fn rows(&self) -> RowBudget {
        unreachable!("no kind here asks for it")
    }
    fn widths(&self) -> Vec<usize> {
        unreachable!("no kind here asks for it")
    }
    fn snapshot_of(&mut self, _: SeqId) -> Result<engine::Snapshot, EngineError> {
        unreachable!("no kind here asks for it")
    }
    fn restore_sequence(&mut self, _: SeqId, _: &engine::Snapshot) -> Result<(), EngineError> {
        unreachable!("no kind here asks for it")
    }
    fn verify_draft(
        &mut self,
        _: SeqTokens<'_>,
        _: &mut dyn FnMut(&[&[f32]]) -> Vec<bool>,
    ) -> Result<usize, EngineError> {
        unreachable!("no kind here asks for it")
    }
    fn process_tree(&mut self, seq: SeqId, rows: &[TreeRow], choose: ChoosePath<'_>) -> Result<usize, EngineError> {
        assert_eq!(seq, SeqId(0));
        if rows.len() > self.widest {
            return Err(EngineError::DraftTooLong { expected: self.widest, found: rows.len() });
        }
        self.fits(rows.len())?;
        let mut all = Vec::new();
        for (n, row) in rows.iter().enumerate() {
            assert!(row.parent.is_none_or(|parent| parent < n), "a row follows one before it");
            let mut path: Vec<TokenId> =
                std::iter::successors(Some(n), |&at| rows[at].parent).map(|at| rows[at].token).collect();
            path.reverse();
            let state = self.state(&[self.past.tokens(), &path].concat(), None);
            self.row_of(state);
            all.push(if row.logits { self.logits.clone() } else { Vec::new() });
        }
        let kept = choose(&all.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let parents: Vec<_> = kept.iter().map(|&row| rows[row].parent).collect();
        let expected: Vec<_> = std::iter::once(None).chain(kept.iter().copied().map(Some)).take(kept.len()).collect();
        assert_eq!(parents, expected, "a path");
        let tokens: Vec<TokenId> = kept.iter().map(|&row| rows[row].token).collect();
        self.prefill(&tokens)?;
        Ok(kept.len())
    }
    fn share(&mut self, src: SeqId, dst: SeqId, _: Range<usize>) -> Result<(), EngineError> {
        let tokens = if src.0 == 0 { self.past.tokens().to_vec() } else { self.others[&src.0].clone() };
        self.others.insert(dst.0, tokens);
        Ok(())
    }
    fn remove(&mut self, seq: SeqId, _: Range<usize>) -> Result<usize, EngineError> {
        self.others.remove(&seq.0);
        Ok(self.states.remove(&seq.0).map_or(0, |rows| rows.len()))
    }
    fn keep(&mut self, _: SeqId) -> Result<(), EngineError> {
        unreachable!("no kind here asks for it")
    }
}

impl FeatureModel for Toy {
    fn keep_features(&mut self, _: bool) -> Result<(), EngineError> {
        Ok(())
    }
    fn feature(&self, position: usize) -> Option<&[f32]> {
        self.features.chunks_exact(2).nth(position)
    }
    fn forget_features(&mut self) {
        self.features.clear();
    }
    fn process_features(
        &mut self,
        inputs: &[SeqTokens<'_>],
        features: &[f32],
        each: OnFeatures<'_>,
    ) -> Result<(), EngineError> {
        let n_new = inputs.iter().map(|input| input.tokens.len()).sum();
        assert_eq!(features.len(), 2 * n_new, "a row for each token");
        self.fits(n_new)?;
        let mut features = features.chunks_exact(2);
        for (i, SeqTokens { seq, tokens }) in inputs.iter().enumerate() {
            let mut state = 0;
            for token in *tokens {
                let before = unpack(features.next().unwrap());
                let own = match seq.0 {
                    0 => {
                        self.past.extend(&[*token], self.past.len());
                        self.past.tokens()
                    }
                    n => {
                        self.others.get_mut(&n).expect("it was shared").push(*token);
                        &self.others[&n]
                    }
                };
                state = self.state(own, Some(before));
                self.states.entry(seq.0).or_default().push(state);
            }
            self.row_of(state);
            each(i, &self.logits.clone(), &pack(state));
        }
        Ok(())
    }
}
