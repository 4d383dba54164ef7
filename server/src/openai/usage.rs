//! What a reply has cost: OpenAI's `usage`, llama.cpp's `timings`.

use std::time::{Duration, Instant};

use open_genie::serving::{Finished, RequestTimes};
use serde_json::{Value, json};

use crate::jobs::Times;

/// Tokens of a request and its replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) n_prompt: usize,
    pub(crate) n_cached: usize,
    pub(crate) n_generated: usize,
}

impl Usage {
    /// Adds one choice: the prompt counts once.
    pub(crate) fn add(&mut self, finished: &Finished) {
        self.n_cached = self.n_cached.max(finished.n_shared);
        self.n_generated += finished.reply.kpis.n_drawn;
    }

    /// In OpenAI's form.
    pub(crate) fn to_json(self) -> Value {
        json!({
            "prompt_tokens": self.n_prompt,
            "completion_tokens": self.n_generated,
            "total_tokens": self.n_prompt + self.n_generated,
            "prompt_tokens_details": {"cached_tokens": self.n_cached},
            "completion_tokens_details": {"reasoning_tokens": 0},
        })
    }
}

/// Times of one choice in llama.cpp's form: milliseconds and tokens per second.
pub(crate) fn timings(n_prompt: usize, n_generated: usize, times: &Times) -> Value {
    let RequestTimes { waited, prefill: prompt, decode: predicted } = times.spent.unwrap_or_else(|| so_far(times));
    let n_processed = n_prompt.saturating_sub(times.n_cached);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let each = |time: Duration, n: usize| if n == 0 { 0.0 } else { ms(time) / n as f64 };
    let rate = |n: usize, time: Duration| if time.is_zero() { 0.0 } else { n as f64 / time.as_secs_f64() };
    let n_steps = n_generated.saturating_sub(1);
    json!({
        "cache_n": times.n_cached,
        "queue_ms": ms(waited),
        "prompt_n": n_processed,
        "prompt_ms": ms(prompt),
        "prompt_per_token_ms": each(prompt, n_processed),
        "prompt_per_second": rate(n_processed, prompt),
        "predicted_n": n_generated,
        "predicted_ms": ms(predicted),
        "predicted_per_token_ms": each(predicted, n_steps),
        "predicted_per_second": rate(n_steps, predicted),
    })
}

/// Of a request that runs: by when its events arrived.
fn so_far(times: &Times) -> RequestTimes {
    let since = |from: Instant, to: Option<Instant>| to.map_or(Duration::ZERO, |to| to.duration_since(from));
    RequestTimes {
        waited: since(times.submitted, times.started),
        prefill: since(times.started.unwrap_or(times.submitted), times.first_token),
        decode: times.first_token.map_or(Duration::ZERO, |first| since(first, times.last_token)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_over_has_the_times_of_the_model_s_thread() {
        let [waited, prefill, decode] = [2, 10, 30].map(Duration::from_millis);
        let spent = Some(RequestTimes { waited, prefill, decode });
        let found = timings(12, 4, &Times { spent, n_cached: 2, ..Times::new() });
        let number = |key: &str| found[key].as_f64().unwrap();
        assert_eq!(["queue_ms", "prompt_ms", "predicted_ms"].map(number), [2.0, 10.0, 30.0]);
        assert_eq!(["prompt_per_token_ms", "predicted_per_token_ms"].map(number), [1.0, 10.0]);
    }
}
