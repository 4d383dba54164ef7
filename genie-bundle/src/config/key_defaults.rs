//! What a key is if a config leaves it out: a column of docs/config-keys.md. Tests compare each row with what the parser does.

/// The value of an optional key that is absent, as JSON, or what is done instead in words.
pub(super) fn default_of(path: &str) -> Option<&'static str> {
    VALUES.iter().chain(WORDS).find(|(of, _)| *of == path).map(|(_, value)| *value)
}

/// Writing this value is the same as leaving the key out.
pub(super) const VALUES: &[(&str, &str)] = &[
    ("stop-sequence", "[]"),
    ("multistream/p-threshold", "0"),
    ("debug/dump-tensors", "false"),
    ("debug/dump-specs", "false"),
    ("debug/dump-outputs", "false"),
    ("debug/path", "\"genie_debug\""),
    ("context/eot-token", "-1"),
    ("context/pad-token", "-1"),
    ("context/grammar/backend", "\"\""),
    ("sampler/greedy", "false"),
    ("engine/longcontext/reserved-tokens", "0"),
    ("engine/cache-groups/longcontext/reserved-tokens", "0"),
    ("engine/pd_fusion/in_place", "true"),
    ("engine/backend/extensions", "[]"),
    ("engine/backend/QnnHtp/allow-async-init", "false"),
    ("engine/backend/QnnHtp/enable-graph-switching", "false"),
    ("engine/backend/QnnHtp/execute-select-graphs", "[]"),
    ("engine/backend/QnnHtp/data-alignment-size", "0"),
    ("engine/model/positional-encoding/rope-theta", "10000"),
    ("engine/model/positional-encoding/prefix", "\"default_\""),
];

/// Where the sampler, a kind of dialog or the graphs decide.
pub(super) const WORDS: &[(&str, &str)] = &[
    ("max-num-tokens", "512 of `genie`"),
    ("sampler", "its keys' defaults"),
    ("sampler/type", "`\"basic\"`"),
    ("sampler/seed", "-1"),
    ("sampler/temp", "0.1"),
    ("sampler/top-k", "0"),
    ("sampler/top-p", "0.8"),
    ("sampler/token-penalty/penalize-last-n", "0"),
    ("sampler/token-penalty/repetition-penalty", "1"),
    ("sampler/token-penalty/presence-penalty", "0"),
    ("sampler/token-penalty/frequency-penalty", "0"),
    ("lade/update-mode", "`\"ALWAYS_FWD_ONE\"`"),
    ("lade/window", "8"),
    ("lade/ngram", "3"),
    ("lade/gcap", "8"),
    ("ssd-q1/branch-mode", "`\"all-expand\"`"),
    ("eaglet/enable-early-stop", "false"),
    ("kv-share/enable-in-memory-kv-share", "false"),
    ("eaglet/entropy-threshold", "no threshold"),
    ("eaglet/min-draft-levels", "0"),
    ("engine/role", "`\"primary\"`"),
    ("engine/model/positional-encoding", "what the graphs' inputs need"),
    ("engine/model/positional-encoding/type", "`\"rope\"`"),
    ("engine/model/positional-encoding/rope-scaling/extrapolation-factor", "1"),
    ("engine/model/positional-encoding/rope-scaling/attn-factor", "1"),
    ("engine/model/positional-encoding/rope-scaling/beta-fast", "32"),
    ("engine/model/positional-encoding/rope-scaling/beta-slow", "1"),
    ("engine/model/positional-encoding/rope-scaling/partial-rotary-factor", "1"),
    ("engine/model/positional-encoding/rope-scaling/dim", "twice `rope-dim`"),
    ("debug/dump-start", "the first step"),
    ("debug/dump-end", "the last step"),
];
