//! The scaling of rotary positions, by its type in `config.json`.
//!
//! *Trap*: what transformers multiplies cosines and sines by has no key of its own in Genie's config for `longrope`; a value
//! that differs from the usual one is expressed by the factor, on which nothing else depends there.
//! *Source*: rotary utilities of transformers: which key wins, and what an absent one means.

use crate::Result;
use crate::json::{Object, shown, shown_key};
use genie_types::{Llama3Scaling, LongRopeScaling, RopeConfig, RopeScaling, YarnScaling};

/// What a number has to be, for messages.
pub(super) const AT_LEAST_1: &str = "a number of at least 1";
pub(super) const ABOVE_0: &str = "a number above 0";

/// The types that are read, for messages.
pub(super) const ROPE_TYPES: &str = "default, linear, llama3, yarn or longrope";

const ORIGINAL: &str = "original_max_position_embeddings";
const MAX_POSITIONS: &str = "max_position_embeddings";
/// YaRN's bounds where the checkpoint has none, in turns within the trained context.
const BETA_FAST: f64 = 32.0;
const BETA_SLOW: f64 = 1.0;
/// What two ways to say one number may differ by.
const ROUNDING: f64 = 1e-6;

/// Reads the block's keys for a type. Lengths of lists, and YaRN's width, are settled by [`fit`].
pub(super) fn read(kind: &str, config: &Object<'_>, block: &Object<'_>) -> Result<Option<RopeScaling>> {
    Ok(Some(match kind {
        "default" => return Ok(None),
        "llama3" => llama3(block)?.into(),
        "linear" => RopeScaling::Linear { factor: above_0(block, "factor")? },
        "yarn" => yarn(config, block)?.into(),
        // `su` is what the first Phi-3 checkpoints called it.
        "longrope" | "su" => longrope(config, block)?.into(),
        other => return Err(block.unsupported("rope_type", shown_key(other), ROPE_TYPES)),
    }))
}

/// Gives YaRN its width and checks the numbers that depend on the width of a head.
pub(super) fn fit(
    config: &Object<'_>,
    key: &str,
    theta: f64,
    scaling: &mut Option<RopeScaling>,
    rope_dim: usize,
) -> Result<()> {
    if let Some(RopeScaling::Yarn(yarn)) = scaling {
        yarn.dim = 2 * rope_dim;
    }
    let rope = RopeConfig { rope_dim, theta, scaling: scaling.clone() };
    match rope.problems().into_iter().next() {
        None => Ok(()),
        Some(problem) => {
            let inner = match problem.key {
                "attn-factor" => "attention_factor".to_owned(),
                key => key.replace('-', "_"),
            };
            let key = if problem.of_scaling { format!("{key}.{inner}") } else { inner };
            Err(config.bad(
                &key,
                problem.found,
                &problem.expected.replace("`rope-dim`", "half of a head's rotated part"),
            ))
        }
    }
}

fn above_0(block: &Object<'_>, key: &str) -> Result<f64> {
    block.needed_number(key, f64::MIN_POSITIVE..=f64::MAX, ABOVE_0)
}

fn llama3(block: &Object<'_>) -> Result<Llama3Scaling> {
    let scaling = Llama3Scaling {
        factor: above_0(block, "factor")?,
        low_freq_factor: above_0(block, "low_freq_factor")?,
        high_freq_factor: above_0(block, "high_freq_factor")?,
        original_max_position: block.needed_number(ORIGINAL, 1.0..=f64::MAX, AT_LEAST_1)?,
    };
    if scaling.high_freq_factor <= scaling.low_freq_factor {
        let expected = format!("more than `low_freq_factor`, {}", scaling.low_freq_factor);
        return Err(block.bad("high_freq_factor", scaling.high_freq_factor, &expected));
    }
    Ok(scaling)
}

fn yarn(config: &Object<'_>, block: &Object<'_>) -> Result<YarnScaling> {
    let original = length_of_training(config, block)?;
    let factor = match block.number("factor", f64::MIN_POSITIVE..=f64::MAX, ABOVE_0)? {
        Some(factor) => factor,
        None => longest(config)?.ok_or_else(|| block.missing("factor", ABOVE_0))? / original,
    };
    if block.flag("truncate")? == Some(false) {
        // The bounds between kept and stretched angles are whole numbers in libGenie.
        return Err(block.unsupported("truncate", false, "true"));
    }
    let positive = |key| block.number(key, f64::MIN_POSITIVE..=f64::MAX, ABOVE_0);
    let (mscale, of_all) = (positive("mscale")?, positive("mscale_all_dim")?);
    let usual = YarnScaling::amplitude_of(factor);
    let amplitude_of = |mscale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 };
    let amplitude = match (positive("attention_factor")?, mscale, of_all) {
        (Some(stated), _, _) => stated,
        (None, Some(mscale), Some(of_all)) => amplitude_of(mscale) / amplitude_of(of_all),
        (None, _, _) => usual,
    };
    Ok(YarnScaling {
        factor,
        original_max_position: original,
        dim: 0,
        extrapolation_factor: 1.0,
        attn_factor: amplitude / usual,
        beta_fast: positive("beta_fast")?.unwrap_or(BETA_FAST),
        beta_slow: positive("beta_slow")?.unwrap_or(BETA_SLOW),
    })
}

fn longrope(config: &Object<'_>, block: &Object<'_>) -> Result<LongRopeScaling> {
    let original = length_of_training(config, block)?;
    let ratio = longest(config)?.map(|longest| longest / original);
    let stated = block.number("factor", f64::MIN_POSITIVE..=f64::MAX, ABOVE_0)?;
    if let (Some(stated), Some(ratio)) = (stated, ratio)
        && (stated / ratio - 1.0).abs() > ROUNDING
    {
        let expected = format!("{ratio}, `{MAX_POSITIONS}` over `{ORIGINAL}`");
        return Err(block.bad("factor", stated, &expected));
    }
    let mut scaling = LongRopeScaling {
        factor: stated.or(ratio).unwrap_or(1.0),
        original_max_position: original,
        short_factor: divisors(block, "short_factor")?,
        long_factor: divisors(block, "long_factor")?,
    };
    const AMPLITUDE: &str = "attention_factor";
    match block.number(AMPLITUDE, f64::MIN_POSITIVE..=f64::MAX, ABOVE_0)? {
        Some(amplitude) if amplitude < 1.0 => {
            return Err(block.unsupported(AMPLITUDE, amplitude, "a number of at least 1"));
        }
        Some(amplitude) if (amplitude - scaling.amplitude()).abs() > ROUNDING => {
            scaling.factor = ((amplitude * amplitude - 1.0) * original.ln()).exp();
        }
        _ => {}
    }
    Ok(scaling)
}

/// Context length of the training: in the block, beside it, or all of the model's.
fn length_of_training(config: &Object<'_>, block: &Object<'_>) -> Result<f64> {
    let length = |object: &Object<'_>| object.number(ORIGINAL, 1.0..=f64::MAX, AT_LEAST_1);
    let (own, outer) = (length(block)?, length(config)?);
    if let (Some(own), Some(outer)) = (own, outer)
        && own != outer
    {
        return Err(block.bad(ORIGINAL, own, &format!("{outer}, as `{ORIGINAL}` outside of it")));
    }
    match own.or(outer) {
        Some(length) => Ok(length),
        None => longest(config)?.ok_or_else(|| block.missing(ORIGINAL, AT_LEAST_1)),
    }
}

fn longest(config: &Object<'_>) -> Result<Option<f64>> {
    config.number(MAX_POSITIONS, 1.0..=f64::MAX, AT_LEAST_1)
}

fn divisors(block: &Object<'_>, key: &str) -> Result<Vec<f64>> {
    const EXPECTED: &str = "a list of numbers above 0";
    let Some(value) = block.value(key) else { return Err(block.missing(key, EXPECTED)) };
    let numbers = value.as_array().and_then(|list| list.iter().map(|x| x.as_f64().filter(|x| *x > 0.0)).collect());
    numbers.ok_or_else(|| block.bad(key, shown(value), EXPECTED))
}
