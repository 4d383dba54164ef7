//! A model whose logits follow from its tokens: plain, in trees, with forecast tokens, and drafting from hidden states.

#![allow(dead_code)] // each test file uses a part of it

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::OnceLock;

use engine::{
    ChoosePaths, EngineError, FeatureModel, FeatureWidths, OnFeatures, Overflow, RowBudget, SeqId, SeqRows, SeqTokens,
    SeqTree, SequenceModel, Snapshot, StepLog, StopFlag, TokenModel, Transcript,
};
use genie_types::{KvDtype, KvKind, KvTensor, TokenId};
use kvmanager::{Cell, GroupImage, KvImage};
use session_store::{CacheSchema, ForecastPrefix, ModelHash, SavedSequence, SavedToken};

/// Letters and a few more, all of them ids of the tokenizer.
pub const N_VOCAB: usize = 128;

/// Rows of the forecast prefix.
pub const N_PREFIX: usize = 2;

/// A folder with a prefix for this model.
pub fn prefix_folder() -> PathBuf {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let tokens = [TokenId(3), TokenId(4)];
        ForecastPrefix::write(folder.path(), &image(&[(0, N_PREFIX)]), &tokens).unwrap();
        folder
    });
    folder.path().to_owned()
}

/// A cache with that many rows of each sequence; what they say is in their tokens.
fn image(rows: &[(u8, usize)]) -> KvImage {
    let tensor = |kind| KvTensor::new(kind, 0, 1, 4, KvDtype::F16);
    let tensors = vec![tensor(KvKind::Key), tensor(KvKind::Value)];
    let cells = |&(seq, n): &(u8, usize)| (0..n).map(move |pos| Cell { pos, rotated_pos: pos, seqs: 1 << seq });
    let cells: Vec<Cell> = rows.iter().flat_map(cells).collect();
    let data = tensors.iter().map(|tensor| vec![0; tensor.rows_bytes(cells.len())]).collect();
    let next = rows.iter().map(|&(seq, n)| (SeqId(seq), n)).collect();
    KvImage { groups: vec![GroupImage::of_cells(cells)], next, tensors, data, ..KvImage::default() }
}

/// A model whose logits follow from the last `order` tokens. `noise` makes it another one in part of its rows.
pub struct Toy {
    n_vocab: usize,
    order: usize,
    noise: u64,
    context_size: usize,
    widest: usize,
    past: Transcript,
    /// The forecast prefix.
    prefix: Transcript,
    /// `noise` of what forecast tokens say.
    forecast_noise: u64,
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
            prefix: Transcript::default(),
            forecast_noise: 0,
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

    /// The same with forecast tokens that are wrong as often as a model of that noise.
    pub fn forecasting(self, forecast_noise: u64) -> Self {
        Self { forecast_noise, ..self }
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
        self.states.values().map(Vec::len).sum::<usize>().max(self.past.len()) + self.prefix.len()
    }

    fn fits(&self, n_new: usize) -> Result<(), EngineError> {
        match self.n_rows() + n_new > self.context_size {
            true => {
                let (n_past, limit) = (self.past.len(), self.context_size - self.prefix.len());
                Err(Overflow::ContextExceeded { n_past, n_new, limit }.into())
            }
            false => Ok(()),
        }
    }

    /// What forecast tokens say behind these: the row of the token that comes as many places later.
    fn forecast(&mut self, tokens: &[TokenId], n_places: usize) {
        let noise = std::mem::replace(&mut self.noise, self.forecast_noise);
        let mut tokens = tokens.to_vec();
        for place in 0..=n_places {
            let state = self.state(&tokens, None);
            self.row_of(state);
            if place < n_places {
                let best = (0..self.n_vocab).rev().max_by(|&a, &b| self.logits[a].total_cmp(&self.logits[b]));
                tokens.push(TokenId(best.unwrap_or(0) as u32));
            }
        }
        self.noise = noise;
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
        self.fits(tokens.len())?;
        self.past.extend(tokens, self.past.len());
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
        self.prefix = Transcript::default();
        self.rewind(0)
    }
    fn cache_schema(&mut self) -> Result<CacheSchema, EngineError> {
        Ok(CacheSchema { model: ModelHash([7; 32]), tensors: image(&[]).tensors })
    }
    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        let token = |transcript: &Transcript, i: usize| SavedToken {
            token: transcript.tokens()[i],
            position: i,
            generated: transcript.is_generated(i),
        };
        let of = |seq: SeqId, transcript: &Transcript| SavedSequence {
            seq,
            tokens: (0..transcript.len()).map(|i| token(transcript, i)).collect(),
        };
        let all = [of(SeqId(0), &self.past), of(ForecastPrefix::SEQ, &self.prefix)];
        let sequences: Vec<SavedSequence> = all.into_iter().filter(|saved| !saved.tokens.is_empty()).collect();
        let rows: Vec<_> = sequences.iter().rev().map(|saved| (saved.seq.0, saved.tokens.len())).collect();
        Ok(Snapshot { model: ModelHash([7; 32]), image: image(&rows), sequences, ..Snapshot::default() })
    }
    fn restore_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), EngineError> {
        snapshot.image.check()?;
        self.reset()?;
        for saved in &snapshot.sequences {
            let transcript = match saved.seq {
                SeqId(0) => &mut self.past,
                seq => {
                    assert_eq!(seq, ForecastPrefix::SEQ);
                    &mut self.prefix
                }
            };
            for (i, token) in saved.tokens.iter().enumerate() {
                transcript.push(token.token, token.position);
                if token.generated {
                    transcript.mark_generated(i);
                }
            }
        }
        self.fits(0)?;
        self.follow();
        Ok(())
    }
    fn steps(&self) -> &StepLog {
        &self.steps
    }
}

impl SequenceModel for Toy {
    fn transcript_of(&self, seq: SeqId) -> Option<&Transcript> {
        match seq {
            SeqId(0) => Some(&self.past),
            seq => (seq == ForecastPrefix::SEQ).then_some(&self.prefix),
        }
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
    fn process_trees(&mut self, trees: &[SeqTree<'_>], choose: ChoosePaths<'_>) -> Result<(), EngineError> {
        let [SeqTree { seq: SeqId(0), rows }] = trees else { unreachable!("no kind here asks for it") };
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
            let n_known = path.iter().take_while(|token| (token.0 as usize) < self.n_vocab).count();
            let known = [self.past.tokens(), &path[..n_known]].concat();
            if n_known < path.len() {
                assert_eq!(self.prefix.len(), N_PREFIX, "forecast tokens see their prefix");
                self.forecast(&known, path.len() - n_known);
            } else {
                let state = self.state(&known, None);
                self.row_of(state);
            }
            all.push(if row.logits { self.logits.clone() } else { Vec::new() });
        }
        let kept = choose(0, &all.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let parents: Vec<_> = kept.iter().map(|&row| rows[row].parent).collect();
        let expected: Vec<_> = std::iter::once(None).chain(kept.iter().copied().map(Some)).take(kept.len()).collect();
        assert_eq!(parents, expected, "a path");
        let tokens: Vec<TokenId> = kept.iter().map(|&row| rows[row].token).collect();
        self.prefill(&tokens)
    }
    fn share(&mut self, src: SeqId, dst: SeqId, _: Range<usize>) -> Result<(), EngineError> {
        let tokens = if src.0 == 0 { self.past.tokens().to_vec() } else { self.others[&src.0].clone() };
        self.others.insert(dst.0, tokens);
        Ok(())
    }
    fn remove(&mut self, seq: SeqId, range: Range<usize>) -> Result<usize, EngineError> {
        if seq == SeqId(0) {
            self.rewind(range.start)?;
            return Ok(0);
        }
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
    fn feature_of(&self, seq: SeqId, position: usize) -> Option<&[f32]> {
        assert_eq!(seq, SeqId(0));
        self.features.chunks_exact(2).nth(position)
    }
    fn forget_features(&mut self) {
        self.features.clear();
    }
    fn forget_features_before(&mut self, _: SeqId, _: usize) {}
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
