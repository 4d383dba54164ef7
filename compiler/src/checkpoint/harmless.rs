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
const ROPE_FREQS: &str = "rope_freqs.weight";

/// True for tensors that a model can do without.
pub(crate) fn is_harmless(name: &str) -> bool {
    name == ROPE_FREQS || HARMLESS.iter().any(|end| name.ends_with(end))
}
