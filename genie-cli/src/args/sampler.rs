//! `--temp`, `--top-k` and others: how tokens are drawn.

use anyhow::Result;
use open_genie::SamplerSettings;

use super::number;

/// Sampler settings that override the config's.
#[derive(clap::Args, Default, Clone)]
pub struct SamplerArgs {
    /// Temperature; 0 always takes the most likely token [default: the config's].
    #[arg(long, value_parser = number::real)]
    pub temp: Option<f32>,
    /// Keep the K most likely tokens; 0 keeps all [default: the config's].
    #[arg(long, value_name = "K", value_parser = number::count_u32)]
    pub top_k: Option<u32>,
    /// Keep the most likely tokens up to this total probability; 1 keeps all [default: the config's].
    #[arg(long, value_name = "P", value_parser = number::real)]
    pub top_p: Option<f32>,
    /// Seed of the random numbers; -1 for a new one in each run [default: the config's].
    #[arg(long, allow_negative_numbers = true, value_parser = number::seed)]
    pub seed: Option<i32>,
    /// Always take the most likely token.
    #[arg(long)]
    pub greedy: bool,
    /// Divide the logits of recent tokens by this; 1 is off [default: the config's].
    #[arg(long, value_name = "R", value_parser = number::real)]
    pub repetition_penalty: Option<f32>,
    /// Number of recent tokens that are penalised [default: the config's, else 64].
    #[arg(long, value_name = "N", value_parser = number::count_u32)]
    pub penalize_last_n: Option<u32>,
}

impl SamplerArgs {
    /// The flag of a name without its dashes, such as `temp`, with its value.
    pub fn of_pair(name: &str, value: &str) -> Result<Self> {
        #[derive(clap::Parser)]
        struct Alone {
            #[command(flatten)]
            sampler: SamplerArgs,
        }
        let parsed = <Alone as clap::Parser>::try_parse_from(["/set", &format!("--{name}={value}")]);
        parsed.map(|alone| alone.sampler).map_err(|e| {
            let text = e.to_string();
            let first = text.lines().next().unwrap_or_default();
            anyhow::Error::msg(first.strip_prefix("error: ").unwrap_or(first).replace("--", ""))
        })
    }

    /// The config's sampler settings with the flags' overrides.
    pub fn apply(&self, mut settings: SamplerSettings) -> Result<SamplerSettings> {
        if let Some(temp) = self.temp {
            settings = settings.with_temp(temp)?;
        }
        if let Some(k) = self.top_k {
            settings = settings.with_top_k(k as usize);
        }
        if let Some(p) = self.top_p {
            settings = settings.with_top_p(p)?;
        }
        if let Some(seed) = self.seed {
            settings = settings.with_seed((seed != -1).then_some(seed.cast_unsigned()));
        }
        if self.greedy {
            // Under policy `genie` the config's `greedy` has no effect; the flag has.
            settings = settings.with_greedy(true).with_temp(0.0)?;
        }
        if self.repetition_penalty.is_some() || self.penalize_last_n.is_some() {
            let mut penalty = settings.penalty().clone();
            penalty.repetition = self.repetition_penalty.unwrap_or(penalty.repetition);
            penalty.last_n =
                self.penalize_last_n.map_or(if penalty.last_n == 0 { 64 } else { penalty.last_n }, |n| n as usize);
            settings = settings.with_penalty(penalty)?;
        }
        Ok(settings)
    }
}
