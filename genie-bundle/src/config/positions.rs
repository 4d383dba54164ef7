//! The `positional-encoding` block, one or a list, and the older keys of `QnnHtp` that it replaced.
//!
//! *Traps*: `rope-scaling` without `rope-type` is read by nothing, as in Genie. The prefix `default_` is that of the tables
//! without one.

use genie_types::{Llama3Scaling, LongRopeScaling, PositionKind, RopeConfig, RopeProblem, RopeScaling, YarnScaling};
use serde::Deserialize;

use super::problem::Problem;
use super::raw::{OneOrMany, RawHtp};
use super::settings::PositionSettings;

const AT: &str = "/dialog/engine/model/positional-encoding";
const HTP: &str = "/dialog/engine/backend/QnnHtp";
const DEFAULT_THETA: f64 = 10_000.0;
/// What libGenie calls the tables without a prefix.
const DEFAULT_PREFIX: &str = "default_";

/// YaRN's usual bounds, in turns within the trained context.
const BETA_FAST: f64 = 32.0;
const BETA_SLOW: f64 = 1.0;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RawPositions {
    #[serde(rename = "type")]
    kind: Option<String>,
    prefix: Option<String>,
    rope_dim: Option<i64>,
    rope_theta: Option<f64>,
    rope_scaling: Option<RawScaling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawScaling {
    rope_type: Option<String>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
    short_factor: Option<Vec<f64>>,
    long_factor: Option<Vec<f64>>,
    mrope_section: Option<Vec<f64>>,
    dim: Option<f64>,
    extrapolation_factor: Option<f64>,
    attn_factor: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    partial_rotary_factor: Option<f64>,
}

/// The list of encodings, that without a prefix first.
pub(super) fn values(
    raw: Option<OneOrMany<RawPositions>>,
    htp: &RawHtp,
    problems: &mut Vec<Problem>,
) -> Vec<PositionSettings> {
    let mut found: Vec<PositionSettings> = match raw {
        None => {
            let rope = rope((htp.pos_id_dim, htp.rope_theta), None, problems, |problem| {
                let key = if problem.key == "rope-dim" { "pos-id-dim" } else { problem.key };
                format!("{HTP}/{key}")
            });
            rope.map(|rope| PositionSettings { prefix: String::new(), kind: PositionKind::Rope, rope: Some(rope) })
                .into_iter()
                .collect()
        }
        Some(OneOrMany::One(item)) => vec![one(item, AT, problems)],
        Some(OneOrMany::Many(items)) => {
            items.into_iter().enumerate().map(|(i, item)| one(item, &format!("{AT}/{i}"), problems)).collect()
        }
    };
    for i in 1..found.len() {
        let prefix = &found[i].prefix;
        if found[..i].iter().any(|earlier| earlier.prefix == *prefix) {
            let shown = if prefix.is_empty() { DEFAULT_PREFIX } else { prefix };
            let message = format!("prefix `{shown}` is already taken by an earlier positional encoding");
            problems.push(Problem::new(format!("{AT}/{i}/prefix"), message));
        }
    }
    found.sort_by_key(|item| !item.prefix.is_empty());
    found
}

fn one(raw: RawPositions, at: &str, problems: &mut Vec<Problem>) -> PositionSettings {
    // The schema knows the names; rotation is what an item without a type has always meant here.
    let kind = raw.kind.as_deref().and_then(PositionKind::by_name).unwrap_or(PositionKind::Rope);
    let prefix = raw.prefix.filter(|prefix| prefix != DEFAULT_PREFIX).unwrap_or_default();
    let rope = match kind {
        PositionKind::Rope => {
            let at = |problem: &RopeProblem| {
                let block = if problem.of_scaling { "/rope-scaling" } else { "" };
                format!("{at}{block}/{}", problem.key)
            };
            rope((raw.rope_dim, raw.rope_theta), raw.rope_scaling, problems, at)
        }
        _ => None,
    };
    PositionSettings { prefix, kind, rope }
}

/// A rotary embedding with its numbers checked; `None` where its width is not stated or something is wrong.
fn rope(
    (dim, theta): (Option<i64>, Option<f64>),
    scaling: Option<RawScaling>,
    problems: &mut Vec<Problem>,
    at: impl Fn(&RopeProblem) -> String,
) -> Option<RopeConfig> {
    let mut list = Vec::new();
    let theta = theta.unwrap_or(DEFAULT_THETA);
    // Without a width, only theta can be judged.
    let rope_dim = dim.map_or(1, |dim| usize::try_from(dim).unwrap_or(0));
    let scaling = scaling.filter(|_| dim.is_some()).and_then(|raw| raw.scaling(rope_dim, &mut list));
    let rope = RopeConfig { rope_dim, theta, scaling };
    list.extend(rope.problems());
    // What is wrong with the width says it best in the config's own number.
    list.iter_mut().filter(|p| p.key == "rope-dim").for_each(|p| p.found = dim.unwrap_or_default().to_string());
    problems.extend(list.iter().map(|p| {
        let message =
            if p.found.is_empty() { p.expected.clone() } else { format!("expected {}, found {}", p.expected, p.found) };
        Problem::new(at(p), message)
    }));
    (dim.is_some() && list.is_empty()).then_some(rope)
}

impl RawScaling {
    /// The scaling by its type; missing keys go into the list.
    fn scaling(self, rope_dim: usize, problems: &mut Vec<RopeProblem>) -> Option<RopeScaling> {
        let kind = self.rope_type.as_deref()?;
        let mut missing = |key: &'static str| {
            let expected = format!("required when the rope type is `{kind}`");
            problems.push(RopeProblem { key, of_scaling: true, expected, found: String::new() });
        };
        let mut need = |key: &'static str, value: Option<f64>| {
            if value.is_none() {
                missing(key);
            }
            value
        };
        let original = "original-max-position-embeddings";
        Some(match kind {
            "linear" => RopeScaling::Linear { factor: need("factor", self.factor)? },
            "llama3" => {
                // A missing number is a problem already; what stands in for it adds no other.
                Llama3Scaling {
                    factor: need("factor", self.factor).unwrap_or(1.0),
                    low_freq_factor: need("low-freq-factor", self.low_freq_factor).unwrap_or(f64::MIN_POSITIVE),
                    high_freq_factor: need("high-freq-factor", self.high_freq_factor).unwrap_or(f64::MAX),
                    original_max_position: need(original, self.original_max_position_embeddings).unwrap_or(1.0),
                }
                .into()
            }
            "longrope" => {
                let (factor, length) =
                    (need("factor", self.factor), need(original, self.original_max_position_embeddings));
                for (key, list) in [("short-factor", &self.short_factor), ("long-factor", &self.long_factor)] {
                    if list.is_none() {
                        missing(key);
                    }
                }
                LongRopeScaling {
                    factor: factor?,
                    original_max_position: length?,
                    short_factor: self.short_factor?,
                    long_factor: self.long_factor?,
                }
                .into()
            }
            "yarnrope" => {
                let (factor, length) =
                    (need("factor", self.factor), need(original, self.original_max_position_embeddings));
                YarnScaling {
                    factor: factor?,
                    original_max_position: length?,
                    dim: self.dim.map_or(Some(2 * rope_dim), whole).unwrap_or(0),
                    extrapolation_factor: self.extrapolation_factor.unwrap_or(1.0),
                    attn_factor: self.attn_factor.unwrap_or(1.0),
                    beta_fast: self.beta_fast.unwrap_or(BETA_FAST),
                    beta_slow: self.beta_slow.unwrap_or(BETA_SLOW),
                }
                .into()
            }
            "proportional" => {
                let (factor, part) = (self.factor.unwrap_or(1.0), self.partial_rotary_factor.unwrap_or(1.0));
                RopeScaling::Proportional { factor, partial_rotary_factor: part }
            }
            "hunyuan" => RopeScaling::Hunyuan,
            "qwen2vl-mrope" | "qwen3vl-mrope" => {
                let sections = self.mrope_section.unwrap_or_default();
                let sections = sections.into_iter().map(|n| whole(n).unwrap_or(usize::MAX)).collect();
                RopeScaling::Mrope { interleaved: kind == "qwen3vl-mrope", sections }
            }
            // `default`; the schema knows no other.
            _ => return None,
        })
    }
}

/// A whole number of at least 0.
fn whole(x: f64) -> Option<usize> {
    (x >= 0.0 && x.fract() == 0.0 && x <= f64::from(u32::MAX)).then_some(x as usize)
}
