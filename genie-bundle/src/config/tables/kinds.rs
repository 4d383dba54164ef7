//! The blocks of the dialog kinds beyond `basic`.

use super::super::schema::{Block, COUNT, I64, NUM, POSITIVE, SIZE, Type, block, opt, req};

pub(super) const SSD_Q1: Block = block(&[
    req("version", Type::Version),
    req("ssd-version", I64),
    req("forecast-token-count", SIZE),
    req("branches", Type::List(&I64, 0)),
    req("forecast-prefix", I64),
    req("forecast-prefix-name", Type::Text),
    opt("branch-mode", Type::Choice(&["top-1", "all-expand"])),
    opt("prefix-quant", COUNT),
    opt("n-streams", I64),
    opt("p-threshold", NUM),
]);

pub(super) const LADE: Block = block(&[
    req("version", Type::Version),
    opt("update-mode", Type::Choice(&["FWD_MAX_HIT", "FWD_LEVEL", "ALWAYS_FWD_ONE"])),
    opt("window", I64),
    opt("ngram", I64),
    opt("gcap", I64),
]);

pub(super) const SPD: Block = block(&[req("version", Type::Version), req("draft-len", I64)]);

pub(super) const MULTISTREAM: Block =
    block(&[req("version", Type::Version), req("n-streams", I64), opt("p-threshold", NUM)]);

pub(super) const EAGLET: Block = block(&[
    req("version", Type::Version),
    req("eaglet-version", I64),
    req("draft-len", POSITIVE),
    req("n-branches", POSITIVE),
    req("max-tokens-target-can-evaluate", POSITIVE),
    req("draft-kv-cache", Type::Bool),
    opt("enable-early-stop", Type::Bool),
    opt("entropy-threshold", NUM),
    opt("min-draft-levels", I64),
    opt("prepend-accepted-tokens", Type::Bool),
]);

pub(super) const KV_SHARE: Block =
    block(&[opt("version", Type::Version), opt("enable-in-memory-kv-share", Type::Bool)]);
