//! The dialog itself: state between queries, and what each sentence code does to it.

use std::time::{Duration, Instant};

use engine::{Admission, ContextLimit, Overflow, PrefixCache, TokenModel};
use genie_types::TokenId;
use grammar::{Constraint, Grammar, Vocabulary};

use super::batch::Batch;
use super::codes::{SentenceCode, StopReason};
use super::control::Control;
use super::decoding::{Decoding, ReplyWriter};
use super::error::DialogError;
use super::generation::Generation;
use super::history::History;
use super::query_plan::{self, QueryPlan};
use super::query_state::QueryState;
use super::reply::{Chunk, Reply};
use super::reply_text::{ReplyText, StopRules};
use super::stop_callback::StopCallback;
use crate::config::{ContextSettings, DialogConfig, GrammarSettings, HarmonySettings};
use crate::kinds::{self, Basic, DialogKind, Models};
use crate::kpi::Profile;
use crate::sampler::{Sampler, SamplerCallback, SamplerRules, SamplerSettings};
use genie_tokenizer::Tokenizer;

/// Bytes of text that are given to the tokenizer whatever the context is.
const SURELY_TOKENIZED: usize = 1 << 16;

/// A conversation. Not tied to a backend: it knows its model by [`TokenModel`].
pub struct Dialog {
    pub(super) model: Box<dyn TokenModel>,
    /// The other model of two: a draft, or one that goes on for the first.
    pub(super) second: Option<Box<dyn TokenModel>>,
    pub(super) tokenizer: Tokenizer,
    pub(super) sampler: Sampler,
    pub(super) kind: Box<dyn DialogKind>,
    pub(super) context: ContextSettings,
    pub(super) rules: StopRules,
    control: Control,
    /// The conversations of several prompts, after a batch query.
    pub(super) batch: Option<Batch>,
    /// The last token drawn, if the model has not processed it. The model's transcript has all others.
    pub(super) unprocessed: Option<TokenId>,
    /// A `BEGIN` or `CONTINUE` was the last query.
    pub(super) open: bool,
    /// Set while paused: the text side before the last token.
    pub(super) paused: Option<ReplyText>,
    prefix_cache: Option<PrefixCache>,
    /// What replies must follow.
    pub(super) grammar: Option<Box<Constraint>>,
    /// The bytes of the tokens, once a grammar was set.
    pub(super) vocabulary: Option<Vocabulary>,
    pub(super) profile: Profile,
    /// The response format of replies that are messages.
    pub(super) harmony: Option<HarmonySettings>,
    /// The program's own rule for the end of replies.
    pub(super) stop_callback: Option<StopCallback>,
}

impl std::fmt::Debug for Dialog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialog").field("kind", &self.kind.name()).field("n_past", &self.n_past()).finish()
    }
}

impl Dialog {
    /// A dialog by a config, on a model that was opened with [`DialogConfig::engine`]. Loads the tokenizer.
    ///
    /// # Errors
    /// The tokenizer cannot be loaded, or the kind that the config names cannot be opened.
    pub fn new(config: &DialogConfig, model: Box<dyn TokenModel>) -> Result<Self, DialogError> {
        Self::with_tokenizer(config, Tokenizer::from_file(config.tokenizer())?, model)
    }

    /// As [`new`](Self::new), with a tokenizer that is loaded already; the config's is not looked at.
    ///
    /// # Errors
    /// The kind that the config names cannot be opened; a stop sequence is empty.
    pub fn with_tokenizer(
        config: &DialogConfig,
        tokenizer: Tokenizer,
        model: Box<dyn TokenModel>,
    ) -> Result<Self, DialogError> {
        let began = Instant::now();
        let mut dialog = Self::from_parts(config.context().clone(), config.sampler().clone(), tokenizer, model);
        dialog.set_kind(kinds::open(config)?)?;
        dialog.set_stop_sequences(config.stop_sequences().to_vec())?;
        if let Some(GrammarSettings { kind, path }) = config.grammar() {
            dialog.set_grammar(Some(&Grammar::from_file(kind.parse()?, path)?))?;
        }
        dialog.set_harmony(config.harmony())?;
        dialog.control.set_max_num_tokens(config.max_num_tokens());
        dialog.profile.created(began.elapsed());
        Ok(dialog)
    }

    /// A basic dialog from parts that are at hand, without stop sequences or a token limit.
    pub fn from_parts(
        context: ContextSettings,
        sampler: SamplerSettings,
        tokenizer: Tokenizer,
        model: Box<dyn TokenModel>,
    ) -> Self {
        if context.size > model.context_size() {
            tracing::warn!(config = context.size, model = model.context_size(), "context size is cut to the model's");
        }
        let control = Control::new(None, model.stop_flag().unwrap_or_default());
        let mut sampler = Sampler::new(sampler);
        sampler.learn_breakers(&tokenizer);
        Self {
            model,
            second: None,
            tokenizer,
            sampler,
            kind: Box::new(Basic),
            context,
            rules: StopRules::default(),
            control,
            batch: None,
            unprocessed: None,
            open: false,
            paused: None,
            prefix_cache: None,
            grammar: None,
            vocabulary: None,
            profile: Profile::default(),
            harmony: None,
            stop_callback: None,
        }
    }

    /// The same dialog with another way to generate.
    ///
    /// # Panics
    /// The kind wants what this dialog lacks; [`set_kind`](Self::set_kind) returns it.
    #[must_use]
    pub fn with_kind(mut self, kind: Box<dyn DialogKind>) -> Self {
        self.set_kind(kind).expect("the kind works with this dialog's models");
        self
    }

    /// Generates another way from now on.
    ///
    /// # Errors
    /// [`DialogError::Kind`]: the models do not allow it; the kind cannot prepare the model. The kind is as it was.
    pub fn set_kind(&mut self, mut kind: Box<dyn DialogKind>) -> Result<(), DialogError> {
        kind.check(&self.models())?;
        if let Some(second) = &mut self.second {
            kind.check_caches(&mut *self.model, &mut **second)?;
        }
        kind.prepare(&mut *self.model)?;
        self.kind = kind;
        Ok(())
    }

    /// Takes the other model of two, for kinds that work with one: see [`DialogKind`].
    ///
    /// # Errors
    /// [`DialogError::Kind`]: it does not go with the first one.
    pub fn with_second(mut self, second: Box<dyn TokenModel>) -> Result<Self, DialogError> {
        if let Some(stop) = second.stop_flag() {
            self.control.also_stops(stop);
        }
        let second = self.second.insert(second);
        self.kind.check(&Models { main: &*self.model, second: Some(&**second) })?;
        self.kind.check_caches(&mut *self.model, &mut **second)?;
        Ok(self)
    }

    /// What a kind has to work with.
    fn models(&self) -> Models<'_> {
        Models { main: &*self.model, second: self.second.as_deref() }
    }

    /// Replies to text. Stop sequences apply.
    ///
    /// # Errors
    /// See [`DialogError`]; a query that does not fit the context changes nothing.
    pub fn query(
        &mut self,
        text: &str,
        code: SentenceCode,
        callback: impl FnMut(Chunk<'_>),
    ) -> Result<Reply, DialogError> {
        self.start(text, code)?.run(callback)
    }

    /// Replies to tokens. Stop sequences do not apply, as in libGenie; chunks carry text all the same.
    ///
    /// # Errors
    /// See [`DialogError`]; a query that does not fit the context changes nothing.
    pub fn token_query(
        &mut self,
        tokens: &[TokenId],
        code: SentenceCode,
        callback: impl FnMut(Chunk<'_>),
    ) -> Result<Reply, DialogError> {
        self.start_tokens(tokens, code)?.run(callback)
    }

    /// As [`query`](Self::query), one step at a time. A query that wants no reply is processed here.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub fn start(&mut self, text: &str, code: SentenceCode) -> Result<Generation<'_>, DialogError> {
        let new = self.encode(&self.framed(text, code, self.open))?;
        self.start_text(new, code)
    }

    /// The tokens of a text that may fit.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<TokenId>, DialogError> {
        self.may_fit(text)?;
        Ok(self.tokenizer.encode(text)?)
    }

    /// As [`start`](Self::start), for text in which control tokens are not recognised: what others wrote cannot end a turn.
    ///
    /// # Errors
    /// As [`query`](Self::query); the tokenizer has no other way to write a control token's text.
    pub fn start_plain(&mut self, text: &str, code: SentenceCode) -> Result<Generation<'_>, DialogError> {
        self.may_fit(text)?;
        let (before, behind) = self.frame(code, self.open);
        let mut new = self.tokenizer.encode(before)?;
        new.extend(self.tokenizer.encode_plain(text)?);
        new.extend(self.tokenizer.encode(behind)?);
        self.start_text(new, code)
    }

    /// Refuses a long text that cannot fit, before the tokenizer spends seconds and gigabytes on it. Short ones are left to
    /// the tokenizer, which may drop characters or join unknown ones; where the context shifts all fit.
    fn may_fit(&self, text: &str) -> Result<(), DialogError> {
        let (bytes, limit, longest) = (text.len(), self.limit(), self.tokenizer.longest_entry().max(1));
        if bytes > SURELY_TOKENIZED && bytes / longest > limit && !self.model.shifts_context() {
            return Err(DialogError::TooLong { bytes, limit, longest });
        }
        Ok(())
    }

    fn start_text(&mut self, new: Vec<TokenId>, code: SentenceCode) -> Result<Generation<'_>, DialogError> {
        // A rewind states the whole conversation.
        let new = if code == SentenceCode::Rewind { self.with_bos(new) } else { new };
        let rules = self.rules.clone();
        self.begin(&new, code, rules)
    }

    /// The tokens of a text that states a whole conversation, as [`SentenceCode::Rewind`] takes it.
    ///
    /// # Errors
    /// The tokenizer refuses the text.
    pub fn tokens_of_conversation(&self, text: &str) -> Result<Vec<TokenId>, DialogError> {
        Ok(self.with_bos(self.tokenizer.encode(text)?))
    }

    /// Text has no BOS of its own, unless it is written there.
    fn with_bos(&self, mut tokens: Vec<TokenId>) -> Vec<TokenId> {
        if let Some(bos) = self.context.bos.filter(|bos| tokens.first() != Some(bos)) {
            tokens.insert(0, bos);
        }
        tokens
    }

    /// As [`token_query`](Self::token_query), one step at a time. A query that wants no reply is processed here.
    ///
    /// # Errors
    /// As [`token_query`](Self::token_query).
    pub fn start_tokens(&mut self, tokens: &[TokenId], code: SentenceCode) -> Result<Generation<'_>, DialogError> {
        if !self.kind.takes_tokens(self.sampler.settings().rules() == SamplerRules::Genie) {
            return Err(DialogError::TokensRefused { kind: self.kind.name() });
        }
        self.begin(tokens, code, StopRules::default())
    }

    fn begin(&mut self, new: &[TokenId], code: SentenceCode, rules: StopRules) -> Result<Generation<'_>, DialogError> {
        self.leave_batch()?;
        let plan = self.plan(new, code).inspect_err(|_| self.model.forget_unreached_grids())?;
        self.begin_with(plan, new, code, rules)
    }

    pub(super) fn begin_with(
        &mut self,
        mut plan: QueryPlan,
        new: &[TokenId],
        code: SentenceCode,
        rules: StopRules,
    ) -> Result<Generation<'_>, DialogError> {
        let began = Instant::now();
        let (n_past, n_new, limit) = (plan.keep.min(self.n_past()), plan.input.len(), self.limit());
        if n_past + n_new > limit && !self.model.shifts_context() {
            self.model.forget_unreached_grids();
            return Err(Overflow::ContextExceeded { n_past, n_new, limit }.into());
        }
        // Before the cache is taken back: it is the history that tells what is kept of the reply.
        let starts = self.begin_grammar(code, new);
        if code == SentenceCode::Rewind {
            // A reply that is known may be none by the grammar and the bias of now.
            if plan.replay.is_some_and(|token| starts || self.sampler.settings().chain().forbids(token)) {
                plan = plan.drawing_again(new);
            }
            if !self.forget_or_clear(plan.keep)? {
                plan = QueryPlan { keep: 0, input: new.to_vec(), replay: None };
            }
        }
        let paused = self.paused.take().filter(|_| code == SentenceCode::Resume);
        let reply_text = match paused {
            Some(paused) => paused,
            None => self.new_reply_text()?,
        };
        self.control.take(); // a signal from before this query is stale
        let keep = plan.keep;
        let mut query = QueryState::new(plan, rules, reply_text, began);
        query.stop_callback.clone_from(&self.stop_callback);
        (query.first_code, query.kpis.speculation) = (self.kind.first_code(), self.kind.speculation());
        let wants_reply =
            !matches!(code, SentenceCode::Begin | SentenceCode::Continue) && self.control.max_num_tokens() > 0;
        self.begin_empty(&mut query, wants_reply);
        let ready = self.go_back(keep).and_then(|()| self.kind.prepare(&mut *self.model));
        if code == SentenceCode::Rewind && query.plan.replay.is_some() {
            let history = History::new(self.model.transcript(), query.plan.replay);
            self.sampler.relearn(history.tokens());
        }
        let begun = ready.and_then(|()| match wants_reply {
            true => Ok(None),
            false => self.prefill(&mut query, code),
        });
        match begun {
            Ok(stop) if wants_reply => debug_assert!(stop.is_none(), "nothing has run"),
            Ok(stop) => return Ok(Generation::over(self, query, stop.unwrap_or(StopReason::Prefilled))),
            Err(error) => {
                self.abandon_query();
                return Err(error);
            }
        }
        self.open = false;
        Ok(Generation::new(self, query))
    }

    /// The parts that one step of a reply works with.
    pub(super) fn decoding<'a>(&'a mut self, query: &'a mut QueryState) -> (&'a mut dyn DialogKind, Decoding<'a>) {
        let limit = self.limit();
        let Self { model, second, sampler, kind, context, control, unprocessed, prefix_cache, grammar, batch, .. } =
            self;
        let kind: &mut dyn DialogKind = match batch {
            Some(batch) if query.batch => batch,
            _ => &mut **kind,
        };
        let reply = ReplyWriter { sampler, context, query, grammar: grammar.as_deref_mut() };
        let (model, prefix_cache) = (&mut **model, prefix_cache.as_ref());
        let second = second.as_deref_mut();
        (kind, Decoding { model, second, unprocessed, prefix_cache, control, limit, reply })
    }

    /// After a failure: what the model holds stays, a token that it has not processed is forgotten, by the
    /// sampler too.
    pub(super) fn abandon_query(&mut self) {
        self.open = false;
        self.unprocessed = None;
        self.relearn_history();
        self.model.forget_unreached_grids();
    }

    pub(super) fn view(&self) -> History<'_> {
        History::new(self.model.transcript(), self.unprocessed)
    }

    /// What to keep, process and deliver again; refuses codes that do not fit the state.
    pub(super) fn plan(&self, new: &[TokenId], code: SentenceCode) -> Result<QueryPlan, DialogError> {
        let plan = match (code, &self.paused) {
            (SentenceCode::Abort, _) => return Err(DialogError::NotAQuery { code }),
            (SentenceCode::Resume, None) => return Err(DialogError::NotPaused),
            (SentenceCode::Resume, Some(_)) if !new.is_empty() => {
                return Err(DialogError::ResumeWithInput { n: new.len() });
            }
            (SentenceCode::Resume, Some(_)) => {
                QueryPlan { keep: self.n_past(), input: Vec::new(), replay: self.unprocessed }
            }
            (SentenceCode::Rewind, _) => query_plan::of_rewind(self.view(), new),
            (_, Some(_)) => return Err(DialogError::Paused { code }),
            _ if self.begins_with_bos(code) => query_plan::of_bos_and_text(self.view(), &self.context, new),
            _ => {
                let plan = query_plan::of_turn(code, self.open, self.view(), &self.context, new);
                // The end of a sentence without input of its own: the last token is processed again for its logits.
                if plan.input.is_empty() && !self.view().is_empty() {
                    let keep = plan.keep.saturating_sub(1);
                    return Ok(QueryPlan {
                        keep,
                        input: self.model.transcript().tokens()[keep..plan.keep].to_vec(),
                        replay: None,
                    });
                }
                plan
            }
        };
        if plan.input.is_empty() && plan.replay.is_none() { Err(DialogError::Empty) } else { Ok(plan) }
    }

    /// Processes input that wants no reply: nothing is sampled. Returns why it ended before its end, if it did.
    fn prefill(&mut self, query: &mut QueryState, code: SentenceCode) -> Result<Option<StopReason>, DialogError> {
        // A known token that may not be repeated yet stays what it was: sampled, not processed.
        if code == SentenceCode::Resume {
            self.paused = Some(query.reply_text.clone());
        }
        let stop = self.decoding(query).1.prefill_input()?;
        self.unprocessed = query.plan.replay.take().or(self.unprocessed);
        self.open = stop.is_none() && matches!(code, SentenceCode::Begin | SentenceCode::Continue);
        if stop.is_none() {
            let (kind, mut decoding) = self.decoding(query);
            kind.prefilled(&mut decoding)?;
        }
        query.kpis.prefill_time = Some(query.began.elapsed());
        self.profile.queried(query.began, &query.kpis);
        Ok(stop)
    }

    /// How many tokens can still be processed, special tokens included, and what stops the next.
    pub fn admission(&self) -> Option<Admission> {
        let fits = self.model.admission()?;
        let left = self.limit().saturating_sub(self.n_past());
        if left >= fits.n_fit {
            return Some(fits);
        }
        Some(Admission { n_fit: left, bound: ContextLimit::Context { limit: self.limit() } })
    }

    pub(super) fn limit(&self) -> usize {
        self.context.size.min(self.kind.context_size(&self.models())).saturating_sub(self.kind.n_reserved())
    }

    /// Forgets the conversation: history, cache, penalties; the random sequence starts over.
    ///
    /// # Errors
    /// The model cannot be reset.
    pub fn reset(&mut self) -> Result<(), DialogError> {
        self.batch = None;
        self.model.reset()?;
        self.second.as_mut().map_or(Ok(()), |second| second.reset())?;
        self.kind.forget();
        self.unprocessed = None;
        self.sampler.reset();
        if let Some(grammar) = &mut self.grammar {
            grammar.restart();
        }
        self.open = false;
        self.paused = None;
        Ok(())
    }

    /// Texts that end a reply, from the next query on.
    ///
    /// # Errors
    /// One of them is empty.
    pub fn set_stop_sequences(&mut self, sequences: Vec<String>) -> Result<(), DialogError> {
        if let Some(index) = sequences.iter().position(String::is_empty) {
            return Err(DialogError::EmptyStopSequence { index });
        }
        self.rules = StopRules::new(sequences, &self.tokenizer);
        Ok(())
    }

    /// Looks for a stored prefix of the first prompt from now on, and keeps its prefixes.
    pub fn set_prefix_cache(&mut self, cache: Option<PrefixCache>) {
        self.prefix_cache = cache;
    }

    /// The prefix cache of the first prompt, if it has one.
    pub fn prefix_cache(&self) -> Option<&PrefixCache> {
        self.prefix_cache.as_ref()
    }

    /// Gives rows of embeddings token ids of their own, for prompts of ids: [`TokenModel::add_embeddings`].
    ///
    /// # Errors
    /// Those of the model.
    pub fn add_embeddings(&mut self, rows: &[f32]) -> Result<std::ops::Range<u32>, DialogError> {
        Ok(self.model.add_embeddings(rows)?)
    }

    /// Draws tokens another way from now on; penalties and random sequence start over.
    pub fn set_sampler(&mut self, settings: SamplerSettings) {
        let callback = self.sampler.callback().cloned();
        self.sampler = Sampler::new(settings);
        self.sampler.learn_breakers(&self.tokenizer);
        self.sampler.set_callback(callback);
    }

    /// Asks a function after each token whether the reply ends there, from the next query on, whatever its kind.
    pub fn set_stop_callback(&mut self, callback: Option<StopCallback>) {
        self.stop_callback = callback;
    }

    /// Lets a function choose tokens from now on; `None` is the sampler's own way.
    pub fn set_sampler_callback(&mut self, callback: Option<SamplerCallback>) {
        self.sampler.set_callback(callback);
    }

    /// The limit on generated tokens; `usize::MAX` is none.
    pub(super) fn max_num_tokens(&self) -> usize {
        self.control.max_num_tokens()
    }

    /// A handle to stop, pause or limit queries, also while one runs.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// All tokens so far; the last may not be in the cache yet.
    pub fn history(&self) -> Vec<TokenId> {
        self.view().to_vec()
    }

    /// Tokens in the cache.
    pub fn n_past(&self) -> usize {
        self.model.n_past()
    }

    /// Whether the dialog waits for `RESUME`.
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// The model, for its step log.
    pub fn model(&self) -> &dyn TokenModel {
        &*self.model
    }

    /// The other model of two.
    pub fn second_model(&self) -> Option<&dyn TokenModel> {
        self.second.as_deref()
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The sampler, for its seed and random state.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Creation and queries so far, with their times.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// States how long creating took, the engine included, where the caller knows better than [`Dialog::new`].
    pub fn set_init_time(&mut self, init: Duration) {
        self.profile.created(init);
    }
}
