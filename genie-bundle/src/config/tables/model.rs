//! The `model` block: binaries, positional encoding, LoRA.

use super::super::schema::{Block, I32, NUM, TEXTS, Type, block, opt, req};

pub(super) const MODEL: Block = block(&[
    req("version", Type::Version),
    req("type", Type::Choice(&["binary", "library", "scopgpt-gguf", "checkpoint"])),
    opt("binary", Type::Block(&BINARY)),
    opt("library", Type::Block(&LIBRARY)),
    opt("scopgpt-gguf", Type::Block(&GGUF)),
    opt("checkpoint", Type::Block(&CHECKPOINT)),
    opt("positional-encoding", Type::Either(&[Type::Block(&POSITIONS), Type::List(&Type::Block(&POSITIONS), 1)])),
    opt("draft-token-map", Type::Text),
    opt("mask-type", Type::Text),
    opt("cross-attention", Type::Bool),
    opt("linear-attention", Type::Bool),
]);

const BINARY: Block = block(&[
    opt("version", Type::Version),
    opt("ctx-bins", Type::List(&Type::NonEmpty, 1)),
    opt("fcb", Type::List(&Type::NonEmpty, 1)),
    opt("lora", Type::Block(&LORA)),
]);

const LIBRARY: Block =
    block(&[opt("version", Type::Version), req("model-bin", Type::Text), opt("lora", Type::Block(&LORA))]);

const GGUF: Block =
    block(&[opt("version", Type::Version), req("gguf-bin", Type::Text), opt("lora", Type::Block(&LORA))]);

const CHECKPOINT: Block = block(&[
    opt("version", Type::Version),
    opt("model-basedir", Type::Text),
    opt("output-dir", Type::Text),
    opt("cache-dir", Type::Text),
    opt("model-json-path", Type::Text),
    opt("clipping-map-path", Type::Text),
    opt("trainable-params-path", Type::Text),
    opt("data-type", Type::Text),
    opt("lora", Type::Block(&LORA)),
]);

const POSITIONS: Block = block(&[
    opt("version", Type::Version),
    opt("type", Type::Choice(&["rope", "absolute", "alibi", "none"])),
    opt("rope-dim", I32),
    opt("rope-theta", NUM),
    opt("rope-freqs-type", Type::Text),
    opt("prefix", Type::Text),
    opt("rope-scaling", Type::Block(&ROPE_SCALING)),
]);

const NUMBERS: Type = Type::List(&NUM, 0);

const ROPE_SCALING: Block = block(&[
    opt("version", Type::Version),
    opt(
        "rope-type",
        Type::Choice(&[
            "llama3",
            "default",
            "longrope",
            "qwen2vl-mrope",
            "qwen3vl-mrope",
            "yarnrope",
            "linear",
            "hunyuan",
            "proportional",
        ]),
    ),
    opt("factor", NUM),
    opt("low-freq-factor", NUM),
    opt("high-freq-factor", NUM),
    opt("original-max-position-embeddings", NUM),
    opt("short-factor", NUMBERS),
    opt("long-factor", NUMBERS),
    opt("time-step", NUM),
    opt("spatial-merge-size", NUM),
    opt("mrope-section", NUMBERS),
    opt("dim", NUM),
    opt("extrapolation-factor", NUM),
    opt("attn-factor", NUM),
    opt("beta-fast", NUM),
    opt("beta-slow", NUM),
    opt("partial-rotary-factor", NUM),
]);

const LORA: Block = block(&[
    req("version", Type::Version),
    req("adapters", Type::List(&Type::Block(&ADAPTER), 0)),
    opt("lora-version", Type::Int(1, 3)),
    opt("alpha-tensor-name", Type::Text),
    opt("adapter-order", TEXTS),
    opt("groups", Type::List(&Type::Block(&LORA_GROUP), 0)),
]);

const ADAPTER: Block = block(&[
    opt("version", Type::Version),
    req("name", Type::Text),
    opt("path", Type::Text),
    opt("alphas", TEXTS),
    opt("bin-sections", TEXTS),
    opt("adapter-order", TEXTS),
    opt("metadata-dlc", Type::Text),
]);

const LORA_GROUP: Block = block(&[
    opt("version", Type::Version),
    req("name", Type::Text),
    req("members", TEXTS),
    req("quant-bin-sections", TEXTS),
]);
