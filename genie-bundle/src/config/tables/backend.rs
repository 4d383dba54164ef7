//! The `backend` block and one block per backend.

use super::super::schema::{Block, COUNT, I32, I64, NUM, SIZE, TEXTS, Type, block, opt, req};

pub(super) const BACKEND: Block = block(&[
    req("version", Type::Version),
    req("type", Type::Choice(&["QnnHtp", "QnnGenAiTransformer", "GTE", "QnnGpu", "libtorch"])),
    opt("extensions", Type::Either(&[Type::Text, TEXTS])),
    opt("device", Type::Text),
    opt("QnnHtp", Type::Block(&HTP)),
    opt("QnnGenAiTransformer", Type::Block(&GENAI_TRANSFORMER)),
    opt("GTE", Type::Block(&GTE)),
    opt("QnnGpu", Type::Block(&GPU)),
]);

const HTP: Block = block(&[
    req("version", Type::Version),
    req("spill-fill-bufsize", COUNT),
    req("mmap-budget", COUNT),
    req("use-mmap", Type::Bool),
    req("cpu-mask", Type::Text),
    req("poll", Type::Bool),
    opt("pos-id-dim", I64),
    opt("kv-dim", I32),
    opt("rope-theta", NUM),
    opt("batch-size", SIZE),
    opt("batch-multiplier", SIZE),
    opt("allow-async-init", Type::Bool),
    opt("allow-async-enqueue", Type::Bool),
    opt("shared-engine", Type::Bool),
    opt("enable-graph-switching", Type::Bool),
    opt("graph-switching-lora-policy", Type::Choice(&["lazy", "eager"])),
    opt("graph-retention-order", TEXTS),
    opt("weight-shared-lora", Type::Bool),
    opt("skip-lora-validation", Type::Bool),
    opt("multi-nsp-prefill", Type::Bool),
    opt("execute-select-graphs", TEXTS),
    opt("kv-update-method", Type::Text),
    opt("data-alignment-size", SIZE),
    opt("direct-io", Type::Bool),
]);

const ACTIVATION: Type = Type::Choice(&["FP16", "FP32"]);

const GENAI_TRANSFORMER: Block = block(&[
    req("version", Type::Version),
    opt("use-mmap", Type::Bool),
    opt("activation", ACTIVATION),
    opt("kv-quantization", Type::Bool),
    opt("n-logits", SIZE),
    opt("n-layer", SIZE),
    opt("n-embd", SIZE),
    opt("n-heads", SIZE),
    opt("n-kv-heads", SIZE),
    opt("model-input", Type::Text),
    opt("shared-engine", Type::Bool),
]);

const GTE: Block = block(&[
    req("version", Type::Version),
    opt("use-mmap", Type::Bool),
    opt("activation", ACTIVATION),
    opt("kv-quantization", Type::Bool),
    opt("n-logits", SIZE),
    opt("model-input", Type::Text),
    opt("shared-engine", Type::Bool),
]);

const GPU: Block = block(&[req("version", Type::Version), opt("shared-engine", Type::Bool)]);
