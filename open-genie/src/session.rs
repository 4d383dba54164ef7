//! A conversation with a model: text in, an iterator of tokens out.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use dialog::sampler::SamplerRules;
use dialog::{
    Control, Dialog, DialogError, Grammar, Profile, Reply, RestoreReport, SamplerCallback, SamplerSettings, SaveReport,
    SentenceCode, Signal, StopCallback, StopReason,
};
use engine::{Grid, PrefixCacheFault, StepLog};
use genie_types::TokenId;
use kvmanager::Admission;

use crate::backend::ActiveBackend;
use crate::model::Bundle;
use crate::options::Options;
use crate::speculation::Speculation;
use crate::weights::WeightCheck;
use crate::{Error, Template};

/// A conversation. Each prompt goes on where the last reply ended, until [`reset`](Self::reset).
///
/// Weights are compared with the bundle's manifest, without one with their own checksums. Small files are compared when the
/// model is opened, larger ones once per file: from the first token on in a thread of the lowest priority, and at the latest
/// before the second prompt or before [`save`](Self::save), which then give [`Error::DamagedWeights`] or, for another
/// model's file, [`Error::OtherWeights`].
///
/// `Send`: a server may own one per client and run it on any thread.
#[derive(Debug)]
pub struct Session {
    // Dropped in this order: the power vote outlives the model.
    pub(crate) dialog: Dialog,
    weights: WeightCheck,
    /// A query has begun.
    asked: bool,
    template: Template,
    bundle: Bundle,
    /// Those of both models, where there are two.
    /// The binary with the bundle's image encoder.
    pub(crate) image_encoder: Option<PathBuf>,
    pub(crate) active: (ActiveBackend, Option<ActiveBackend>),
}

/// What a model is asked: text, or token ids.
#[derive(Clone, Copy, Debug)]
pub enum Prompt<'a> {
    /// Text; the bundle's tokenizer encodes it, control tokens in it are recognised, stop sequences apply.
    Text(&'a str),
    /// Text in which control tokens such as `<|eot_id|>` are text like any other: for what others wrote.
    Plain(&'a str),
    /// Token ids; stop sequences do not apply, as in libGenie.
    Tokens(&'a [TokenId]),
    /// Rows of embeddings, one after the other, for models that take them: an image's, or a text's from elsewhere. No BOS is put
    /// before them. [`Session::embedding_row_width`] is the length of a row.
    Embeddings(&'a [f32]),
    /// Several texts at once, each with a conversation of its own: see [`Token::stream`] and [`Reply::streams`].
    Batch(&'a [String]),
}

impl<'a> From<&'a str> for Prompt<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Prompt<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a [TokenId]> for Prompt<'a> {
    fn from(tokens: &'a [TokenId]) -> Self {
        Self::Tokens(tokens)
    }
}

impl Session {
    pub(crate) fn new(
        dialog: Dialog,
        weights: WeightCheck,
        bundle: Bundle,
        active: (ActiveBackend, Option<ActiveBackend>),
    ) -> Self {
        Self { dialog, weights, asked: false, template: Template::default(), bundle, image_encoder: None, active }
    }

    /// Opens a model by its path and starts a session with it.
    ///
    /// # Errors
    /// Those of [`Bundle::read`] and [`Bundle::open_session`].
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self, Error> {
        Bundle::read(path)?.open_session(options)
    }

    /// Generates a reply, token by token as the iterator is asked. The prompt is given to the model as it is.
    ///
    /// Dropping the iterator ends the reply there. A prompt that does not fit gives one error and leaves the session as it
    /// was.
    pub fn generate<'p>(&mut self, prompt: impl Into<Prompt<'p>>) -> Generation<'_> {
        self.query(prompt, SentenceCode::Complete)
    }

    /// Generates a reply and gives each token to a callback, which may break it off.
    ///
    /// # Errors
    /// Those of the iterator of [`Self::generate`].
    pub fn generate_with<'p>(
        &mut self,
        prompt: impl Into<Prompt<'p>>,
        mut each: impl FnMut(&Token) -> ControlFlow<()>,
    ) -> Result<Reply, Error> {
        let mut generation = self.generate(prompt);
        while let Some(token) = generation.next().transpose()? {
            if token.stop.is_none() && each(&token).is_break() {
                return Ok(generation.stop_here());
            }
        }
        Ok(generation.stop_here())
    }

    /// A turn of a chat: the message as the session's [`Template`] writes it, then as [`Self::generate`].
    pub fn chat(&mut self, message: &str) -> Generation<'_> {
        let text = self.template.turn(message, self.dialog.history().is_empty());
        self.query(&text, SentenceCode::Complete)
    }

    /// How messages of [`Self::chat`] are written from now on.
    pub fn set_template(&mut self, template: Template) {
        self.template = template;
    }

    /// Takes the prompt as the whole conversation: rewinds to the prefix that both share, and generates from there.
    pub fn regenerate<'p>(&mut self, prompt: impl Into<Prompt<'p>>) -> Generation<'_> {
        self.query(prompt, SentenceCode::Rewind)
    }

    /// A query with one of Genie's sentence codes, for what the methods above do not cover.
    pub fn query<'p>(&mut self, prompt: impl Into<Prompt<'p>>, code: SentenceCode) -> Generation<'_> {
        let fits = self.dialog.admission();
        let failed =
            |error| Generation { state: State::Failed(Some(error)), queue: VecDeque::new(), fits, weights: None };
        if self.asked
            && let Err(damaged) = self.weights.finish()
        {
            return failed(damaged);
        }
        let started = match prompt.into() {
            Prompt::Text(text) => self.dialog.start(text, code),
            Prompt::Plain(text) => self.dialog.start_plain(text, code),
            Prompt::Tokens(tokens) => self.dialog.start_tokens(tokens, code),
            Prompt::Batch(texts) => self.dialog.start_batch(texts, code),
            Prompt::Embeddings(rows) => self.dialog.start_embeddings(rows, code),
        };
        match started {
            Ok(inner) => {
                self.asked = true;
                let weights = Some(&mut self.weights);
                Generation { state: State::Running(inner), queue: VecDeque::new(), fits, weights }
            }
            Err(error) => failed(or_damaged(&mut self.weights, error, fits)),
        }
    }

    /// Numbers of a row of embeddings; `None` for a model that takes token ids.
    pub fn embedding_row_width(&self) -> Option<usize> {
        self.dialog.model().embedding_width()
    }

    /// The numbers of rows that are in the element type of the graphs' own input, for [`Prompt::Embeddings`].
    ///
    /// # Errors
    /// The model takes token ids; the bytes are no whole numbers.
    pub fn decode_embeddings(&self, bytes: &[u8]) -> Result<Vec<f32>, Error> {
        self.dialog.model().decode_embeddings(bytes).map_err(Error::Engine)
    }

    /// A handle that stops the running reply, also from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(self.dialog.control())
    }

    /// Forgets the conversation; the random sequence starts again.
    ///
    /// # Errors
    /// The cache cannot be cleared.
    pub fn reset(&mut self) -> Result<(), Error> {
        self.dialog.reset().map_err(Error::Dialog)
    }

    /// Makes sure that the weights are those that were written, without waiting for the second prompt: compares what is left.
    ///
    /// # Errors
    /// [`Error::DamagedWeights`], [`Error::OtherWeights`]: the replies so far mean nothing.
    pub fn check_weights(&mut self) -> Result<(), Error> {
        self.weights.finish()
    }

    /// Saves the conversation into a folder: a snapshot with checksums, and libGenie's own files where they can hold it.
    ///
    /// # Errors
    /// [`Error::DamagedWeights`], [`Error::OtherWeights`], [`Error::Save`]; what the folder held before is as it was.
    pub fn save(&mut self, folder: impl AsRef<Path>) -> Result<SaveReport, Error> {
        let folder = folder.as_ref();
        self.weights.finish()?;
        self.dialog.save(folder).map_err(|source| Error::Save { folder: folder.into(), source: Box::new(source) })
    }

    /// Continues a conversation that this crate or libGenie saved; the one before is forgotten. The report says which files
    /// it came from, and what is wrong with the others.
    ///
    /// # Errors
    /// [`Error::Restore`]; nothing has changed then.
    pub fn restore(&mut self, folder: impl AsRef<Path>) -> Result<RestoreReport, Error> {
        let folder = folder.as_ref();
        self.dialog.restore(folder).map_err(|source| Error::Restore { folder: folder.into(), source: Box::new(source) })
    }

    /// Why the prefix cache of the options is no longer used, if it failed: its lock is held by another process, say. The
    /// session goes on without it.
    pub fn prefix_cache_fault(&self) -> Option<&PrefixCacheFault> {
        self.dialog.prefix_cache()?.fault()
    }

    /// How tokens are drawn.
    pub fn sampler(&self) -> &SamplerSettings {
        self.dialog.sampler().settings()
    }

    /// How a token is written; `None` outside of the vocabulary.
    pub fn token_text(&self, id: TokenId) -> Option<String> {
        self.dialog.tokenizer().id_to_token(id)
    }

    /// The seed in use, also where it was drawn and not given: a run can be repeated with it.
    pub fn seed(&self) -> u32 {
        self.dialog.sampler().seed()
    }

    /// Draws tokens another way from now on; penalties and random sequence start over. The rules stay those of the policy: under
    /// `genie` a sampler that takes the most likely token stays as it is, as in libGenie.
    pub fn set_sampler(&mut self, settings: SamplerSettings) {
        let now = self.dialog.sampler().settings();
        let rules = now.rules();
        if rules == SamplerRules::Genie && now.is_argmax() {
            return;
        }
        self.dialog.set_sampler(settings.with_rules(rules));
    }

    /// As [`Self::set_sampler`], before anything was drawn: what libGenie has in the config that a dialog is made from.
    pub fn start_with_sampler(&mut self, settings: SamplerSettings) {
        let rules = self.dialog.sampler().settings().rules();
        self.dialog.set_sampler(settings.with_rules(rules));
    }

    /// What replies must follow, from the next prompt on; `None` lifts it.
    ///
    /// # Errors
    /// The grammar cannot be followed with this vocabulary; the one before stays.
    pub fn set_grammar(&mut self, grammar: Option<&Grammar>) -> Result<(), Error> {
        self.dialog.set_grammar(grammar).map_err(Error::Dialog)
    }

    /// What replies must follow.
    pub fn grammar(&self) -> Option<&Grammar> {
        self.dialog.grammar()
    }

    /// Gives `n` replies to each prompt from now on, which begin with its likeliest first tokens; a first token below the
    /// probability `p_threshold` begins none. [`Token::stream`] says which reply a piece belongs to, [`Reply::streams`] has
    /// all of them; the conversation goes on with the first, the likeliest.
    ///
    /// # Errors
    /// No stream, or too many.
    pub fn set_streams(&mut self, n: usize, p_threshold: f32) -> Result<(), Error> {
        let kind = dialog::kinds::MultiStream::new(n, p_threshold).map_err(Error::Dialog)?;
        self.dialog.set_kind(Box::new(kind)).map_err(Error::Dialog)
    }

    /// Speeds replies up another way from the next prompt on; [`Speculation::OfConfig`] is the config's own way.
    ///
    /// # Errors
    /// The models do not allow it: a draft model can only be given when a model is opened.
    pub fn set_speculation(&mut self, speculation: &Speculation) -> Result<(), Error> {
        let kind =
            speculation.kind_or_own(self.bundle.config(), self.dialog.model().widest_step()).map_err(Error::Dialog)?;
        if speculation.draft_bundle().is_some() && self.dialog.second_model().is_none() {
            let (expected, found) = ("a second model".into(), "one model".into());
            return Err(Error::Dialog(DialogError::Kind { kind: "spd", expected, found }));
        }
        self.dialog.set_kind(kind).map_err(Error::Dialog)
    }

    /// Lets a function choose each token from the logits from now on, penalties applied; `None` is the sampler's own way.
    pub fn set_sampler_callback(&mut self, callback: Option<SamplerCallback>) {
        self.dialog.set_sampler_callback(callback);
    }

    /// Texts that end a reply, from the next prompt on.
    ///
    /// # Errors
    /// One of them is empty.
    pub fn set_stop_sequences(&mut self, sequences: Vec<String>) -> Result<(), Error> {
        self.dialog.set_stop_sequences(sequences).map_err(Error::Dialog)
    }

    /// Asks a function after each token whether the reply ends there, given its text and tokens so far: prompts of any kind,
    /// each stream and each prompt of a batch for itself. `None` lifts it.
    pub fn set_stop_callback(&mut self, callback: Option<StopCallback>) {
        self.dialog.set_stop_callback(callback);
    }

    /// Limits the tokens of a reply.
    pub fn set_max_tokens(&mut self, limit: Option<usize>) {
        self.dialog.control().set_max_num_tokens(limit);
    }

    /// The token history: prompts and replies; the last token may not be in the cache yet.
    pub fn history(&self) -> Vec<TokenId> {
        self.dialog.history()
    }

    /// Tokens in the cache.
    pub fn n_past(&self) -> usize {
        self.dialog.n_past()
    }

    /// How many tokens still fit, special tokens included, and what stops the next one.
    pub fn admission(&self) -> Option<Admission> {
        self.dialog.admission()
    }

    /// Says that the tokens from place `first` of the history on, which are still to come, are an image's or a video's: they turn by frame, row
    /// and column. For bundles whose positions are of a type `mrope`; see docs/positions.md.
    ///
    /// # Errors
    /// A bundle whose tokens have one position, an empty grid, a place that is taken.
    pub fn place_image(&mut self, first: usize, grid: Grid) -> Result<(), Error> {
        self.dialog.place_grid(first, grid).map_err(Error::Dialog)
    }

    /// The graphs executed so far, in order.
    pub fn steps(&self) -> &StepLog {
        self.dialog.model().steps()
    }

    /// As [`steps`](Self::steps), of the other model of two.
    pub fn second_steps(&self) -> Option<&StepLog> {
        Some(self.dialog.second_model()?.steps())
    }

    /// Times and rates of opening and of each reply, in the form of Genie's profiles.
    pub fn profile(&self) -> &Profile {
        self.dialog.profile()
    }

    /// The bundle it was opened from.
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// The dialog below, for what this type does not offer.
    pub fn dialog_mut(&mut self) -> &mut Dialog {
        &mut self.dialog
    }
}

/// A piece of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Token {
    /// The token; `None` where only held-back text is given, and at the end.
    pub id: Option<TokenId>,
    /// Text that is certain by now. Empty while a character or a stop sequence may still be completed.
    pub text: String,
    /// Which of several replies it belongs to; see [`Session::set_streams`].
    pub stream: usize,
    /// Why the reply ended: set on the last piece only, which carries nothing else.
    pub stop: Option<StopReason>,
}

/// A reply in the making: an iterator of its tokens.
#[derive(Debug)]
pub struct Generation<'s> {
    state: State<'s>,
    queue: VecDeque<Token>,
    fits: Option<Admission>,
    /// The check of the weights, until it was asked to go on.
    weights: Option<&'s mut WeightCheck>,
}

#[derive(Debug)]
enum State<'s> {
    Running(dialog::Generation<'s>),
    /// The last piece was given, or the error.
    Over(dialog::Generation<'s>),
    /// The error, until it was given.
    Failed(Option<Error>),
}

impl Generation<'_> {
    /// Leaves room for a next turn: this reply takes at most half of the tokens that the context holds beside the prompt.
    /// Asked before the first token; returns the limit, unless a lower one is in force.
    pub fn keep_room(&mut self) -> Option<usize> {
        match &mut self.state {
            State::Running(inner) => inner.keep_room(),
            State::Over(_) | State::Failed(_) => None,
        }
    }

    /// Generates the rest and returns the whole reply with its counts and times.
    ///
    /// # Errors
    /// Those of the iterator; for one that has failed, that it was aborted.
    pub fn into_reply(mut self) -> Result<Reply, Error> {
        while self.next().transpose()?.is_some() {}
        Ok(self.stop_here())
    }

    /// Ends the reply here and returns it.
    pub fn stop_here(self) -> Reply {
        match self.state {
            State::Running(inner) | State::Over(inner) => inner.finish(),
            State::Failed(_) => Reply::none(StopReason::Aborted),
        }
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Token, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(token) = self.queue.pop_front() {
                // Not before: the first token is waited for.
                if let Some(weights) = &mut self.weights {
                    weights.start();
                }
                return Some(Ok(token));
            }
            let inner = match &mut self.state {
                State::Running(inner) => inner,
                State::Over(_) => return None,
                State::Failed(error) => return error.take().map(Err),
            };
            match inner.step() {
                Ok(Some(chunk))
                    if chunk.code == SentenceCode::End && chunk.text.is_empty() && chunk.tokens.is_empty() => {}
                Ok(Some(chunk)) => {
                    let stream = chunk.stream;
                    let ids = chunk.tokens.iter().map(|&id| Token { id: Some(id), stream, ..Token::default() });
                    self.queue.extend(ids);
                    match self.queue.back_mut() {
                        Some(last) => last.text.push_str(chunk.text),
                        None => self.queue.push_back(Token { text: chunk.text.into(), stream, ..Token::default() }),
                    }
                }
                Ok(None) => {
                    let stop = inner.stop().cloned();
                    let State::Running(inner) = std::mem::replace(&mut self.state, State::Failed(None)) else {
                        return None;
                    };
                    self.state = State::Over(inner);
                    return Some(Ok(Token { stop, ..Token::default() }));
                }
                Err(error) => {
                    // What was generated before is still asked for.
                    if let State::Running(inner) = std::mem::replace(&mut self.state, State::Failed(None)) {
                        self.state = State::Over(inner);
                    }
                    return Some(Err(match &mut self.weights {
                        Some(weights) => or_damaged(weights, error, self.fits),
                        None => Error::of_dialog(error, self.fits),
                    }));
                }
            }
        }
    }
}

/// A dialog's error; or damaged weights, where these may be what made the model or the sampler fail.
fn or_damaged(weights: &mut WeightCheck, error: DialogError, fits: Option<Admission>) -> Error {
    if matches!(error, DialogError::Engine(_) | DialogError::Sampler(_))
        && let Err(damaged) = weights.finish()
    {
        return damaged;
    }
    Error::of_dialog(error, fits)
}

/// Stops the reply of a session that is being generated, from a callback or another thread. Clones stop the same session.
#[derive(Clone, Debug)]
pub struct StopHandle(Control);

impl StopHandle {
    /// Ends the reply after its current token, or within a long prompt after its current step; without effect if none is
    /// being generated. What was processed by then stays in the session, which can be saved and goes on.
    pub fn stop(&self) {
        self.0.signal(Signal::Abort);
    }
}
