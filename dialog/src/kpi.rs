//! What a query cost, in Genie's words, and the profile file in Genie's shape.
//!
//! *Units*: durations here; microseconds and tokens per second in the JSON.
//!
//! *Deviation*: libGenie writes no event for a query that ends at the context limit; here every query leaves one.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use crate::kpi_text::{Kpi, Kpis};

/// Counts and times of one query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryKpis {
    /// Tokens processed before the reply, special tokens included.
    pub n_prompt: usize,
    /// Those of them that were restored from a prefix cache: their rows were read, the model did not run.
    pub n_restored: usize,
    /// Tokens delivered.
    pub n_generated: usize,
    /// From the query's start to its first sampled token. Absent if none was wanted.
    pub time_to_first_token: Option<Duration>,
    /// For a query that wanted no reply: the whole of it.
    pub prefill_time: Option<Duration>,
    /// From the first sampled token to the end.
    pub generation_time: Duration,
    /// Tokens drawn: those delivered, and the one that ended the reply (EOS, EOT).
    pub n_drawn: usize,
    /// What became of drafts, for a kind that makes them.
    pub speculation: Option<Speculation>,
}

/// What became of the drafts of one reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Speculation {
    /// Steps that processed a draft.
    pub n_rounds: usize,
    /// Tokens of all drafts.
    pub n_drafted: usize,
    /// Those of them that were accepted.
    pub n_accepted: usize,
    /// Genie's count of generated tokens leaves out the first, which no round has given.
    pub without_first: bool,
    /// Genie's rate of accepted tokens counts the first token too.
    pub with_first: bool,
}

impl Speculation {
    /// Counts as Genie has them of drafts of a second model (`spd`).
    pub(crate) const OF_DRAFT_MODEL: Self = Self { without_first: true, ..Self::NONE };
    /// Counts as Genie has them of trees that a second model makes of hidden states (`eaglet`).
    pub(crate) const OF_HIDDEN_STATES: Self = Self { with_first: true, ..Self::NONE };
    const NONE: Self = Self { n_rounds: 0, n_drafted: 0, n_accepted: 0, without_first: false, with_first: false };

    /// Share of the drafted tokens that was accepted, 0 to 1.
    pub fn acceptance(&self) -> Option<f64> {
        (self.n_drafted > 0).then(|| self.n_accepted as f64 / self.n_drafted as f64)
    }
}

impl QueryKpis {
    /// Generated tokens as Genie counts them: with a kind that drafts, an EOS counts.
    pub fn n_generated_for_genie(&self) -> usize {
        match self.speculation {
            Some(speculation) => self.n_drawn.saturating_sub(usize::from(speculation.without_first)),
            None => self.n_generated,
        }
    }

    /// Tokens that a round has given on average, as Genie has it: `(generated - 1) / rounds`, with the first
    /// token for some kinds.
    pub fn acceptance_rate(&self) -> Option<f64> {
        let Speculation { n_rounds, with_first, .. } = self.speculation?;
        let n = self.n_generated_for_genie().checked_sub(usize::from(!with_first)).filter(|n| *n > 0)?;
        (n_rounds > 0).then(|| n as f64 / n_rounds as f64)
    }

    /// Prompt tokens per second: those that the model processed over the time to the first token (or of the prefill).
    pub fn prompt_rate(&self) -> Option<f64> {
        rate(self.n_prompt.saturating_sub(self.n_restored), self.time_to_first_token.or(self.prefill_time)?)
    }

    /// Generated tokens per second after the first: `(n_generated - 1) / generation_time`.
    pub fn generation_rate(&self) -> Option<f64> {
        rate(self.n_generated.checked_sub(1).filter(|n| *n > 0)?, self.generation_time)
    }
}

fn rate(n: usize, time: Duration) -> Option<f64> {
    if time.is_zero() { None } else { Some(n as f64 / time.as_secs_f64()) }
}

/// The event of applying an adapter.
const APPLY_LORA: &str = "GenieDialog_applyLora";

struct Event {
    name: &'static str,
    start: Duration,
    stop: Duration,
    values: Map<String, Value>,
}

/// The events of one dialog since it was made.
pub struct Profile {
    epoch: Instant,
    made: SystemTime,
    create: Option<Event>,
    /// Queries, and switches of adapters between them.
    queries: Vec<Event>,
    kpis: Kpis,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            made: SystemTime::now(),
            create: None,
            queries: Vec::new(),
            kpis: Kpis::default(),
        }
    }
}

impl Profile {
    /// Notes how long creating took.
    pub(crate) fn created(&mut self, init: Duration) {
        // Who opens the model knows the time better than the dialog, and says it again.
        self.kpis.init = Kpi::default();
        self.kpis.init.add(init);
        let mut values = Map::new();
        values.insert("init-time".into(), value(micros(init), "us"));
        self.create = Some(Event { name: "GenieDialog_create", start: Duration::ZERO, stop: init, values });
    }

    /// Notes that LoRA adapters were applied.
    pub(crate) fn applied_lora(&mut self, began: Instant, took: Duration) {
        let mut values = Map::new();
        values.insert("lora-adapter-switching-time".into(), value(micros(took), "us"));
        let start = began.saturating_duration_since(self.epoch);
        self.queries.push(Event { name: APPLY_LORA, start, stop: self.epoch.elapsed(), values });
    }

    /// Notes a save.
    pub(crate) fn saved(&mut self, took: Duration) {
        self.kpis.save.add(took);
    }

    /// Notes a restore.
    pub(crate) fn restored(&mut self, took: Duration) {
        self.kpis.restore.add(took);
    }

    /// Times by kind of call.
    pub fn kpis(&self) -> &Kpis {
        &self.kpis
    }

    pub(crate) fn queried(&mut self, began: Instant, kpis: &QueryKpis) {
        self.kpis.queried(kpis);
        tracing::debug!("{}", self.kpis.dump(" "));
        let mut values = Map::new();
        let mut put = |key: &str, v: Value| {
            values.insert(key.into(), v);
        };
        put("num-prompt-tokens", value(json!(kpis.n_prompt), ""));
        if let Some(rate) = kpis.prompt_rate() {
            put("prompt-processing-rate", value(json!(rate), "toks/sec"));
        }
        if let Some(time) = kpis.time_to_first_token {
            put("time-to-first-token", value(micros(time), "us"));
            put("num-generated-tokens", value(json!(kpis.n_generated_for_genie()), ""));
            // Genie writes the rate of a single token as 0.
            put("token-generation-rate", value(json!(kpis.generation_rate().unwrap_or(0.0)), "toks/sec"));
            put("token-generation-time", value(micros(kpis.generation_time), "us"));
            if let Some(rate) = kpis.acceptance_rate() {
                // Genie has it in single precision.
                put("token-acceptance-rate", value(json!(f64::from(rate as f32)), ""));
            }
        }
        let start = began.saturating_duration_since(self.epoch);
        self.queries.push(Event { name: "GenieDialog_query", start, stop: self.epoch.elapsed(), values });
    }

    /// Queries so far.
    pub fn n_queries(&self) -> usize {
        self.queries.iter().filter(|event| event.name != APPLY_LORA).count()
    }

    /// The profile as Genie's `GenieProfile_getJsonData` gives it, without trace events.
    pub fn to_json(&self) -> Value {
        let version = json!({"major": 0, "minor": 1, "patch": 0});
        let since_1970 = self.made.duration_since(UNIX_EPOCH).unwrap_or_default();
        let events: Vec<Value> = self.create.iter().chain(&self.queries).map(Event::to_json).collect();
        json!({
            "header": {"header_version": version, "version": version, "artifact_type": "GENIE_PROFILE"},
            "metadata": {"timestamp": micros(since_1970)},
            "components": [{"name": "dialog0", "type": "dialog", "events": events}],
        })
    }
}

impl Event {
    fn to_json(&self) -> Value {
        let mut event = Map::new();
        event.insert("type".into(), json!(self.name));
        event.insert("duration".into(), micros(self.stop.saturating_sub(self.start)));
        event.insert("start".into(), micros(self.start));
        event.insert("stop".into(), micros(self.stop));
        event.extend(self.values.clone());
        Value::Object(event)
    }
}

fn micros(d: Duration) -> Value {
    json!(u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
}

fn value(value: Value, unit: &str) -> Value {
    json!({"value": value, "unit": unit})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_genies_formulas() {
        let mut k = QueryKpis {
            n_prompt: 100,
            n_restored: 0,
            n_generated: 11,
            time_to_first_token: Some(Duration::from_millis(500)),
            prefill_time: None,
            generation_time: Duration::from_secs(2),
            ..QueryKpis::default()
        };
        assert_eq!((k.prompt_rate(), k.generation_rate()), (Some(200.0), Some(5.0)));
        // D11: restored tokens are no speed.
        k.n_restored = 80;
        assert_eq!(k.prompt_rate(), Some(40.0));
        k.n_generated = 1;
        assert_eq!(k.generation_rate(), None);
    }

    #[test]
    fn the_profile_has_genies_shape() {
        let mut p = Profile::default();
        p.created(Duration::from_micros(1234));
        let k = QueryKpis {
            n_prompt: 6,
            n_restored: 0,
            n_generated: 3,
            time_to_first_token: Some(Duration::from_micros(1000)),
            prefill_time: None,
            generation_time: Duration::from_micros(4000),
            ..QueryKpis::default()
        };
        p.queried(Instant::now(), &k);
        let json = p.to_json();
        assert_eq!(json["header"]["artifact_type"], "GENIE_PROFILE");
        assert!(json["metadata"]["timestamp"].as_u64().unwrap() > 1_600_000_000_000_000);
        let component = &json["components"][0];
        assert_eq!((&component["name"], &component["type"]), (&json!("dialog0"), &json!("dialog")));
        let create = &component["events"][0];
        assert_eq!((&create["type"], &create["duration"]), (&json!("GenieDialog_create"), &json!(1234)));
        assert_eq!(create["init-time"], json!({"value": 1234, "unit": "us"}));
        let query = component["events"][1].as_object().unwrap();
        let keys: Vec<&str> = query.keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "type",
                "duration",
                "start",
                "stop",
                "num-prompt-tokens",
                "prompt-processing-rate",
                "time-to-first-token",
                "num-generated-tokens",
                "token-generation-rate",
                "token-generation-time"
            ]
        );
        assert_eq!(query["num-prompt-tokens"], json!({"value": 6, "unit": ""}));
        assert_eq!(query["prompt-processing-rate"], json!({"value": 6000.0, "unit": "toks/sec"}));
        assert_eq!(query["time-to-first-token"], json!({"value": 1000, "unit": "us"}));
        assert_eq!(query["token-generation-rate"], json!({"value": 500.0, "unit": "toks/sec"}));
    }
}
