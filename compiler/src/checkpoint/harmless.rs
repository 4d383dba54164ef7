//! Tensors that some files have and no model takes.

/// Ends of names of tensors that older exporters wrote beside the weights: rotary tables, and constants of the causal mask.
const HARMLESS: [&str; 5] = [
    ".rotary_emb.inv_freq",
    ".rotary_emb.cos_cached",
    ".rotary_emb.sin_cached",
    ".self_attn.masked_bias",
    // The first of these in a GGUF file.
    ".attn_rot_embd.weight",
];

/// Read as part of the configuration of a GGUF file.
const DIVISORS: [&str; 3] = ["rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"];

/// True for tensors that a model can do without.
pub(crate) fn is_harmless(name: &str) -> bool {
    DIVISORS.contains(&name) || HARMLESS.iter().any(|end| name.ends_with(end))
}
