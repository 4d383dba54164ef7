//! A model that records what it is given, and a tokenizer like that of the recordings.
#![allow(dead_code)] // each test file uses its part

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use dialog::config::ContextSettings;
use dialog::{Dialog, SamplerSettings, SentenceCode, Tokenizer};
use engine::{EngineError, Overflow, StepLog, StopFlag, TokenModel, Transcript};
use genie_types::TokenId;
use kvmanager::KvError;
use serde_json::{Value, json};

pub const N_VOCAB: usize = 512;

pub fn ids(raw: impl IntoIterator<Item = u32>) -> Vec<TokenId> {
    raw.into_iter().map(TokenId).collect()
}

pub fn raw(tokens: &[TokenId]) -> Vec<u32> {
    tokens.iter().map(|t| t.0).collect()
}

/// A call of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Process(Vec<u32>),
    Prefill(Vec<u32>),
    Rewind(usize),
    Reset,
}

/// What the outside can see of a fake that a dialog has swallowed.
#[derive(Clone, Default)]
pub struct Spy {
    pub calls: Arc<Mutex<Vec<Call>>>,
    /// The tokens in its "cache".
    pub cache: Arc<Mutex<Vec<u32>>>,
    /// The next call of `process` fails: before it does anything (1), or its logits are NaN (2).
    pub fail: Arc<AtomicU8>,
    /// The model is stopped before it processes more than this number of tokens, in one call or in several.
    pub stop_after: Arc<Mutex<Option<usize>>>,
    /// The cache cannot take tokens back, as one that has dropped rows.
    pub drops_rows: Arc<AtomicBool>,
}

impl Spy {
    /// The calls since the last look.
    pub fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

type Answers = Box<dyn Fn(&[u32]) -> u32 + Send>;

/// A model whose next token is a function of everything in its cache.
pub struct Fake {
    answer: Answers,
    context_size: usize,
    logits: Vec<f32>,
    steps: StepLog,
    transcript: Transcript,
    stop: StopFlag,
    spy: Spy,
    shifts: bool,
}

impl Fake {
    pub fn new(context_size: usize, answer: impl Fn(&[u32]) -> u32 + Send + 'static) -> (Box<Self>, Spy) {
        let spy = Spy::default();
        let steps = StepLog::new(vec!["fake".into()], 0);
        let (answer, logits, transcript) = (Box::new(answer), vec![0.0; N_VOCAB], Transcript::default());
        let stop = StopFlag::default();
        let fake = Self { answer, context_size, logits, steps, transcript, stop, spy: spy.clone(), shifts: false };
        (Box::new(fake), spy)
    }

    /// As [`new`](Self::new); a full context goes on without its oldest tokens.
    pub fn shifting(context_size: usize, answer: impl Fn(&[u32]) -> u32 + Send + 'static) -> (Box<Self>, Spy) {
        let (fake, spy) = Self::new(context_size, answer);
        (Box::new(Self { shifts: true, ..*fake }), spy)
    }

    /// Says what a table has for the cache's tokens, and fails the test for a cache that should not be.
    pub fn table(context_size: usize, table: Table) -> (Box<Self>, Spy) {
        Self::new(context_size, move |cache| {
            *table.0.get(cache).unwrap_or_else(|| panic!("the model should not be asked about {cache:?}"))
        })
    }

    fn take(&mut self, tokens: &[TokenId]) -> Result<(), EngineError> {
        if self.stop.is_set() {
            return Err(EngineError::Stopped { n_processed: 0, n_new: tokens.len() });
        }
        let stop_after = self.spy.stop_after.lock().unwrap().take();
        if let Some(n_processed) = stop_after.filter(|n| *n < tokens.len()) {
            self.keep(&tokens[..n_processed])?;
            self.stop.set();
            return Err(EngineError::Stopped { n_processed, n_new: tokens.len() });
        }
        *self.spy.stop_after.lock().unwrap() = stop_after.map(|n| n - tokens.len());
        self.keep(tokens)
    }

    fn keep(&mut self, tokens: &[TokenId]) -> Result<(), EngineError> {
        let mut cache = self.spy.cache.lock().unwrap();
        if cache.len() + tokens.len() > self.context_size {
            let (n_past, n_new) = (cache.len(), tokens.len());
            return Err(Overflow::ContextExceeded { n_past, n_new, limit: self.context_size }.into());
        }
        self.transcript.extend(tokens, cache.len());
        cache.extend(raw(tokens));
        Ok(())
    }
}

/// Contexts and the token that follows each.
#[derive(Clone, Default)]
pub struct Table(HashMap<Vec<u32>, u32>);

impl Table {
    /// After `context` the model says `said`, one by one.
    pub fn add(mut self, context: &[u32], said: &[u32]) -> Self {
        for i in 0..said.len() {
            let key = [context, &said[..i]].concat();
            let old = self.0.insert(key.clone(), said[i]);
            assert!(old.is_none_or(|t| t == said[i]), "two answers to {key:?}");
        }
        self
    }
}

impl TokenModel for Fake {
    fn vocab_size(&self) -> usize {
        N_VOCAB
    }

    fn context_size(&self) -> usize {
        self.context_size
    }

    fn n_past(&self) -> usize {
        self.spy.cache.lock().unwrap().len()
    }

    fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    fn mark_generated(&mut self, index: usize) {
        self.transcript.mark_generated(index);
    }

    fn stop_flag(&self) -> Option<StopFlag> {
        Some(self.stop.clone())
    }

    fn shifts_context(&self) -> bool {
        self.shifts
    }

    fn make_room(&mut self, tokens: &[TokenId]) -> Result<usize, EngineError> {
        let mut n_done = 0;
        while self.shifts && self.n_past() + tokens.len() - n_done > self.context_size {
            let n_gone = self.n_past().min(self.context_size / 2);
            self.spy.cache.lock().unwrap().drain(..n_gone);
            let kept = self.transcript.tokens()[n_gone..].to_vec();
            self.transcript.truncate(0);
            self.transcript.extend(&kept, 0);
            let n_part = (self.context_size - self.n_past()).min(tokens.len() - n_done - 1);
            let stopped = |n_processed| EngineError::Stopped { n_processed, n_new: tokens.len() };
            match self.prefill(&tokens[n_done..n_done + n_part]) {
                Err(EngineError::Stopped { n_processed, .. }) => return Err(stopped(n_done + n_processed)),
                done => done?,
            }
            n_done += n_part;
        }
        Ok(n_done)
    }

    fn process(&mut self, tokens: &[TokenId]) -> Result<&[f32], EngineError> {
        self.spy.calls.lock().unwrap().push(Call::Process(raw(tokens)));
        assert!(!tokens.is_empty());
        let fail = self.spy.fail.swap(0, Ordering::Relaxed);
        if fail == 1 {
            return Err(EngineError::Unsupported { what: "this token".into(), hint: "" });
        }
        self.take(tokens)?;
        let next = (self.answer)(&self.spy.cache.lock().unwrap());
        self.logits.fill(0.0);
        self.logits[next as usize] = if fail == 2 { f32::NAN } else { 20.0 };
        Ok(&self.logits)
    }

    fn prefill(&mut self, tokens: &[TokenId]) -> Result<(), EngineError> {
        self.spy.calls.lock().unwrap().push(Call::Prefill(raw(tokens)));
        self.take(tokens)
    }

    fn rewind(&mut self, n_past: usize) -> Result<(), EngineError> {
        self.spy.calls.lock().unwrap().push(Call::Rewind(n_past));
        let n_valid_kv = self.n_past();
        assert!(n_past <= n_valid_kv, "rewind ahead");
        if self.spy.drops_rows.load(Ordering::Relaxed) {
            return Err(KvError::Rewind { to: n_past, n_past: n_valid_kv, n_valid_kv, why: "" }.into());
        }
        self.spy.cache.lock().unwrap().truncate(n_past);
        self.transcript.truncate(n_past);
        Ok(())
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        self.spy.calls.lock().unwrap().push(Call::Reset);
        self.spy.cache.lock().unwrap().clear();
        self.transcript.truncate(0);
        Ok(())
    }

    fn steps(&self) -> &StepLog {
        &self.steps
    }
}

/// GPT-2's character for a byte.
fn byte_char(b: u8) -> char {
    let plain = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if plain(b) {
        return b as char;
    }
    let n = (0..b).filter(|b| !plain(*b)).count() as u32;
    char::from_u32(256 + n).unwrap()
}

/// Ids 0 to 255 are bytes; 256, 257, 258 are special; 259 to 511 read `<|x259|>` and so on.
pub fn tokenizer_json() -> String {
    let vocab: serde_json::Map<String, Value> = (0..=255).map(|b| (byte_char(b).to_string(), json!(b))).collect();
    let content = |id: u32| match id {
        256 => "<|bos|>".to_owned(),
        257 => "<|eos|>".to_owned(),
        258 => "<|pad|>".to_owned(),
        _ => format!("<|x{id}|>"),
    };
    let added: Vec<Value> = (256..512)
        .map(|id| {
            json!({"id": id, "content": content(id), "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": id < 259})
        })
        .collect();
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
           "pre_tokenizer": bytes, "post_processor": null, "decoder": bytes,
           "model": {"type": "BPE", "vocab": vocab, "merges": []}})
    .to_string()
}

pub fn tokenizer() -> Tokenizer {
    Tokenizer::from_bytes(tokenizer_json().as_bytes()).unwrap()
}

/// The recordings' context: bos 256, eos 257, size 128.
pub fn context() -> ContextSettings {
    ContextSettings {
        bos: Some(TokenId(256)),
        eos: ids([257]),
        eot: None,
        pad: None,
        size: 128,
        n_vocab: N_VOCAB,
        n_embd: None,
    }
}

/// A greedy dialog on a fake.
pub fn greedy(context: ContextSettings, model: Box<Fake>) -> Dialog {
    Dialog::from_parts(context, SamplerSettings::argmax(), tokenizer(), model)
}

/// Chunks as a callback saw them: code, tokens, text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen(pub Vec<(u32, Vec<u32>, String)>);

impl Seen {
    pub fn take(&mut self, chunk: dialog::Chunk<'_>) {
        self.0.push((chunk.code.number(), raw(chunk.tokens), chunk.text.to_owned()));
    }

    pub fn codes(&self) -> Vec<u32> {
        self.0.iter().map(|c| c.0).collect()
    }

    pub fn tokens(&self) -> Vec<u32> {
        self.0.iter().flat_map(|c| c.1.clone()).collect()
    }

    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(|c| c.2.clone()).collect()
    }
}

/// A token query with its chunks.
pub fn ask(dialog: &mut Dialog, tokens: &[u32], code: SentenceCode) -> (dialog::Reply, Seen) {
    let mut seen = Seen::default();
    let reply = dialog.token_query(&ids(tokens.iter().copied()), code, |c| seen.take(c)).unwrap();
    (reply, seen)
}

/// A text query with its chunks.
pub fn say(dialog: &mut Dialog, text: &str, code: SentenceCode) -> (dialog::Reply, Seen) {
    let mut seen = Seen::default();
    let reply = dialog.query(text, code, |c| seen.take(c)).unwrap();
    (reply, seen)
}
