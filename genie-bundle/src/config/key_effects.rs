//! What each key of Genie's schema does here: the one list from which warnings and docs/config-keys.md are made.
//!
//! A row is for its key and all below it that have no row of their own; lists have no step of their own in a path. A test walks the
//! schema, so a new key needs a row, and one that becomes supported changes its row here.

use KeyEffect::{Acts, HtpOnly, Ignored, InPart, Refused};

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEffect {
    /// It does what Genie documents; where there is more to say, how.
    Acts(&'static str),
    /// As `Acts` on an HTP backend; the embedded one warns that it has no effect.
    HtpOnly(&'static str),
    /// Some values act, others are refused by name: which.
    InPart(&'static str),
    /// Accepted with a warning, unless its value asks for nothing: why it has no effect.
    Ignored(&'static str),
    /// A config with it is refused: what is missing.
    Refused(&'static str),
}

impl KeyEffect {
    /// One word for tables.
    pub const fn word(self) -> &'static str {
        match self {
            Acts(_) => "acts",
            HtpOnly(_) => "acts on HTP, else warns",
            InPart(_) => "acts or is refused",
            Ignored(_) => "warns",
            Refused(_) => "refused",
        }
    }

    /// How it acts, or why it does not.
    pub const fn reason(self) -> &'static str {
        match self {
            Acts(text) | HtpOnly(text) | InPart(text) | Ignored(text) | Refused(text) => text,
        }
    }
}

/// Below `/dialog`.
pub(super) const KEY_EFFECTS: &[(&str, KeyEffect)] = &[
    ("version", Acts("1 is the only version")),
    ("type", InPart("`basic`, `eaglet`, `kv-share`, `lade`, `multistream`, `spd`, `ssd-q1`")),
    ("stop-sequence", Acts("ends replies to text")),
    ("max-num-tokens", Acts("`--max-tokens` overrides it")),
    ("ssd-q1", Acts("docs/speculation.md")),
    ("ssd-q1/ssd-version", Acts("any: one form is known")),
    ("ssd-q1/prefix-quant", Ignored("the prefix has the type of the model's cache")),
    ("ssd-q1/n-streams", Ignored("a reply has one stream")),
    ("ssd-q1/p-threshold", Ignored("a reply has one stream")),
    ("lade", Acts("docs/speculation.md")),
    ("spd", Acts("docs/speculation.md")),
    ("multistream", Acts("several replies to a prompt; docs/dialog-kinds.md")),
    ("multistream/n-streams", Acts("most streams, 1 to 64")),
    ("multistream/p-threshold", Acts("a first token that is less likely begins no stream; 0 if absent")),
    ("eaglet", Acts("docs/speculation.md")),
    ("eaglet/eaglet-version", Acts("any: one form is known")),
    ("eaglet/draft-kv-cache", Ignored("the draft keeps its cache in any case, which drafts better")),
    ("eaglet/prepend-accepted-tokens", Ignored("accepted tokens are in the cache already")),
    ("kv-share", Acts("one engine for prompts, another for replies; docs/dialog-kinds.md")),
    ("kv-share/enable-in-memory-kv-share", Acts("false if absent: the cache goes by files in `dialog0-kv-share`")),
    (
        "perlayer-embedding",
        Refused("the input tensors that take them are not known: no bundle with them could be recorded"),
    ),
    (
        "nested-generator",
        Refused("which tensors the inner one takes is not known: no bundle with one could be recorded"),
    ),
    ("nested-generator-config-path", Refused("as `nested-generator`")),
    ("nested-policy", Ignored("there is no nested generator")),
    ("accumulator-size", Ignored("it belongs to the nodes of a pipeline")),
    ("callback-type", Ignored("it belongs to the nodes of a pipeline")),
    ("debug", Acts("writes tensors of each step to files")),
    // context
    ("context", Acts("")),
    ("context/bos-token", Acts("put before the first turn; -1 is none")),
    ("context/eos-token", Acts("one id or a list; each ends a reply")),
    ("context/eot-token", Acts("ends a reply")),
    ("context/pad-token", Acts("fills short steps; the first `eos-token` if absent")),
    ("context/size", Acts("positions that the dialog uses, at most the largest CL")),
    ("context/n-vocab", Acts("compared with the width of the logits; a difference is warned of")),
    ("context/n-embd", Ignored("the graphs have the width of the embeddings")),
    ("context/draft-n-vocab", Ignored("the draft's graphs have the number; libGenie does not read it either")),
    ("context/img-token", Ignored("a prompt is text or tokens")),
    ("context/embedding-length", Ignored("a prompt is text or tokens")),
    ("context/grammar", Acts("what replies must follow; without a `backend` it is not read")),
    ("context/grammar/backend", Acts("`xgrammar`: the grammar of `file` is followed; \"\" is none")),
    ("context/grammar/type", Acts("the language of `file`: `json-schema`, `regex` or `ebnf`")),
    ("context/grammar/file", Acts("the grammar, relative to the config")),
    ("context/grammar/tokenizer-json", Ignored("the dialog's own tokenizer is used, as in Genie")),
    // sampler
    ("sampler", Acts("absent: libGenie's defaults, with a warning")),
    ("sampler/type", Acts("`basic`, or `custom`: a program gives the function, `Options::sampler_callback`")),
    ("sampler/callback-name", Acts("the function of the type `custom`")),
    ("sampler/seed", Acts("-1 is a new one in each run")),
    ("sampler/temp", Acts("0 takes the most likely token")),
    ("sampler/top-k", Acts("0 keeps all, 1 takes the most likely token")),
    ("sampler/top-p", Acts("1 keeps all")),
    ("sampler/greedy", Acts("takes the most likely token; without effect under policy `genie`, as in libGenie")),
    ("sampler/token-penalty", Acts("")),
    // tokenizer, embedding, harmony
    ("tokenizer", Acts("")),
    ("tokenizer/path", Acts("a `tokenizer.json`, relative to the config")),
    ("embedding", Acts("")),
    ("embedding/type", InPart("`lut`, or `callback`: a program gives the function, `Options::token_embedding`")),
    ("embedding/size", Acts("elements of a row")),
    ("embedding/lut-path", Acts("the table, relative to the config")),
    ("embedding/datatype", Acts("`float32` if absent; codes of 2 and 4 bits are packed, the first in the lowest bits")),
    (
        "embedding/quant-param",
        Acts("numbers, or files of float32 scales and int32 offsets: one, one per column or one per row"),
    ),
    ("embedding/quant-param/type", Ignored("scale and offset say by themselves whether they are files")),
    ("harmony", Acts("replies of messages in channels; docs/dialog-kinds.md")),
    ("harmony/type", Acts("`gpt-oss`: replies are read as messages; any other does nothing, as in libGenie")),
    ("harmony/chat-format", Acts("`harmony-gpt-oss`: prompts are written as messages")),
    (
        "harmony/reasoning-format",
        Acts("`json-formatted`: pieces of a reply are JSON objects; with type `gpt-oss` only"),
    ),
    ("harmony/tokenizer-vocab-path", Ignored("control tokens are those of the dialog's own tokenizer")),
    // engine
    ("engine", Acts("")),
    ("engine/n-threads", Acts("threads that move rows of the KV cache beside the graphs; 0 is none")),
    ("engine/role", InPart("`target` and `draft` of `spd`; a dialog of one engine has no roles")),
    ("engine/type", Ignored("a dialog has one engine")),
    ("engine/longcontext", Acts("what the default group drops once it is full; `--long-context` overrides it")),
    ("engine/longcontext/type", InPart("with the block of its name")),
    (
        "engine/longcontext/keydiff/scoring-network",
        Acts("a context binary whose graph scores the keys of all layers; \"\" leaves it to this program's own scores"),
    ),
    ("engine/cache-groups", Acts("")),
    ("engine/cache-groups/prefix", Acts("begins the names of the group's tensors")),
    ("engine/cache-groups/longcontext", Acts("what the group drops once it is full")),
    ("engine/cache-groups/longcontext/type", InPart("with the block of its name")),
    (
        "engine/cache-groups/longcontext/keydiff/scoring-network",
        Acts("a context binary whose graph scores the keys of all layers; \"\" leaves it to this program's own scores"),
    ),
    ("engine/cache-groups/attention-mask-tensor-name", Acts("")),
    ("engine/cache-groups/cache-index-tensor-name", Acts("")),
    ("engine/cache-groups/kv-dim", Ignored("the graphs' tensors have the width")),
    ("engine/batching", Acts("where many requests are served (docs/serving.md); a dialog runs one sequence")),
    ("engine/pd_fusion", Acts("how fused graphs are run; no key of libGenie's, which refuses it")),
    ("engine/training-config", Refused("only the `libtorch` backend trains")),
    ("engine/optimizer-config", Refused("only the `libtorch` backend trains")),
    // backend
    ("engine/backend", Acts("")),
    ("engine/backend/type", InPart("`QnnHtp`, on HTP and on the embedded backend; others are not yet supported")),
    ("engine/backend/extensions", Acts("SoC and clocks; see the keys below")),
    ("engine/backend/device", Ignored("it belongs to the `libtorch` backend")),
    ("engine/backend/QnnGenAiTransformer", Refused("the backend is not yet supported")),
    ("engine/backend/GTE", Refused("the backend is not yet supported")),
    ("engine/backend/QnnGpu", Refused("the backend is not yet supported")),
    ("engine/backend/QnnHtp", Acts("")),
    (
        "engine/backend/QnnHtp/use-mmap",
        Acts(
            "`true` maps the binaries; `false` reads them into memory. \
             The embedded backend does that behind the first 16 steps (on Linux, where memory has room), and decodes faster then",
        ),
    ),
    ("engine/backend/QnnHtp/mmap-budget", HtpOnly("MB of a binary that are read at a time; 0 is no limit")),
    (
        "engine/backend/QnnHtp/spill-fill-bufsize",
        HtpOnly(
            "bytes of one spill buffer for all binaries; where the library refuses it, each has its own, with a warning",
        ),
    ),
    (
        "engine/backend/QnnHtp/cpu-mask",
        Acts(
            "cores of the threads of `n-threads`, as far as this machine has them; `--pin config`: of the embedded backend as well",
        ),
    ),
    ("engine/backend/QnnHtp/poll", HtpOnly("waits for the NPU by polling, whatever the performance policy says")),
    ("engine/backend/QnnHtp/pos-id-dim", Acts("the older form of `rope-dim`")),
    ("engine/backend/QnnHtp/rope-theta", Acts("the older form of `rope-theta` of `positional-encoding`")),
    ("engine/backend/QnnHtp/kv-dim", Acts("compared with the graphs; a difference is warned of")),
    ("engine/backend/QnnHtp/batch-size", Acts("the batch dimension of the graphs, which must have it")),
    ("engine/backend/QnnHtp/batch-multiplier", Ignored("a step has one batch")),
    (
        "engine/backend/QnnHtp/allow-async-init",
        Acts("the tokenizer is read in a thread beside the graphs; binaries are loaded one after the other"),
    ),
    ("engine/backend/QnnHtp/allow-async-enqueue", Ignored("a step waits for its graph")),
    ("engine/backend/QnnHtp/shared-engine", Ignored("each session opens an engine of its own")),
    (
        "engine/backend/QnnHtp/enable-graph-switching",
        HtpOnly(
            "graphs may take 1024 MB at a time, as libGenie sets it, and are swapped beyond; where the library refuses it, all stay loaded, with a warning",
        ),
    ),
    ("engine/backend/QnnHtp/graph-retention-order", HtpOnly("with `enable-graph-switching`: graphs that stay longest")),
    (
        "engine/backend/QnnHtp/graph-switching-lora-policy",
        Ignored("graphs are not switched: sections are applied at once"),
    ),
    (
        "engine/backend/QnnHtp/weight-shared-lora",
        InPart("`false`: adapters that share weights with the binary are not supported"),
    ),
    ("engine/backend/QnnHtp/skip-lora-validation", Ignored("adapters are always checked")),
    ("engine/backend/QnnHtp/multi-nsp-prefill", InPart("`false`; several NSPs are not yet supported")),
    ("engine/backend/QnnHtp/execute-select-graphs", Acts("only these graphs are used")),
    ("engine/backend/QnnHtp/kv-update-method", Ignored("as in Genie since it was deprecated; `--kv-mode` chooses one")),
    (
        "engine/backend/QnnHtp/data-alignment-size",
        Acts("buffers of the graphs begin at a multiple of it, at most 2 MB; cache tensors at 64 bytes"),
    ),
    ("engine/backend/QnnHtp/direct-io", Ignored("binaries are read through the system's cache")),
    // model
    ("engine/model", Acts("")),
    ("engine/model/type", InPart("`binary`; others are not yet supported")),
    ("engine/model/binary", Acts("")),
    ("engine/model/binary/ctx-bins", InPart("files, relative to the config; `record://` is not yet supported")),
    ("engine/model/binary/fcb", InPart("the same as `ctx-bins`")),
    ("engine/model/binary/lora", InPart("versions 2 and 3; not `path`, `adapter-order`, `metadata-dlc`; docs/lora.md")),
    ("engine/model/library", Refused("the model type is not yet supported")),
    ("engine/model/scopgpt-gguf", Refused("the model type is not yet supported; `genie compile` takes GGUF files")),
    ("engine/model/checkpoint", Refused("the model type is not yet supported; `genie compile` takes checkpoints")),
    (
        "engine/model/draft-token-map",
        InPart("types `spd` and `eaglet`: JSON, the target's ids by the draft's; libGenie does not read it"),
    ),
    ("engine/model/mask-type", Refused("the graphs' mask is causal")),
    ("engine/model/cross-attention", InPart("`false`; cross-attention is not yet supported")),
    ("engine/model/linear-attention", InPart("`false`; linear attention is not yet supported")),
    ("engine/model/positional-encoding", Acts("")),
    ("engine/model/positional-encoding/type", InPart("each kind, where the graphs take its input")),
    ("engine/model/positional-encoding/rope-dim", Acts("angles per position")),
    ("engine/model/positional-encoding/rope-theta", Acts("10000 if absent")),
    (
        "engine/model/positional-encoding/rope-freqs-type",
        Ignored("frequencies follow from `rope-theta` and `rope-scaling`"),
    ),
    (
        "engine/model/positional-encoding/prefix",
        InPart("of the names of its tables; only encodings of type `rope` have one"),
    ),
    ("engine/model/positional-encoding/rope-scaling", Acts("without `rope-type` ignored with a warning, as in Genie")),
    ("engine/model/positional-encoding/rope-scaling/rope-type", InPart("each kind, with the numbers that it needs")),
    (
        "engine/model/positional-encoding/rope-scaling/factor",
        InPart(
            "for `llama3`, `linear`, `proportional`, `longrope`, `yarnrope`; beside another `rope-type` ignored with a warning",
        ),
    ),
    (
        "engine/model/positional-encoding/rope-scaling/low-freq-factor",
        InPart("for `llama3`; beside another `rope-type` ignored with a warning"),
    ),
    (
        "engine/model/positional-encoding/rope-scaling/high-freq-factor",
        InPart("for `llama3`; beside another `rope-type` ignored with a warning"),
    ),
    (
        "engine/model/positional-encoding/rope-scaling/original-max-position-embeddings",
        InPart("for `llama3`, `longrope`, `yarnrope`; beside another `rope-type` ignored with a warning"),
    ),
    (
        "engine/model/positional-encoding/rope-scaling/short-factor",
        InPart("for `longrope`; beside another `rope-type` ignored with a warning"),
    ),
    (
        "engine/model/positional-encoding/rope-scaling/long-factor",
        InPart("for `longrope`; beside another `rope-type` ignored with a warning"),
    ),
    ("engine/model/positional-encoding/rope-scaling/time-step", Ignored("frames of an image are one position apart")),
    (
        "engine/model/positional-encoding/rope-scaling/spatial-merge-size",
        Ignored("an image is placed by its extents after merging"),
    ),
    (
        "engine/model/positional-encoding/rope-scaling/mrope-section",
        InPart("for mrope; beside another `rope-type` ignored with a warning"),
    ),
    (
        "engine/model/positional-encoding/rope-scaling/dim",
        InPart("for `yarnrope`; beside another `rope-type` ignored with a warning"),
    ),
    (
        "engine/model/positional-encoding/rope-scaling/extrapolation-factor",
        InPart("for `yarnrope`; beside another `rope-type` ignored with a warning"),
    ),
    (
        "engine/model/positional-encoding/rope-scaling/attn-factor",
        InPart("for `yarnrope`; beside another `rope-type` ignored with a warning"),
    ),
    (
        "engine/model/positional-encoding/rope-scaling/beta-fast",
        InPart("for `yarnrope`; beside another `rope-type` ignored with a warning"),
    ),
    (
        "engine/model/positional-encoding/rope-scaling/beta-slow",
        InPart("for `yarnrope`; beside another `rope-type` ignored with a warning"),
    ),
    (
        "engine/model/positional-encoding/rope-scaling/partial-rotary-factor",
        InPart("for `proportional`; beside another `rope-type` ignored with a warning"),
    ),
];

/// What a key does, by its path below `/dialog`; `None` for one without a row on its way.
pub(super) fn effect_of(path: &str) -> Option<KeyEffect> {
    if path.ends_with("/version") {
        return Some(Acts("1 is the only version"));
    }
    let row = |path: &str| KEY_EFFECTS.iter().find(|(of, _)| *of == path).map(|(_, effect)| *effect);
    let mut at = path;
    loop {
        if let Some(effect) = row(at) {
            // What a block says of itself is not said of its keys.
            return Some(if matches!(effect, Acts(_)) && at != path { Acts("") } else { effect });
        }
        at = at.rsplit_once('/')?.0;
    }
}

/// The numbers of `rope-scaling` that each `rope-type` reads.
pub(super) const SCALING_KEYS: &[(&str, &[&str])] = &[
    ("default", &[]),
    ("llama3", &["factor", "low-freq-factor", "high-freq-factor", "original-max-position-embeddings"]),
    ("linear", &["factor"]),
    ("proportional", &["factor", "partial-rotary-factor"]),
    ("longrope", &["factor", "original-max-position-embeddings", "short-factor", "long-factor"]),
    (
        "yarnrope",
        &[
            "factor",
            "original-max-position-embeddings",
            "dim",
            "extrapolation-factor",
            "attn-factor",
            "beta-fast",
            "beta-slow",
        ],
    ),
    ("qwen2vl-mrope", &["mrope-section"]),
    ("qwen3vl-mrope", &["mrope-section"]),
];
