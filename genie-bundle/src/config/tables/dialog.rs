//! The `dialog` block with its context, sampler, tokenizer, embeddings and debug.

use super::super::schema::{Block, I32, I64, NUM, SIZE, TEXTS, Type, U32, block, opt, req};
use super::{engine, kinds};

pub(super) const DIALOG: Block = block(&[
    req("version", Type::Version),
    req("type", Type::Choice(&["basic", "ssd-q1", "lade", "spd", "multistream", "eaglet", "kv-share"])),
    req("context", Type::Block(&CONTEXT)),
    req("tokenizer", Type::Block(&TOKENIZER)),
    req("engine", Type::Either(&[Type::Block(&engine::ENGINE), Type::List(&Type::Block(&engine::ENGINE), 1)])),
    opt("sampler", Type::Block(&SAMPLER)),
    opt("stop-sequence", TEXTS),
    opt("max-num-tokens", U32),
    opt("ssd-q1", Type::Block(&kinds::SSD_Q1)),
    opt("lade", Type::Block(&kinds::LADE)),
    opt("spd", Type::Block(&kinds::SPD)),
    opt("multistream", Type::Block(&kinds::MULTISTREAM)),
    opt("eaglet", Type::Block(&kinds::EAGLET)),
    opt("kv-share", Type::Block(&kinds::KV_SHARE)),
    opt("harmony", Type::Block(&HARMONY)),
    opt("embedding", Type::Block(&TOKEN_EMBEDDING)),
    opt("perlayer-embedding", Type::Tagged(&[("multi-ple-lut", &MULTI_PLE_LUT)], &TOKEN_EMBEDDING)),
    opt("debug", Type::Block(&DEBUG)),
    opt("accumulator-size", Type::Any),
    opt("callback-type", Type::Any),
    opt("nested-generator", Type::Any),
    opt("nested-generator-config-path", Type::Text),
    opt("nested-policy", Type::Any),
]);

const CONTEXT: Block = block(&[
    req("version", Type::Version),
    req("bos-token", I32),
    req("eos-token", Type::Either(&[I32, Type::List(&I32, 1)])),
    req("size", SIZE),
    req("n-vocab", SIZE),
    opt("draft-n-vocab", SIZE),
    opt("eot-token", I32),
    opt("img-token", I32),
    opt("pad-token", I32),
    opt("n-embd", SIZE),
    opt("embedding-length", I32),
    opt("grammar", Type::Block(&GRAMMAR)),
]);

const GRAMMAR: Block = block(&[
    opt("version", Type::Version),
    opt("backend", Type::Choice(&["xgrammar", ""])),
    opt("type", Type::Choice(&["json-schema", "regex", "ebnf"])),
    opt("file", Type::Text),
    opt("tokenizer-json", Type::Text),
]);

const SAMPLER: Block = block(&[
    req("version", Type::Version),
    opt("type", Type::Choice(&["basic", "custom"])),
    opt("callback-name", Type::Text),
    opt("seed", I32),
    opt("temp", Type::Num(0.0, f32::MAX as f64)),
    opt("top-k", U32),
    opt("top-p", Type::Num(0.0, 1.0)),
    opt("greedy", Type::Bool),
    opt("token-penalty", Type::Block(&TOKEN_PENALTY)),
]);

const F32: Type = Type::Num(f32::MIN as f64, f32::MAX as f64);

const TOKEN_PENALTY: Block = block(&[
    opt("version", Type::Version),
    opt("penalize-last-n", Type::Int(0, i32::MAX as i128)),
    opt("repetition-penalty", Type::Between(0.0, f64::INFINITY)),
    opt("presence-penalty", F32),
    opt("frequency-penalty", F32),
]);

pub(super) const TOKENIZER: Block = block(&[req("version", Type::Version), req("path", Type::NonEmpty)]);

const HARMONY: Block = block(&[
    opt("version", Type::Version),
    opt("type", Type::Text),
    opt("chat-format", Type::Choice(&["none", "harmony-gpt-oss"])),
    opt("reasoning-format", Type::Choice(&["none", "json-formatted"])),
    opt("tokenizer-vocab-path", Type::Text),
]);

const DATATYPES: Type =
    Type::Choice(&["float32", "native", "ufixed2", "ufixed4", "ufixed8", "ufixed16", "sfixed8", "sfixed16"]);

const TOKEN_EMBEDDING: Block = block(&[
    req("version", Type::Version),
    req("size", SIZE),
    opt("type", Type::Choice(&["lut", "callback"])),
    opt("lut-path", Type::Text),
    opt("datatype", DATATYPES),
    opt("quant-param", Type::Block(&QUANT_PARAM)),
]);

const NUMBER_OR_PATH: Type = Type::Either(&[NUM, Type::Text, Type::Block(&PATH)]);
const PATH: Block = block(&[req("path", Type::Text)]);

const QUANT_PARAM: Block = block(&[
    opt("version", Type::Version),
    opt("type", Type::Choice(&["pcq"])),
    req("scale", NUMBER_OR_PATH),
    req("offset", NUMBER_OR_PATH),
]);

const MULTI_PLE_LUT: Block = block(&[
    req("version", Type::Version),
    req("type", Type::Choice(&["multi-ple-lut"])),
    req("num-tables", I64),
    req("ple-size", I64),
    req("lut-path", Type::Text),
    req("quant-param", Type::AnyBlock),
    opt("datatype", Type::Text),
]);

const DEBUG: Block = block(&[
    opt("version", Type::Version),
    opt("path", Type::Text),
    opt("dump-tensors", Type::Bool),
    opt("dump-specs", Type::Bool),
    opt("dump-outputs", Type::Bool),
    opt("dump-start", U32),
    opt("dump-end", U32),
]);
