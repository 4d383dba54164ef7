//! How tokens are drawn, by the keys of OpenAI and of llama.cpp's server.

use open_genie::serving::{RequestSettings, TokenPenalty};
use open_genie::{SamplerSettings, TokenId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::priority::Priority;
use super::refused;
use super::stages::Stages;
use crate::body;
use crate::error::ApiError;
use crate::schema::{JsonSchema, keys};
use crate::state::State;

/// Tokens that penalties look back over where a request does not say, as in llama.cpp.
const PENALTY_WINDOW: usize = 64;

/// Most texts that may end a reply.
const MOST_STOPS: usize = 64;

/// Most choices of one request.
pub(crate) const MOST_CHOICES: usize = 16;

/// What a request says; what it leaves out is as in the bundle's config.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sampling {
    keys: Keys,
    stages: Stages,
}

keys! {
    /// Keys of a request.
    pub(crate) struct Keys {
        temperature: Option<f32>,
        top_p: Option<f32>,
        top_k: Option<i64>,
        seed: Option<i64>,
        stop: Option<Stop>,
        stop_sequences: Option<Vec<String>>,
        max_tokens: Option<i64>,
        max_completion_tokens: Option<i64>,
        max_output_tokens: Option<i64>,
        n_predict: Option<i64>,
        presence_penalty: Option<f32>,
        frequency_penalty: Option<f32>,
        repeat_penalty: Option<f32>,
        repeat_last_n: Option<i64>,
        logit_bias: Option<Value>,
        ignore_eos: Option<bool>,
        n: Option<i64>,
        priority: Option<Priority>,
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
enum Stop {
    One(String),
    Many(Vec<String>),
}

impl JsonSchema for Stop {
    fn schema() -> Value {
        json!({"anyOf": [String::schema(), <Vec<String>>::schema()]})
    }
}

impl Sampling {
    /// Reads a body, and refuses keys that cannot act here.
    pub(crate) fn read(body: &Value) -> Result<Self, ApiError> {
        let keys: Keys = body::read(body)?;
        refused::check(body)?;
        Ok(Self { keys, stages: body::read(body)? })
    }

    /// For routes whose answer has room for one reply.
    pub(crate) fn only_one(self) -> Result<Self, ApiError> {
        match self.keys.n {
            None | Some(1) => Ok(self),
            Some(n) => Err(ApiError::invalid("n", format!("`n`: this route gives one reply, found {n}"))),
        }
    }

    /// How many replies are wanted.
    pub(crate) fn n(&self) -> Result<usize, ApiError> {
        let found = self.keys.n.unwrap_or(1);
        usize::try_from(found)
            .ok()
            .filter(|n| (1..=MOST_CHOICES).contains(n))
            .ok_or_else(|| ApiError::invalid("n", format!("`n`: expected 1 to {MOST_CHOICES}, found {found}")))
    }

    /// Which of the requests that wait starts first: the one with the higher number.
    pub(crate) fn priority(&self) -> i32 {
        self.keys.priority.unwrap_or_default().get()
    }

    /// Most tokens of the reply; negative numbers are none.
    fn limit(&self) -> Option<i64> {
        self.keys.max_completion_tokens.or(self.keys.max_tokens).or(self.keys.max_output_tokens).or(self.keys.n_predict)
    }

    /// The settings of one request.
    pub(crate) fn settings(&self, state: &State) -> Result<RequestSettings, ApiError> {
        let mut settings = state.model.settings();
        settings.sampler = self.sampler(settings.sampler)?;
        if let Some(stops) = self.stops()? {
            settings.stop_sequences = stops;
        }
        settings.logit_bias = self.bias(state)?;
        settings.ignore_end_tokens = self.keys.ignore_eos.unwrap_or(false);
        settings.max_tokens = match self.limit() {
            Some(n) => usize::try_from(n).ok(),
            None => settings.max_tokens.or(state.options.max_tokens),
        };
        Ok(settings)
    }

    /// OpenAI's object of ids and numbers, or llama.cpp's list of pairs, where `false` forbids a token.
    fn bias(&self, state: &State) -> Result<Vec<(TokenId, f32)>, ApiError> {
        let bad = |found: &dyn std::fmt::Display| {
            let n_vocab = state.model.n_vocab();
            let message = format!("`logit_bias`: expected numbers for tokens below {n_vocab}, found {found}");
            ApiError::invalid("logit_bias", message)
        };
        let pair = |id: Option<u64>, bias: &Value, shown: &dyn std::fmt::Display| {
            let id = id.filter(|id| *id < state.model.n_vocab() as u64).ok_or_else(|| bad(shown))?;
            let bias = match bias {
                Value::Bool(false) => f32::NEG_INFINITY,
                bias => bias.as_f64().ok_or_else(|| bad(shown))? as f32,
            };
            Ok((TokenId(id as u32), bias))
        };
        match &self.keys.logit_bias {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Object(all)) => all.iter().map(|(id, bias)| pair(id.parse().ok(), bias, id)).collect(),
            Some(Value::Array(all)) => all
                .iter()
                .map(|entry| match entry.as_array().map(Vec::as_slice) {
                    Some([id, bias]) => pair(id.as_u64(), bias, entry),
                    _ => Err(bad(entry)),
                })
                .collect(),
            Some(other) => Err(bad(other)),
        }
    }

    /// The stop sequences of the request's own, if it has any.
    pub(crate) fn stops(&self) -> Result<Option<Vec<String>>, ApiError> {
        let stops = match (&self.keys.stop, &self.keys.stop_sequences) {
            (Some(Stop::One(text)), _) => vec![text.clone()],
            (Some(Stop::Many(texts)), _) => texts.clone(),
            (None, Some(texts)) => texts.clone(),
            (None, None) => return Ok(None),
        };
        if stops.len() > MOST_STOPS {
            let message = format!("`stop`: expected at most {MOST_STOPS} texts, found {}", stops.len());
            return Err(ApiError::invalid("stop", message));
        }
        // Some clients send an empty text for none.
        Ok(Some(stops.into_iter().filter(|text| !text.is_empty()).collect()))
    }

    fn sampler(&self, mut sampler: SamplerSettings) -> Result<SamplerSettings, ApiError> {
        let bad = |key: &'static str| {
            move |error: open_genie::serving::SettingsError| {
                ApiError::invalid(key, format!("`{key}`: expected {}, found {}", error.expected, error.value))
            }
        };
        if let Some(temp) = self.keys.temperature {
            sampler = sampler.with_temp(temp).map_err(bad("temperature"))?.with_greedy(temp == 0.0);
        }
        if let Some(p) = self.keys.top_p {
            sampler = sampler.with_top_p(p).map_err(bad("top_p"))?;
        }
        if let Some(k) = self.keys.top_k {
            sampler = sampler.with_top_k(usize::try_from(k).unwrap_or(0));
        }
        if let Some(seed) = self.keys.seed {
            // -1 asks for a random one; of others the low bits count.
            sampler = sampler.with_seed((seed != -1).then_some(seed as u32));
        }
        if !self.stages.is_empty() {
            let mut chain = sampler.chain().clone();
            self.stages.apply(&mut chain)?;
            sampler = sampler.with_chain(chain).map_err(|error| bad(Stages::key(error.key))(error))?;
        }
        let penalties = [self.keys.presence_penalty, self.keys.frequency_penalty, self.keys.repeat_penalty];
        if self.keys.repeat_last_n.is_some() || penalties.iter().any(Option::is_some) {
            let mut penalty = sampler.penalty().clone();
            penalty.presence = self.keys.presence_penalty.unwrap_or(penalty.presence);
            penalty.frequency = self.keys.frequency_penalty.unwrap_or(penalty.frequency);
            penalty.repetition = self.keys.repeat_penalty.unwrap_or(penalty.repetition);
            penalty.last_n = match self.keys.repeat_last_n {
                Some(n) => usize::try_from(n).unwrap_or(usize::MAX),
                None if penalty.last_n == 0 => PENALTY_WINDOW,
                None => penalty.last_n,
            };
            let idle = TokenPenalty { last_n: penalty.last_n, ..TokenPenalty::default() };
            if penalty == idle {
                penalty.last_n = 0;
            }
            sampler = sampler.with_penalty(penalty).map_err(|error| {
                let key = match error.key {
                    "presence-penalty" => "presence_penalty",
                    "frequency-penalty" => "frequency_penalty",
                    _ => "repeat_penalty",
                };
                bad(key)(error)
            })?;
        }
        Ok(sampler)
    }
}

/// The settings of the choices: with a seed each has the next one, so that they differ.
pub(crate) fn choices(settings: &RequestSettings, n: usize) -> Vec<RequestSettings> {
    let of = |index: u32| {
        let mut settings = settings.clone();
        let seed = settings.sampler.seed().map(|seed| seed.wrapping_add(index));
        settings.sampler = settings.sampler.with_seed(seed);
        settings
    };
    (0..n as u32).map(of).collect()
}
