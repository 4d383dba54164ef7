//! The `longcontext` block of an engine or of a cache group: what the cache drops once it is full.
//!
//! The block of the engine is that of the default group. *Traps*: Genie's schema takes any 32-bit integers here.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::problem::Problem;
use super::settings::CacheGroupSettings;
use super::values::resolve;

/// Prefix of the group that the engine's own block is for.
const DEFAULT_GROUP: &str = "past_";

/// What a cache group drops once its past is full.
#[derive(Clone, Debug, PartialEq)]
pub struct LongContextSettings {
    /// Tokens at the beginning that are never dropped.
    pub reserved_tokens: usize,
    /// Which of the others are.
    pub kind: LongContextKind,
}

/// The types of `longcontext`.
#[derive(Clone, Debug, PartialEq)]
pub enum LongContextKind {
    /// `sliding-window`: each token sees the last ones.
    SlidingWindow {
        /// Tokens that are seen, the token itself included; at least 1.
        window_size: usize,
    },
    /// `keydiff`: rows whose keys resemble the others go first.
    KeyDiff {
        /// Steps between two scorings; at least 1.
        update_frequency: usize,
        /// Share of the newest mean in the running anchor; above 0 and below 1.
        anchor_alpha: Option<f32>,
        /// Binary of the network that scores keys; `None` for this program's own scores.
        scoring_network: Option<PathBuf>,
    },
}

/// Mirrors `longcontext`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RawLongContext {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    reserved_tokens: i64,
    sliding_window: Option<RawWindow>,
    keydiff: Option<RawKeyDiff>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawWindow {
    window_size: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawKeyDiff {
    update_frequency: i64,
    scoring_network: Option<String>,
    anchor_alpha: Option<f32>,
}

/// Mirrors one of `cache-groups`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RawCacheGroup {
    prefix: String,
    attention_mask_tensor_name: Option<String>,
    cache_index_tensor_name: Option<String>,
    longcontext: Option<RawLongContext>,
}

/// The engine's own block and those of its groups.
pub(super) fn settings(
    engine: Option<RawLongContext>,
    groups: Vec<RawCacheGroup>,
    base: &Path,
    problems: &mut Vec<Problem>,
) -> (Option<LongContextSettings>, Vec<CacheGroupSettings>) {
    const ENGINE: &str = "/dialog/engine/longcontext";
    let of_engine = engine.and_then(|raw| block(raw, ENGINE, base, problems));
    let mut out = Vec::with_capacity(groups.len());
    for (i, group) in groups.into_iter().enumerate() {
        let at = format!("/dialog/engine/cache-groups/{i}/longcontext");
        let long_context = group.longcontext.and_then(|raw| block(raw, &at, base, problems));
        if group.prefix == DEFAULT_GROUP && long_context.is_some() && of_engine.is_some() {
            let message = format!("group `{DEFAULT_GROUP}` has its rule from `{ENGINE}` already");
            problems.push(Problem::new(at, message).hint("give one of the two"));
        }
        out.push(CacheGroupSettings {
            prefix: group.prefix,
            attention_mask_tensor_name: group.attention_mask_tensor_name,
            cache_index_tensor_name: group.cache_index_tensor_name,
            long_context,
        });
    }
    (of_engine, out)
}

fn block(raw: RawLongContext, at: &str, base: &Path, problems: &mut Vec<Problem>) -> Option<LongContextSettings> {
    let reserved = number(raw.reserved_tokens, 0, &format!("{at}/reserved-tokens"), problems);
    let kind = match (raw.kind.as_str(), raw.sliding_window, raw.keydiff) {
        ("sliding-window", Some(window), _) => {
            let size = number(window.window_size, 1, &format!("{at}/sliding-window/window-size"), problems);
            LongContextKind::SlidingWindow { window_size: size? }
        }
        ("keydiff", _, Some(keydiff)) => {
            let every = number(keydiff.update_frequency, 1, &format!("{at}/keydiff/update-frequency"), problems);
            let network = keydiff.scoring_network.filter(|path| !path.trim().is_empty());
            LongContextKind::KeyDiff {
                update_frequency: every?,
                anchor_alpha: keydiff.anchor_alpha,
                scoring_network: network.map(|path| resolve(base, &path)),
            }
        }
        // The rules between keys have reported it.
        _ => return None,
    };
    Some(LongContextSettings { reserved_tokens: reserved?, kind })
}

fn number(found: i64, least: i64, at: &str, problems: &mut Vec<Problem>) -> Option<usize> {
    let n = usize::try_from(found).ok().filter(|_| found >= least);
    if n.is_none() {
        problems.push(Problem::new(at, format!("expected at least {least}, found {found}")));
    }
    n
}
