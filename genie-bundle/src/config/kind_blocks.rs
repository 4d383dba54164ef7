//! The blocks named after dialog kinds, as values. A kind with settings of its own has a field here.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::problem::Problem;

/// What the blocks of the dialog kinds say. Only the block of the config's own kind is there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindBlocks {
    /// `spd`: tokens that the draft model proposes in a round.
    pub draft_len: Option<usize>,
    /// `kv-share`: the cache goes to the second engine in memory, not by files.
    pub kv_share_in_memory: bool,
    /// `lade`.
    pub lade: Option<LadeBlock>,
    /// `ssd-q1`.
    pub ssd: Option<SsdBlock>,
    /// `eaglet`.
    pub eaglet: Option<EagletBlock>,
}

/// The block `eaglet`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EagletBlock {
    /// Levels of the draft tree.
    pub draft_len: usize,
    /// Most children of a node.
    pub n_branches: usize,
    /// Most tokens of a step of the target.
    pub max_tokens_target_can_evaluate: usize,
    /// Ends a tree before its last level, with `enable-early-stop`.
    pub early_stop: Option<EarlyStopBlock>,
}

/// The keys of `eaglet` that belong to `enable-early-stop`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EarlyStopBlock {
    /// `entropy-threshold`.
    pub entropy_threshold: f64,
    /// `min-draft-levels`.
    pub min_draft_levels: usize,
}

/// Where `entropy-threshold` is not given: trees are as long as they may be.
const NO_THRESHOLD: f64 = f64::INFINITY;

/// The block `lade`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LadeBlock {
    /// `FWD_MAX_HIT`, `FWD_LEVEL` or `ALWAYS_FWD_ONE`.
    pub update_mode: Option<String>,
    /// Columns of the window.
    pub window: Option<usize>,
    /// Tokens of an n-gram.
    pub ngram: Option<usize>,
    /// Most guesses for a token.
    pub gcap: Option<usize>,
}

/// The block `ssd-q1`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SsdBlock {
    /// Forecast tokens of the model.
    pub forecast_token_count: usize,
    /// Children of a node of the draft tree, level by level.
    pub branches: Vec<usize>,
    /// `top-1` or `all-expand`.
    pub branch_mode: Option<String>,
    /// Rows of the forecast prefix.
    pub forecast_prefix: usize,
    /// Its folder, absolute if the config's was.
    pub forecast_prefix_name: PathBuf,
}

/// Mirrors the blocks.
#[derive(Deserialize)]
pub(super) struct RawKindBlocks {
    spd: Option<RawSpd>,
    lade: Option<RawLade>,
    #[serde(rename = "kv-share")]
    kv_share: Option<RawKvShare>,
    #[serde(rename = "ssd-q1")]
    ssd: Option<RawSsd>,
    eaglet: Option<RawEaglet>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawEaglet {
    draft_len: i64,
    n_branches: i64,
    max_tokens_target_can_evaluate: i64,
    #[serde(default)]
    enable_early_stop: bool,
    entropy_threshold: Option<f64>,
    min_draft_levels: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawLade {
    update_mode: Option<String>,
    window: Option<i64>,
    ngram: Option<i64>,
    gcap: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawSsd {
    forecast_token_count: usize,
    branches: Vec<i64>,
    branch_mode: Option<String>,
    forecast_prefix: i64,
    forecast_prefix_name: PathBuf,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawSpd {
    draft_len: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawKvShare {
    #[serde(default)]
    enable_in_memory_kv_share: bool,
}

/// The blocks with their numbers checked; files start at `base`.
pub(super) fn values(raw: RawKindBlocks, base: &Path, problems: &mut Vec<Problem>) -> KindBlocks {
    let draft_len = raw.spd.and_then(|spd| count(spd.draft_len, "spd/draft-len", problems));
    let mut at_least = |least: usize, found: Option<i64>, at: &str| {
        let n = count(found?, at, problems)?;
        if n < least {
            problems.push(Problem::new(format!("/dialog/{at}"), format!("expected at least {least}, found {n}")));
        }
        Some(n)
    };
    let lade = raw.lade.map(|lade| LadeBlock {
        update_mode: lade.update_mode,
        window: at_least(1, lade.window, "lade/window"),
        ngram: at_least(2, lade.ngram, "lade/ngram"),
        gcap: at_least(0, lade.gcap, "lade/gcap"),
    });
    let kv_share_in_memory = raw.kv_share.is_some_and(|block| block.enable_in_memory_kv_share);
    let ssd = raw.ssd.map(|ssd| SsdBlock {
        forecast_token_count: ssd.forecast_token_count,
        branches: ssd
            .branches
            .iter()
            .enumerate()
            .filter_map(|(i, &n)| at_least(1, Some(n), &format!("ssd-q1/branches/{i}")))
            .collect(),
        branch_mode: ssd.branch_mode,
        forecast_prefix: at_least(1, Some(ssd.forecast_prefix), "ssd-q1/forecast-prefix").unwrap_or(0),
        forecast_prefix_name: base.join(ssd.forecast_prefix_name),
    });
    let eaglet = raw.eaglet.map(|eaglet| EagletBlock {
        draft_len: at_least(1, Some(eaglet.draft_len), "eaglet/draft-len").unwrap_or(1),
        n_branches: at_least(1, Some(eaglet.n_branches), "eaglet/n-branches").unwrap_or(1),
        max_tokens_target_can_evaluate: at_least(
            1,
            Some(eaglet.max_tokens_target_can_evaluate),
            "eaglet/max-tokens-target-can-evaluate",
        )
        .unwrap_or(1),
        early_stop: eaglet.enable_early_stop.then(|| EarlyStopBlock {
            entropy_threshold: eaglet.entropy_threshold.unwrap_or(NO_THRESHOLD),
            min_draft_levels: at_least(0, eaglet.min_draft_levels, "eaglet/min-draft-levels").unwrap_or(0),
        }),
    });
    if let Some(ssd) = ssd.as_ref().filter(|ssd| ssd.branches.is_empty()) {
        let message = "expected at least one number, found none";
        problems.push(
            Problem::new("/dialog/ssd-q1/branches".to_owned(), message.to_owned())
                .hint(format!("up to {} numbers", ssd.forecast_token_count)),
        );
    }
    KindBlocks { draft_len, kv_share_in_memory, lade, ssd, eaglet }
}

/// A number of at least 0; the schema takes any integer.
fn count(found: i64, at: &str, problems: &mut Vec<Problem>) -> Option<usize> {
    let n = usize::try_from(found).ok();
    if n.is_none() {
        problems.push(Problem::new(format!("/dialog/{at}"), format!("expected at least 0, found {found}")));
    }
    n
}
