//! The root `embedding`: a text encoder with its context, tokenizer, prompt and engine.

use super::super::schema::{Block, COUNT, I32, SIZE, TEXTS, THREADS, Type, block, opt, req};
use super::{dialog, model};

/// The whole document: one key, `embedding`.
pub(in super::super) const ENCODER_ROOT: Block = block(&[req("embedding", Type::Block(&ENCODER))]);

const ENCODER: Block = block(&[
    req("version", Type::Version),
    opt("type", Type::Text),
    req("context", Type::Block(&CONTEXT)),
    req("tokenizer", Type::Block(&dialog::TOKENIZER)),
    req("engine", Type::Block(&ENGINE)),
    opt("prompt", Type::Block(&PROMPT)),
    opt("truncate-input", Type::Bool),
]);

const CONTEXT: Block = block(&[
    req("version", Type::Version),
    req("n-vocab", SIZE),
    req("ctx-size", SIZE),
    req("embed-size", SIZE),
    req("pad-token", I32),
    opt("bos-token", I32),
    opt("eos-token", I32),
    opt("add-eos", Type::Bool),
]);

const PROMPT: Block = block(&[opt("version", Type::Version), opt("prompt-template", TEXTS)]);

const ENGINE: Block = block(&[
    req("version", Type::Version),
    opt("n-threads", THREADS),
    req("backend", Type::Block(&BACKEND)),
    req("model", Type::Block(&model::MODEL)),
]);

const BACKEND: Block = block(&[
    req("version", Type::Version),
    req("type", Type::Choice(&["QnnHtp", "QnnGenAiTransformer", "GTE", "libtorch"])),
    opt("extensions", Type::Either(&[Type::Text, TEXTS])),
    opt("QnnHtp", Type::Block(&HTP)),
]);

const HTP: Block = block(&[
    req("version", Type::Version),
    req("spill-fill-bufsize", COUNT),
    req("use-mmap", Type::Bool),
    req("pooled-output", Type::Bool),
    req("allow-async-init", Type::Bool),
    opt("disable-kv-cache", Type::Bool),
    opt("batch-size", SIZE),
    opt("batch-multiplier", SIZE),
    opt("direct-io", Type::Bool),
    opt("data-alignment-size", SIZE),
]);
