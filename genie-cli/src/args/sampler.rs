//! `--temp`, `--top-k` and others: how tokens are drawn. Names are llama.cpp's; those of older versions and of genie-t2t-run work
//! as well.

use anyhow::Result;
use open_genie::sampler::{Chain, Mirostat, MirostatVersion, Stage};
use open_genie::{Bundle, SamplerSettings, TokenId};

use super::number::{self, Limit};
use crate::failure::UserError;

/// Sampler settings that override the config's.
#[derive(clap::Args, Default, Clone)]
#[command(next_help_heading = "Sampling")]
pub struct SamplerArgs {
    /// Temperature; 0 always takes the most likely token [default: the config's, else 0.1].
    #[arg(long, visible_alias = "temperature", value_parser = number::real)]
    pub temp: Option<f32>,
    /// Keep the K most likely tokens; 0 keeps all [default: the config's, else 0].
    #[arg(long, value_name = "K", value_parser = number::count_u32)]
    pub top_k: Option<u32>,
    /// Keep the most likely tokens up to this total probability; 1 keeps all [default: the config's, else 0.8].
    #[arg(long, value_name = "P", value_parser = number::real)]
    pub top_p: Option<f32>,
    /// Keep tokens that are at least P times as likely as the most likely one; 0 is off [default: 0].
    #[arg(long, value_name = "P", value_parser = number::real)]
    pub min_p: Option<f32>,
    /// Typical sampling: keep this total probability of the least surprising tokens; 1 is off [default: 1].
    #[arg(long, visible_alias = "typical-p", value_name = "P", value_parser = number::real)]
    pub typical: Option<f32>,
    /// Keep logits that are at most N standard deviations below the largest; 0 is off [default: 0].
    #[arg(long, visible_alias = "top-n-sigma", value_name = "N", value_parser = number::real)]
    pub top_nsigma: Option<f32>,
    /// Seed of the random numbers; -1 for a new one in each run [default: the config's, else -1].
    #[arg(long, allow_negative_numbers = true, value_parser = number::seed)]
    pub seed: Option<i32>,
    /// Always take the most likely token.
    #[arg(long)]
    pub greedy: bool,
    /// Divide the logits of recent tokens by this; 1 is off [default: the config's, else 1].
    #[arg(long, visible_alias = "repeat-penalty", value_name = "R", value_parser = number::real)]
    pub repetition_penalty: Option<f32>,
    /// Subtract this from the logits of recent tokens [default: the config's, else 0].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::real)]
    pub presence_penalty: Option<f32>,
    /// Subtract this for each time that a recent token came [default: the config's, else 0].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::real)]
    pub frequency_penalty: Option<f32>,
    /// Number of recent tokens that are penalised [default: the config's, else 64].
    #[arg(long, visible_alias = "repeat-last-n", value_name = "N", value_parser = number::count_u32)]
    pub penalize_last_n: Option<u32>,
    /// DRY: the penalty of a token that goes on with a repetition; 0 is off [default: 0].
    #[arg(long, value_name = "N", value_parser = number::real)]
    pub dry_multiplier: Option<f32>,
    /// DRY: by how much the penalty grows with each token of the repetition [default: 1.75].
    #[arg(long, value_name = "N", value_parser = number::real)]
    pub dry_base: Option<f32>,
    /// DRY: repetitions shorter than this are free, in tokens [default: 2].
    #[arg(long, value_name = "N", value_parser = number::count_u32)]
    pub dry_allowed_length: Option<u32>,
    /// DRY: number of recent tokens that are looked at; -1 is all [default: -1].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::limit)]
    pub dry_penalty_last_n: Option<Limit>,
    /// DRY: a text that ends repetitions; repeat the flag for several, `none` for none [default: line end, `:`, `"`, `*`].
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub dry_sequence_breaker: Vec<String>,
    /// XTC: how often likely tokens are removed; 0 is off [default: 0].
    #[arg(long, value_name = "P", value_parser = number::real)]
    pub xtc_probability: Option<f32>,
    /// XTC: tokens at least this likely are removed, except the least likely of them [default: 0.1].
    #[arg(long, value_name = "P", value_parser = number::real)]
    pub xtc_threshold: Option<f32>,
    /// Let the temperature follow the entropy, from `temp - N` to `temp + N`; 0 is off [default: 0].
    #[arg(long, value_name = "N", value_parser = number::real)]
    pub dynatemp_range: Option<f32>,
    /// Exponent of the entropy's share for `--dynatemp-range` [default: 1].
    #[arg(long, value_name = "N", value_parser = number::real)]
    pub dynatemp_exp: Option<f32>,
    /// Mirostat 1 or 2 in place of the filters (top-k, top-p and the like); 0 is off [default: 0].
    #[arg(long, value_name = "0|1|2", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub mirostat: Option<u8>,
    /// Mirostat: how fast it follows [default: 0.1].
    #[arg(long, value_name = "N", value_parser = number::real)]
    pub mirostat_lr: Option<f32>,
    /// Mirostat: the surprise that is aimed at, in bits [default: 5].
    #[arg(long, value_name = "N", value_parser = number::real)]
    pub mirostat_ent: Option<f32>,
    /// Add to the logit of a token: `15043+1`, `15043-1`, `15043-inf` to forbid it. Repeat the flag for several.
    #[arg(long, value_name = "ID(+|-)BIAS", value_parser = bias)]
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Which samplers act, in which order, separated by `;`
    /// [default: penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature].
    #[arg(long, value_name = "NAMES", value_parser = order)]
    pub samplers: Option<Order>,
}

/// Stages in their order.
#[derive(Clone)]
pub struct Order(Vec<Stage>);

fn order(text: &str) -> Result<Order, open_genie::sampler::OrderError> {
    Stage::parse_order(text).map(Order)
}

/// A token's id, a sign and a number.
fn bias(text: &str) -> Result<(TokenId, f32), String> {
    let wrong = || "expected a token id, `+` or `-`, and a number, such as `15043-1.5`".to_owned();
    let at = text.find(['+', '-']).ok_or_else(wrong)?;
    let id: u32 = text[..at].trim().parse().map_err(|_| wrong())?;
    let number: f32 = text[at..].trim().parse().map_err(|_| wrong())?;
    Ok((TokenId(id), number))
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

    /// Fails where a token's id of the flags is none of the model's.
    pub fn check_vocabulary(&self, bundle: &Bundle) -> Result<()> {
        let n_vocab = bundle.config().context().n_vocab;
        match self.logit_bias.iter().find(|(id, _)| id.0 as usize >= n_vocab) {
            None => Ok(()),
            Some((id, _)) => {
                let what = format!("`--logit-bias`: token {}: expected a number below {n_vocab}", id.0);
                Err(UserError::error(what, "`genie tokenize MODEL TEXT` shows the ids of a text's tokens"))
            }
        }
    }

    /// The config's sampler settings with the flags' overrides.
    pub fn apply(&self, mut settings: SamplerSettings) -> Result<SamplerSettings> {
        if let Some(temp) = self.temp {
            settings = settings.with_temp(temp)?;
            if temp > 0.0 {
                // A temperature would have no effect where the config says `greedy`.
                settings = settings.with_greedy(false);
            }
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
        let penalties = [self.repetition_penalty, self.presence_penalty, self.frequency_penalty];
        if penalties.iter().any(Option::is_some) || self.penalize_last_n.is_some() {
            let mut penalty = settings.penalty().clone();
            penalty.repetition = self.repetition_penalty.unwrap_or(penalty.repetition);
            penalty.presence = self.presence_penalty.unwrap_or(penalty.presence);
            penalty.frequency = self.frequency_penalty.unwrap_or(penalty.frequency);
            penalty.last_n =
                self.penalize_last_n.map_or(if penalty.last_n == 0 { 64 } else { penalty.last_n }, |n| n as usize);
            settings = settings.with_penalty(penalty)?;
        }
        let chain = self.chain(settings.chain().clone());
        Ok(settings.with_chain(chain)?)
    }

    /// The stages beyond Genie's.
    fn chain(&self, mut chain: Chain) -> Chain {
        fn set<T: Copy>(to: &mut T, given: Option<T>) {
            *to = given.unwrap_or(*to);
        }
        set(&mut chain.min_p, self.min_p);
        set(&mut chain.typical_p, self.typical);
        set(&mut chain.top_n_sigma, self.top_nsigma);
        set(&mut chain.dry.multiplier, self.dry_multiplier);
        set(&mut chain.dry.base, self.dry_base);
        set(&mut chain.dry.allowed_length, self.dry_allowed_length.map(|n| n as usize));
        set(&mut chain.dry.last_n, self.dry_penalty_last_n.map(|limit| limit.0));
        if !self.dry_sequence_breaker.is_empty() {
            chain.dry.breakers = self.dry_sequence_breaker.iter().filter(|text| *text != "none").cloned().collect();
        }
        set(&mut chain.xtc.probability, self.xtc_probability);
        set(&mut chain.xtc.threshold, self.xtc_threshold);
        set(&mut chain.dynamic_temp.range, self.dynatemp_range);
        set(&mut chain.dynamic_temp.exponent, self.dynatemp_exp);
        match self.mirostat {
            Some(1) => chain.mirostat = Some(Mirostat::new(MirostatVersion::One)),
            Some(2) => chain.mirostat = Some(Mirostat::new(MirostatVersion::Two)),
            Some(_) => chain.mirostat = None,
            None => {}
        }
        if let Some(mirostat) = &mut chain.mirostat {
            set(&mut mirostat.eta, self.mirostat_lr);
            set(&mut mirostat.tau, self.mirostat_ent);
        }
        chain.logit_bias.extend(&self.logit_bias);
        if let Some(Order(order)) = &self.samplers {
            chain.order.clone_from(order);
        }
        chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bias_has_a_sign() {
        assert_eq!(bias("15043+1.5"), Ok((TokenId(15043), 1.5)));
        assert_eq!(bias("7-inf"), Ok((TokenId(7), f32::NEG_INFINITY)));
        for wrong in ["7", "x+1", "7+", "", "7=2"] {
            assert!(bias(wrong).unwrap_err().starts_with("expected a token id"), "{wrong}");
        }
    }

    #[test]
    fn flags_override_one_number_each() {
        let flags = SamplerArgs::of_pair("min-p", "0.2").unwrap();
        let settings = flags.apply(SamplerSettings::default()).unwrap();
        assert_eq!(settings, SamplerSettings::default().with_chain(Chain { min_p: 0.2, ..Chain::default() }).unwrap());
        let flags = SamplerArgs::of_pair("presence-penalty", "-1").unwrap();
        let penalty = flags.apply(settings).unwrap().penalty().clone();
        assert_eq!((penalty.presence, penalty.last_n), (-1.0, 64));
        let none = SamplerArgs::default().apply(SamplerSettings::default()).unwrap();
        assert_eq!(none, SamplerSettings::default(), "no flag changes nothing");
    }

    #[test]
    fn a_temperature_counts_before_the_configs_greedy() {
        let greedy = SamplerSettings::default().with_greedy(true);
        for (flags, expected) in [
            (SamplerArgs { temp: Some(1.5), ..SamplerArgs::default() }, false),
            (SamplerArgs { temp: Some(0.0), ..SamplerArgs::default() }, true),
            (SamplerArgs { top_k: Some(5), ..SamplerArgs::default() }, true),
            (SamplerArgs { temp: Some(1.5), greedy: true, ..SamplerArgs::default() }, true),
        ] {
            assert_eq!(flags.apply(greedy.clone()).unwrap().greedy(), expected);
        }
    }
}
