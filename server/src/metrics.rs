//! Counters since the start, in the text form of Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use open_genie::serving::Counts;

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Tokens of prompts, those that were cached included.
    pub(crate) prompt_tokens: AtomicU64,
    pub(crate) cached_tokens: AtomicU64,
    pub(crate) generated_tokens: AtomicU64,
    pub(crate) finished: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Models that were loaded on demand, and that were unloaded.
    pub(crate) loaded: AtomicU64,
    pub(crate) unloaded: AtomicU64,
    /// Of models that are unloaded: counters do not go back.
    steps_before: AtomicU64,
    parked_before: AtomicU64,
    /// HTTP requests by the hundreds of their status.
    pub(crate) statuses: [AtomicU64; 6],
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

impl Metrics {
    /// Counts an answer.
    pub(crate) fn answered(&self, status: u16) {
        if let Some(counter) = self.statuses.get(usize::from(status / 100)) {
            add(counter, 1);
        }
    }

    /// Keeps the counters of a model that is unloaded.
    pub(crate) fn keep(&self, counts: &Counts) {
        add(&self.steps_before, counts.n_steps);
        add(&self.parked_before, counts.n_parked);
    }

    /// All of it as text, with the counts of the models that are loaded.
    pub(crate) fn text(&self, models: &[Counts]) -> String {
        let sum = |of: fn(&Counts) -> usize| models.iter().map(of).sum::<usize>();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = [
            ("prompt_tokens_total", "tokens of prompts", get(&self.prompt_tokens)),
            ("cached_tokens_total", "tokens of prompts that were not processed again", get(&self.cached_tokens)),
            ("tokens_predicted_total", "tokens of replies", get(&self.generated_tokens)),
            ("requests_finished_total", "requests with a whole reply", get(&self.finished)),
            ("requests_cancelled_total", "requests whose client went", get(&self.cancelled)),
            ("models_loaded_total", "models that were loaded on demand", get(&self.loaded)),
            ("models_unloaded_total", "models that were unloaded for others", get(&self.unloaded)),
            ("requests_failed_total", "requests that failed while they ran", get(&self.failed)),
            ("steps_total", "steps of the model", get(&self.steps_before) + sum(|counts| counts.n_steps) as u64),
            (
                "parked_total",
                "requests whose rows were given to others",
                get(&self.parked_before) + sum(|counts| counts.n_parked) as u64,
            ),
        ];
        let gauges = [
            ("models_loaded", "models that are loaded", models.len()),
            ("requests_processing", "requests that have rows", sum(|counts| counts.running)),
            ("requests_deferred", "requests that wait", sum(|counts| counts.waiting)),
            (
                "sequences_kept",
                "sequences of requests that are over, kept for prompts that begin alike",
                sum(|counts| counts.idle),
            ),
            ("cache_rows", "rows of the cache", sum(|counts| counts.rows.total)),
            ("cache_rows_free", "rows of the cache that are free", sum(|counts| counts.rows.free())),
        ];
        let mut text = String::new();
        let mut line = |name: &str, help: &str, kind: &str, value: u64| {
            // A string takes whatever is written.
            let _ = writeln!(text, "# HELP genie_{name} {help}\n# TYPE genie_{name} {kind}\ngenie_{name} {value}");
        };
        counters.iter().for_each(|(name, help, value)| line(name, help, "counter", *value));
        gauges.iter().for_each(|(name, help, value)| line(name, help, "gauge", *value as u64));
        text.push_str("# HELP genie_http_requests_total answers by status\n# TYPE genie_http_requests_total counter\n");
        for (hundreds, counter) in self.statuses.iter().enumerate().skip(1) {
            let _ = writeln!(text, "genie_http_requests_total{{status=\"{hundreds}xx\"}} {}", get(counter));
        }
        text
    }
}
