//! What older Genie versions reject of a config that the newest one accepts.
//!
//! *Source*: the schemas of API 1.0 (QAIRT 2.25) and 1.21 (2.51), and release notes between them. A key is listed with the
//! newest version that is known to lack it; versions after that one, for which nothing is known, are taken to have
//! the key.

use serde_json::Value;

use super::node::Node;
use super::problem::Problem;

/// A version of Genie's C API, which is also that of its config schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GenieApi {
    /// Always 1 so far.
    pub major: u32,
    /// Goes up with nearly every release.
    pub minor: u32,
}

impl GenieApi {
    /// The version whose schema [`super::validate`] holds a config against.
    pub const NEWEST: Self = Self { major: 1, minor: 21 };

    /// Reads `1.21`.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// The version that came with a QAIRT release (2.51 has 1.21); for releases between the known ones, the older one's.
    pub fn of_release(major: u32, minor: u32) -> Option<Self> {
        const KNOWN: [(u32, u32); 8] = [(25, 0), (27, 1), (28, 2), (39, 13), (44, 16), (45, 17), (50, 20), (51, 21)];
        let known = KNOWN.iter().rev().find(|(release, _)| *release <= minor);
        known.filter(|_| major == 2).map(|&(_, minor)| Self { major: 1, minor })
    }
}

impl core::fmt::Display for GenieApi {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Keys, by their path below `/dialog`, and the newest minor version without them.
const LATER_KEYS: &[(&str, u32)] = &[
    ("max-num-tokens", 0),
    ("kv-share", 0),
    ("ssd-q1", 1),
    ("lade", 1),
    ("spd", 1),
    ("multistream", 1),
    ("eaglet", 1),
    ("embedding", 1),
    ("perlayer-embedding", 1),
    ("harmony", 1),
    ("nested-generator", 1),
    ("context/grammar", 1),
    ("engine/cache-groups", 1),
    ("engine/longcontext", 1),
    ("engine/batching", 19),
    ("engine/training-config", 1),
    ("engine/optimizer-config", 1),
    ("engine/backend/QnnGpu", 2),
    ("engine/backend/GTE", 1),
    ("engine/backend/QnnHtp/enable-graph-switching", 1),
    ("engine/backend/QnnHtp/graph-switching-lora-policy", 1),
    ("engine/backend/QnnHtp/graph-retention-order", 1),
    ("engine/backend/QnnHtp/weight-shared-lora", 1),
    ("engine/backend/QnnHtp/multi-nsp-prefill", 1),
    ("engine/model/positional-encoding", 1),
    ("engine/model/binary/lora", 1),
    ("engine/model/library/lora", 1),
];

/// Dialog types and the newest minor version without them.
const LATER_TYPES: &[(&str, u32)] =
    &[("kv-share", 0), ("ssd-q1", 1), ("lade", 1), ("spd", 1), ("multistream", 1), ("eaglet", 1)];

/// What that version rejects although the newest one accepts it. Empty for the newest, and for a document without a dialog.
pub fn rejected_by(document: &Value, api: GenieApi) -> Vec<Problem> {
    let mut out = Vec::new();
    let Some(dialog) = Node::root(document).get("dialog") else { return out };
    let lacks = |newest_without: u32| api.major == 1 && api.minor <= newest_without;
    if let Some((kind, _)) = LATER_TYPES.iter().find(|(k, n)| dialog.str("type") == Some(k) && lacks(*n)) {
        out.push(dialog.problem_at("type", format!("dialog type `{kind}` is unknown to API {api}")));
    }
    for (path, newest_without) in LATER_KEYS.iter().filter(|(_, n)| lacks(*n)) {
        for owner in owners(&dialog, path) {
            let key = path.rsplit('/').next().unwrap_or(path);
            out.push(owner.problem_at(key, format!("unknown to API {api}; later than 1.{newest_without}")));
        }
    }
    if lacks(1)
        && let Some(eos) = dialog.get("context").and_then(|c| c.get("eos-token")).filter(Node::is_array)
    {
        out.push(eos.problem(format!("a list is unknown to API {api}")).hint("give one id"));
    }
    if lacks(0) {
        for htp in owners(&dialog, "engine/backend/QnnHtp/").into_iter().filter(|h| !h.has("pos-id-dim")) {
            out.push(htp.problem_at("pos-id-dim", format!("required by API {api}")).hint("half of the head's width"));
        }
    }
    out
}

/// The oldest version that accepts a config that the newest one does.
pub fn oldest_accepting(document: &Value) -> Option<GenieApi> {
    let versions = (0..=GenieApi::NEWEST.minor).map(|minor| GenieApi { major: 1, minor });
    versions.into_iter().find(|api| rejected_by(document, *api).is_empty())
}

/// The blocks that have the last key of a path; with an empty last key, the blocks themselves.
fn owners<'v>(dialog: &Node<'v>, path: &str) -> Vec<Node<'v>> {
    let (folders, key) = path.rsplit_once('/').map_or(("", path), |(folders, key)| (folders, key));
    let mut blocks = vec![dialog.clone()];
    for step in folders.split('/').filter(|step| !step.is_empty()) {
        blocks = blocks.iter().filter_map(|b| b.get(step)).flat_map(|b| b.one_or_many()).collect();
    }
    blocks.retain(|b| key.is_empty() || b.has(key));
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config() -> Value {
        json!({"dialog": {
            "type": "basic", "max-num-tokens": 9,
            "context": {"eos-token": [1, 2]},
            "engine": {
                "backend": {"type": "QnnHtp", "QnnHtp": {}},
                "model": {"positional-encoding": {"type": "rope"}},
            },
        }})
    }

    fn pointers(document: &Value, api: &str) -> Vec<String> {
        rejected_by(document, GenieApi::parse(api).unwrap()).into_iter().map(|p| p.pointer).collect()
    }

    #[test]
    fn older_versions_reject_more() {
        const ALL: [&str; 4] = [
            "/dialog/max-num-tokens",
            "/dialog/engine/model/positional-encoding",
            "/dialog/context/eos-token",
            "/dialog/engine/backend/QnnHtp/pos-id-dim",
        ];
        assert_eq!(pointers(&config(), "1.0"), ALL);
        assert_eq!(pointers(&config(), "1.1"), ALL[1..3]);
        for api in ["1.2", "1.16", "1.21"] {
            assert_eq!(pointers(&config(), api), [""; 0], "{api}");
        }
    }

    #[test]
    fn kinds_and_engines_of_a_pair_are_looked_at() {
        let pair = json!({"dialog": {"type": "spd", "spd": {}, "engine": [{}, {"batching": {}}]}});
        assert_eq!(pointers(&pair, "1.1"), ["/dialog/type", "/dialog/spd", "/dialog/engine/1/batching"]);
        assert_eq!(pointers(&pair, "1.19"), ["/dialog/engine/1/batching"]);
        assert_eq!(pointers(&pair, "1.20"), [""; 0]);
        assert_eq!(pointers(&json!([1]), "1.0"), [""; 0]);
    }

    #[test]
    fn releases_have_their_versions() {
        let cases = [((2, 25), Some("1.0")), ((2, 26), Some("1.0")), ((2, 28), Some("1.2")), ((2, 51), Some("1.21"))];
        for ((major, minor), want) in cases {
            assert_eq!(GenieApi::of_release(major, minor), want.and_then(GenieApi::parse), "{major}.{minor}");
        }
        assert_eq!((GenieApi::of_release(2, 24), GenieApi::of_release(3, 1)), (None, None));
        assert_eq!(GenieApi::parse("1"), None);
    }
}
