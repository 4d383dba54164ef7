//! The `engine` block: long context, cache groups, training; backend and model have files of their own.

use super::super::schema::{Block, I32, I64, NUM, SIZE, THREADS, Type, block, opt, req};
use super::{backend, model};

pub(super) const ENGINE: Block = block(&[
    req("version", Type::Version),
    req("backend", Type::Block(&backend::BACKEND)),
    req("model", Type::Block(&model::MODEL)),
    req("n-threads", THREADS),
    opt("role", Type::Choice(&["primary", "secondary", "target", "draft"])),
    opt("type", Type::Text),
    opt("longcontext", Type::Block(&LONG_CONTEXT)),
    opt("cache-groups", Type::List(&Type::Block(&CACHE_GROUP), 1)),
    opt("batching", Type::Block(&BATCHING)),
    opt("pd_fusion", Type::Block(&PD_FUSION)),
    opt("training-config", Type::Block(&TRAINING)),
    opt("optimizer-config", Type::Block(&OPTIMIZER)),
]);

/// Fused graphs: a block of this project's, as mllm's configuration names it. libGenie knows none.
const PD_FUSION: Block = block(&[
    opt("enable", Type::Bool),
    opt("total_len", I32),
    opt("prefill_len", I32),
    opt("in_place", Type::Bool),
    opt("kv_update", Type::Choice(&["host", "graph", "op"])),
]);

const LONG_CONTEXT: Block = block(&[
    req("version", Type::Version),
    req("type", Type::Choice(&["keydiff", "sliding-window"])),
    opt("reserved-tokens", I32),
    opt("sliding-window", Type::Block(&SLIDING_WINDOW)),
    opt("keydiff", Type::Block(&KEYDIFF)),
]);

const SLIDING_WINDOW: Block = block(&[opt("version", Type::Version), req("window-size", I32)]);

/// The one block of the engine where Genie accepts keys that it does not know.
const KEYDIFF: Block = Block {
    keys: &[
        opt("version", Type::Version),
        req("scoring-network", Type::Text),
        req("update-frequency", I32),
        opt("anchor-alpha", Type::Between(0.0, 1.0)),
    ],
    open: true,
};

const CACHE_GROUP: Block = block(&[
    req("version", Type::Version),
    req("prefix", Type::NonEmpty),
    opt("longcontext", Type::Block(&LONG_CONTEXT)),
    opt("attention-mask-tensor-name", Type::Text),
    opt("cache-index-tensor-name", Type::Text),
    opt("kv-dim", I64),
]);

/// Genie takes any block here; of the keys that it reads, the types are checked.
const BATCHING: Block = Block {
    keys: &[
        opt("version", Type::Version),
        opt("max-slots", SIZE),
        opt("prefill-chunk-size", SIZE),
        opt("mixed-prefill-decode", Type::Bool),
        opt("coalesce-window-us", SIZE),
        opt("prefill-only", Type::Bool),
    ],
    open: true,
};

const TRAINING: Block = block(&[
    opt("version", Type::Version),
    opt("random-seed", I64),
    opt("torch-num-threads", I64),
    req("torch-num-inter-op-threads", I64),
    opt("device", Type::Text),
    opt("max-iterations", I64),
    opt("batch-size", I64),
    opt("batch-multiplier", I64),
    opt("softmax-topk", I64),
    opt("gclip-max-norm", NUM),
    opt("enable-logit-masking", Type::Bool),
    opt("enable-clear-torch-op-cache", Type::Bool),
    opt("loss-type", Type::Choice(&["mse", "cross_entropy"])),
    opt("grad-scaler", Type::Any),
]);

const OPTIMIZER: Block = block(&[
    opt("version", Type::Version),
    opt("opt-name", Type::Choice(&["SGD", "AdamW"])),
    opt("learning-rate", Type::Between(0.0, f64::INFINITY)),
    opt("weight-decay", NUM),
    opt("wd", NUM),
    opt("momentum", Type::Num(0.0, 1.0)),
    opt("beta-1", Type::Num(0.0, 1.0)),
    opt("beta-2", Type::Num(0.0, 1.0)),
    opt("epsilon", NUM),
]);
