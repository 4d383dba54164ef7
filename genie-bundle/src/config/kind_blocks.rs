//! The blocks named after dialog kinds, as values. A kind with settings of its own has a field here.

use serde::Deserialize;

use super::problem::Problem;

/// What the blocks of the dialog kinds say. Only the block of the config's own kind is there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindBlocks {
    /// `spd`: tokens that the draft model proposes in a round.
    pub draft_len: Option<usize>,
}

/// Mirrors the blocks.
#[derive(Deserialize)]
pub(super) struct RawKindBlocks {
    spd: Option<RawSpd>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawSpd {
    draft_len: i64,
}

/// The blocks with their numbers checked.
pub(super) fn values(raw: RawKindBlocks, problems: &mut Vec<Problem>) -> KindBlocks {
    KindBlocks { draft_len: raw.spd.and_then(|spd| count(spd.draft_len, "spd/draft-len", problems)) }
}

/// A number of at least 0; the schema takes any integer.
fn count(found: i64, at: &str, problems: &mut Vec<Problem>) -> Option<usize> {
    let n = usize::try_from(found).ok();
    if n.is_none() {
        problems.push(Problem::new(format!("/dialog/{at}"), format!("expected at least 0, found {found}")));
    }
    n
}
