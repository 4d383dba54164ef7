//! One request beside others: what turns rows of logits into its reply, apart from the model, which many share.
//!
//! The same parts as a basic dialog's (sampler, penalties, stop rules, detokenizer, grammar, counts), owned by the request.
//! A scheduler has the model process tokens and gives the rows to [`RequestReply::take`]. *Invariant*: the history is the
//! prompt and the tokens drawn; the model is to have processed all of it but the last token.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_types::TokenId;
use grammar::{Constraint, Grammar, Vocabulary};
use parking_lot::Mutex;

use super::codes::StopReason;
use super::decoding::{Drawn, ReplyWriter};
use super::error::DialogError;
use super::query_plan::QueryPlan;
use super::query_state::QueryState;
use super::reply::Reply;
use super::reply_text::{ReplyText, StopRules};
use super::request_settings::{ReplyPiece, RequestSettings};
use super::request_trees::Trees;
use crate::config::{ContextSettings, DialogConfig, HarmonySettings};
use crate::kinds::backoff::Backoff;
use crate::kinds::{Lookup, LookupSettings, TreeKind};
use crate::kpi::Speculation;
use crate::sampler::{Logprobs, Sampler, SamplerCallback};
use genie_tokenizer::Tokenizer;

/// What all requests to a model have in common. Cheap to clone.
#[derive(Clone)]
pub struct RequestBase {
    context: Arc<ContextSettings>,
    tokenizer: Arc<Tokenizer>,
    /// The bytes of the tokens, once a request had a grammar; by the size of the model's vocabulary.
    vocabulary: Arc<Mutex<Option<(usize, Vocabulary)>>>,
    defaults: RequestSettings,
    /// Requests that do not draft by lookup draft trees.
    trees: Option<TreeKind>,
    /// Chooses tokens in place of the samplers.
    sampler_callback: Option<SamplerCallback>,
    /// Replies are messages.
    harmony: Option<HarmonySettings>,
}

impl std::fmt::Debug for RequestBase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestBase").field("context", &self.context).finish_non_exhaustive()
    }
}

impl RequestBase {
    /// From a bundle's config: its tokenizer is loaded; sampler, stop sequences, grammar and limit are what requests have unless
    /// they say otherwise. A dialog of type `lookup` lets them draft.
    ///
    /// # Errors
    /// The tokenizer or the grammar's file cannot be loaded; the tokenizer lacks the tokens of the config's `harmony`.
    pub fn from_config(config: &DialogConfig) -> Result<Self, DialogError> {
        let mut defaults = RequestSettings::new(config.sampler().clone());
        defaults.stop_sequences = config.stop_sequences().to_vec();
        defaults.max_tokens = config.max_num_tokens();
        if let Some(settings) = config.grammar() {
            defaults.grammar = Some(Grammar::from_file(settings.kind.parse()?, &settings.path)?);
        }
        defaults.lookup = (config.kind() == "lookup").then(LookupSettings::default);
        let tokenizer = Tokenizer::from_file(config.tokenizer())?;
        Self::new(config.context().clone(), tokenizer, defaults).with_harmony(config.harmony())
    }

    /// From parts that are at hand.
    pub fn new(context: ContextSettings, tokenizer: Tokenizer, defaults: RequestSettings) -> Self {
        let (context, tokenizer) = (Arc::new(context), Arc::new(tokenizer));
        Self {
            context,
            tokenizer,
            vocabulary: Arc::default(),
            defaults,
            trees: None,
            sampler_callback: None,
            harmony: None,
        }
    }

    /// The same where replies are read in the `harmony` format: their text is that of the channel that is meant to be seen. Prompts
    /// are taken as they are.
    ///
    /// # Errors
    /// [`DialogError::Kind`]: the tokenizer lacks its control tokens.
    pub fn with_harmony(mut self, settings: Option<HarmonySettings>) -> Result<Self, DialogError> {
        ReplyText::new(&self.tokenizer).with_harmony(settings, &self.tokenizer)?;
        self.harmony = settings;
        Ok(self)
    }

    /// The same with other defaults.
    #[must_use]
    pub fn with_defaults(mut self, defaults: RequestSettings) -> Self {
        self.defaults = defaults;
        self
    }

    /// The same where a function of the program chooses the tokens of all requests.
    #[must_use]
    pub fn with_sampler_callback(mut self, callback: Option<SamplerCallback>) -> Self {
        self.sampler_callback = callback;
        self
    }

    /// What requests have unless they say otherwise.
    pub fn defaults(&self) -> &RequestSettings {
        &self.defaults
    }

    /// The same, where requests draft by lookup, or do not.
    #[must_use]
    pub fn with_lookup(mut self, lookup: Option<LookupSettings>) -> Self {
        self.defaults.lookup = lookup;
        self
    }

    /// The same, where requests that do not draft by lookup draft trees, or do not.
    #[must_use]
    pub fn with_trees(mut self, trees: Option<TreeKind>) -> Self {
        self.trees = trees;
        self
    }

    /// Where trees of drafts come from.
    pub fn trees(&self) -> Option<&TreeKind> {
        self.trees.as_ref()
    }

    /// The same where no token ends a reply: to measure replies of a known length.
    #[must_use]
    pub fn without_end_tokens(&self) -> Self {
        let context = ContextSettings { eos: Vec::new(), eot: None, ..(*self.context).clone() };
        Self { context: Arc::new(context), ..self.clone() }
    }

    /// The tokenizer of all requests.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The tokens that end a reply.
    pub fn end_tokens(&self) -> impl Iterator<Item = TokenId> + '_ {
        self.context.eos.iter().copied().chain(self.context.eot)
    }

    /// Most tokens of a prompt and its reply, by the config.
    pub fn context_size(&self) -> usize {
        self.context.size
    }

    /// The tokens of a text as the first of a conversation: with BOS.
    ///
    /// # Errors
    /// The tokenizer refuses.
    pub fn encode(&self, text: &str) -> Result<Vec<TokenId>, DialogError> {
        let mut tokens = self.tokenizer.encode(text)?;
        if let Some(bos) = self.context.bos.filter(|bos| tokens.first() != Some(bos)) {
            tokens.insert(0, bos);
        }
        Ok(tokens)
    }

    /// A request with a prompt, which is the whole conversation. `n_vocab`: the model's.
    ///
    /// # Errors
    /// [`DialogError::Empty`] without a prompt; a stop sequence that is empty; a bias that is none; a grammar that the vocabulary
    /// cannot follow.
    pub fn request(
        &self,
        prompt: Vec<TokenId>,
        settings: RequestSettings,
        n_vocab: usize,
    ) -> Result<RequestReply, DialogError> {
        if prompt.is_empty() {
            return Err(DialogError::Empty);
        }
        if let Some(index) = settings.stop_sequences.iter().position(String::is_empty) {
            return Err(DialogError::EmptyStopSequence { index });
        }
        let sampler = settings.biased_sampler(n_vocab)?;
        let grammar = match &settings.grammar {
            Some(grammar) => Some(Box::new(Constraint::new(grammar, &self.vocabulary(n_vocab)?)?)),
            None => None,
        };
        let rules = StopRules::new(settings.stop_sequences, &self.tokenizer);
        let plan = QueryPlan { keep: 0, input: prompt.clone(), replay: None };
        let text = ReplyText::new(&self.tokenizer).with_harmony(self.harmony, &self.tokenizer)?;
        let mut query = QueryState::new(plan, rules, text, Instant::now());
        query.max_tokens = settings.max_tokens.unwrap_or(usize::MAX);
        let lookup = settings.lookup.map(|lookup| Drafter::Lookup(Box::new(Lookup::new(lookup))));
        let drafter = lookup.or_else(|| self.trees.as_ref().map(|kind| Drafter::Trees(Trees::of(kind))));
        query.kpis.speculation = drafter.as_ref().map(|_| Speculation::default());
        let mut sampler = Sampler::new(sampler);
        sampler.set_callback(self.sampler_callback.clone());
        sampler.learn_breakers(&self.tokenizer);
        sampler.observe(&prompt);
        Ok(RequestReply {
            base: if settings.ignore_end_tokens { self.without_end_tokens() } else { self.clone() },
            sampler,
            logprobs: settings.logprobs.map(|n| (n, VecDeque::new())),
            query,
            grammar,
            drafter: drafter.map(|drafter| (drafter, Backoff::default())),
            n_prompt: prompt.len(),
            n_thought: 0,
            history: prompt,
            stop: None,
        })
    }

    fn vocabulary(&self, n_vocab: usize) -> Result<Vocabulary, DialogError> {
        let mut kept = self.vocabulary.lock();
        if let Some((_, vocabulary)) = kept.as_ref().filter(|(n, _)| *n == n_vocab) {
            return Ok(vocabulary.clone());
        }
        let vocabulary = Vocabulary::new(&self.tokenizer, n_vocab)?;
        *kept = Some((n_vocab, vocabulary.clone()));
        Ok(vocabulary)
    }
}

/// Where a request's drafts come from.
pub(super) enum Drafter {
    /// What followed the last tokens before.
    Lookup(Box<Lookup>),
    /// Several continuations at once: [`RequestReply::tree`].
    Trees(Trees),
    /// The scheduler has them made, and asks by [`RequestReply::n_draft_wanted`].
    Scheduler,
}

/// A reply in the making.
pub struct RequestReply {
    pub(super) base: RequestBase,
    pub(super) sampler: Sampler,
    pub(super) query: QueryState,
    grammar: Option<Box<Constraint>>,
    /// How many of the likeliest are wanted, and what was not given out yet, a token each.
    logprobs: Option<(usize, VecDeque<Logprobs>)>,
    /// By count: steps are shared, so their times say nothing of one request's drafts.
    pub(super) drafter: Option<(Drafter, Backoff)>,
    n_prompt: usize,
    /// Bytes of reasoning that were given out.
    n_thought: usize,
    pub(super) history: Vec<TokenId>,
    pub(super) stop: Option<StopReason>,
}

impl std::fmt::Debug for RequestReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let n_history = self.history.len();
        f.debug_struct("RequestReply").field("n_history", &n_history).field("stop", &self.stop).finish_non_exhaustive()
    }
}

impl RequestReply {
    /// Prompt and reply so far; the model has all of it but the last token, or is to process it.
    pub fn history(&self) -> &[TokenId] {
        &self.history
    }

    /// Tokens of the prompt.
    pub fn n_prompt(&self) -> usize {
        self.n_prompt
    }

    /// Tokens of the reply that are still wanted.
    pub fn n_wanted(&self) -> usize {
        self.query.max_tokens.saturating_sub(self.query.n_counted())
    }

    /// Why the reply is over, if it is.
    pub fn stop(&self) -> Option<&StopReason> {
        self.stop.as_ref()
    }

    /// The seed in use.
    pub fn seed(&self) -> u32 {
        self.sampler.seed()
    }

    /// Up to `most` tokens that may come next, to be processed behind the last one. None where nothing is known to follow.
    pub fn draft(&mut self, most: usize) -> Vec<TokenId> {
        let most = most.min(self.n_wanted().saturating_sub(1));
        let Some((Drafter::Lookup(lookup), backoff)) =
            self.drafter.as_mut().filter(|_| most > 0 && self.stop.is_none())
        else {
            return Vec::new();
        };
        if backoff.rests() {
            return Vec::new();
        }
        let draft = lookup.propose(&self.history, most);
        self.fitting_draft(draft)
    }

    /// From now on its drafts are made by whoever asks [`n_draft_wanted`](Self::n_draft_wanted), unless it makes them itself.
    pub fn take_drafts(&mut self) {
        if self.drafter.is_none() {
            self.drafter = Some((Drafter::Scheduler, Backoff::default()));
            self.query.kpis.speculation = Some(Speculation::OF_DRAFT_MODEL);
        }
    }

    /// How many of at most `most` drafted tokens it would have now; 0 where drafts have not held, for a while. Asked once a step.
    pub fn n_draft_wanted(&mut self, most: usize) -> usize {
        let most = most.min(self.n_wanted().saturating_sub(1));
        match self.drafter.as_mut().filter(|_| most > 0 && self.stop.is_none()) {
            Some((Drafter::Scheduler, backoff)) => {
                if backoff.rests() {
                    0
                } else {
                    most
                }
            }
            _ => 0,
        }
    }

    /// A draft as far as the request's grammar allows it.
    #[must_use]
    pub fn fitting_draft(&mut self, mut draft: Vec<TokenId>) -> Vec<TokenId> {
        if let Some(grammar) = &mut self.grammar {
            let valid = grammar.n_valid(&draft);
            draft.truncate(valid);
        }
        draft
    }

    /// Says what became of a draft.
    pub fn drafted(&mut self, n_drafted: usize, n_accepted: usize) {
        if let Some((_, backoff)) = &mut self.drafter {
            backoff.saw(n_drafted, n_accepted);
        }
        if let Some(counts) = self.query.kpis.speculation.as_mut().filter(|_| n_drafted > 0) {
            counts.n_rounds += 1;
            counts.n_drafted += n_drafted;
            counts.n_accepted += n_accepted;
        }
    }

    /// Draws the next token from the logits of the last one and delivers it. Returns it, unless there is none: see
    /// [`stop`](Self::stop) then.
    ///
    /// # Errors
    /// The sampler, the grammar or the tokenizer refuses; the request is over.
    pub fn take(&mut self, logits: &[f32]) -> Result<Option<TokenId>, DialogError> {
        if self.stop.is_some() {
            return Ok(None);
        }
        let place = self.history.len();
        let context = &*self.base.context;
        let Self { sampler, query, grammar, .. } = self;
        let n_before = query.tokens.len();
        let mut writer = ReplyWriter { sampler, context, query, grammar: grammar.as_deref_mut() };
        if writer.query.first_token.is_none() {
            writer.began_to_reply();
        }
        let mut drawn = Drawn::default();
        drawn.draw(&mut writer, place, logits);
        let (token, over) = drawn.into_parts();
        if let Some((n_top, given)) = &mut self.logprobs {
            given.extend(self.query.tokens[n_before..].iter().map(|&token| Logprobs::of(logits, token, *n_top)));
        }
        self.history.extend(token);
        match over {
            Some(end) => self.stop = Some(end?),
            None if self.query.n_counted() >= self.query.max_tokens => self.stop = Some(StopReason::MaxTokens),
            None => {}
        }
        if let Some(stop) = &self.stop {
            self.query.end_text(stop)?;
        }
        Ok(token)
    }

    /// Ends a reply that nothing else has ended: what is held back is given out.
    ///
    /// # Errors
    /// The tokenizer refuses.
    pub fn end(&mut self, stop: StopReason) -> Result<(), DialogError> {
        if self.stop.is_none() {
            self.query.reply_text.finish(&mut self.query.text)?;
            self.stop = Some(stop);
        }
        Ok(())
    }

    /// What was not given out yet, in one piece; `None` if there is nothing.
    pub fn piece(&mut self) -> Option<ReplyPiece> {
        self.query.ends.clear();
        let reasoning = self.query.reply_text.thought_since(self.n_thought);
        self.n_thought += reasoning.len();
        (self.query.has_chunk() || !reasoning.is_empty()).then(|| {
            let chunk = self.query.chunk();
            let (tokens, text) = (chunk.tokens.to_vec(), chunk.text.to_owned());
            let given = self.logprobs.as_mut();
            let logprobs =
                given.map_or_else(Vec::new, |(_, given)| given.drain(..tokens.len().min(given.len())).collect());
            ReplyPiece { tokens, text, reasoning, logprobs }
        })
    }

    /// Tokens at the beginning of the prompt that were not processed, since their rows were there.
    pub fn restored(&mut self, n: usize) {
        self.query.kpis.n_restored = n;
    }

    /// The reply.
    pub fn finish(mut self) -> Reply {
        let query = &mut self.query;
        query.kpis.generation_time = query.first_token.map_or(Duration::ZERO, |first| first.elapsed());
        Reply {
            stop: self.stop.unwrap_or(StopReason::Aborted),
            tokens: std::mem::take(&mut query.tokens),
            logprobs: std::mem::take(&mut query.logprobs),
            text: std::mem::take(&mut query.text),
            input: std::mem::take(&mut query.input),
            messages: Vec::new(),
            streams: Vec::new(),
            kpis: std::mem::take(&mut query.kpis),
        }
    }
}
