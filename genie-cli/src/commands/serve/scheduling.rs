//! The flags of `genie serve` that say how requests share the model.

use std::time::Duration;

use open_genie::Bundle;
use open_genie::serving::{Parking, Policy, ServeOptions};

use crate::args::{number, step_policy};

#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Scheduling")]
pub struct SchedulingArgs {
    /// Requests that run at once [default: `max-slots` of the config's `batching`, or 8].
    #[arg(long, visible_alias = "parallel", value_name = "N", value_parser = number::slots)]
    slots: Option<usize>,
    /// Requests that may wait; more are refused with status 429.
    #[arg(long, value_name = "N", default_value_t = 256)]
    queue: usize,
    /// Most milliseconds between two tokens of a reply: steps are no wider, and no more requests start, than keep it [default: none, the best
    /// throughput]. Without a calibration of this machine (`genie bench --calibrate`) steps are timed at the start.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    target_ms: Option<u64>,
    /// How steps are filled: one, prefill-first, alternating, fused, batched, alternating-batched, prefill-first-batched
    /// [default: batched, or alternating-batched if the config's `mixed-prefill-decode` is false].
    #[arg(long, value_name = "POLICY", value_parser = step_policy)]
    step_policy: Option<Policy>,
    /// Most rows of prompts in one step [default: `prefill-chunk-size` of the config, or as many as fit].
    #[arg(long, value_name = "TOKENS", value_parser = number::at_least_one)]
    chunk: Option<usize>,
    /// Rows of the cache set aside for a reply when its request starts.
    #[arg(long, value_name = "TOKENS", default_value_t = ServeOptions::default().reserve)]
    reserve: usize,
    /// What becomes of a request whose rows others need: its rows are kept in memory outside of the cache, or computed again later.
    #[arg(long, value_name = "HOW", default_value = "snapshot", value_parser = ["snapshot", "recompute"])]
    parking: String,
    /// Milliseconds of waiting that are worth one step of a request's `priority`; 0 for never.
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(..=86_400_000))]
    ageing_ms: u64,
    /// Where the cache holds one sequence at a time: tokens of a reply until another request has its turn; 0 for each to its end.
    #[arg(long, value_name = "TOKENS", default_value_t = 64)]
    turn: usize,
}

impl SchedulingArgs {
    /// The options for a model of a bundle: what a flag does not say is the config's.
    pub fn options(&self, bundle: &Bundle) -> ServeOptions {
        let of_config = bundle.serve_options();
        ServeOptions {
            max_slots: self.slots.unwrap_or(of_config.max_slots),
            max_waiting: self.queue,
            policy: self.step_policy.unwrap_or(of_config.policy),
            target: self.target_ms.map(Duration::from_millis),
            prefill_chunk: self.chunk.or(of_config.prefill_chunk),
            reserve: self.reserve,
            parking: if self.parking == "recompute" { Parking::Recompute } else { Parking::Snapshot },
            ageing: Duration::from_millis(self.ageing_ms),
            turn: (self.turn > 0).then_some(self.turn),
            ..of_config
        }
    }
}
