//! Tensor names of llama.cpp's converters as Hugging Face writes them, which the rest of the compiler uses.

/// The part of a layer: its name there, and here.
const PARTS: [(&str, &str); 18] = [
    ("attn_norm.weight", "input_layernorm.weight"),
    ("attn_q.weight", "self_attn.q_proj.weight"),
    ("attn_q.bias", "self_attn.q_proj.bias"),
    ("attn_k.weight", "self_attn.k_proj.weight"),
    ("attn_k.bias", "self_attn.k_proj.bias"),
    ("attn_v.weight", "self_attn.v_proj.weight"),
    ("attn_v.bias", "self_attn.v_proj.bias"),
    ("attn_q_norm.weight", "self_attn.q_norm.weight"),
    ("attn_k_norm.weight", "self_attn.k_norm.weight"),
    ("attn_output.weight", "self_attn.o_proj.weight"),
    ("attn_output.bias", "self_attn.o_proj.bias"),
    ("ffn_norm.weight", "post_attention_layernorm.weight"),
    ("ffn_gate.weight", "mlp.gate_proj.weight"),
    ("ffn_gate.bias", "mlp.gate_proj.bias"),
    ("ffn_up.weight", "mlp.up_proj.weight"),
    ("ffn_up.bias", "mlp.up_proj.bias"),
    ("ffn_down.weight", "mlp.down_proj.weight"),
    ("ffn_down.bias", "mlp.down_proj.bias"),
];

/// Hugging Face's name; `None` for tensors that no supported model has.
pub(crate) fn hugging_face_name(name: &str) -> Option<String> {
    match name {
        "token_embd.weight" => return Some("model.embed_tokens.weight".into()),
        "output_norm.weight" => return Some("model.norm.weight".into()),
        "output.weight" => return Some("lm_head.weight".into()),
        _ => {}
    }
    let (layer, part) = name.strip_prefix("blk.")?.split_once('.')?;
    // `blk.01` and `blk.+1` are other names than `blk.1`.
    let layer = layer.parse::<usize>().ok().filter(|n| n.to_string() == layer)?;
    let (_, ours) = PARTS.iter().find(|(theirs, _)| *theirs == part)?;
    Some(format!("model.layers.{layer}.{ours}"))
}

/// llama.cpp's name of a tensor that Hugging Face calls `name`: the inverse of [`hugging_face_name`].
pub(crate) fn gguf_name(name: &str) -> Option<String> {
    match name {
        "model.embed_tokens.weight" => return Some("token_embd.weight".into()),
        "model.norm.weight" => return Some("output_norm.weight".into()),
        "lm_head.weight" => return Some("output.weight".into()),
        _ => {}
    }
    let (layer, part) = name.strip_prefix("model.layers.")?.split_once('.')?;
    let (theirs, _) = PARTS.iter().find(|(_, ours)| *ours == part)?;
    Some(format!("blk.{layer}.{theirs}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_translated_and_unknown_ones_are_not() {
        let name = |n| hugging_face_name(n);
        assert_eq!(name("blk.12.attn_q.bias").as_deref(), Some("model.layers.12.self_attn.q_proj.bias"));
        assert_eq!(name("blk.0.ffn_down.weight").as_deref(), Some("model.layers.0.mlp.down_proj.weight"));
        assert_eq!(name("output.weight").as_deref(), Some("lm_head.weight"));
        for theirs in
            ["token_embd.weight", "output_norm.weight", "output.weight", "blk.3.ffn_norm.weight", "blk.0.attn_q.bias"]
        {
            assert_eq!(gguf_name(&name(theirs).unwrap()).as_deref(), Some(theirs));
        }
        for unknown in [
            "rope_freqs.weight",
            "blk.x.attn_q.weight",
            "blk.1.ffn_gate_exps.weight",
            "blk.1",
            "blk.01.attn_q.weight",
            "blk.+1.attn_q.weight",
        ] {
            assert_eq!(name(unknown), None, "{unknown}");
        }
    }
}
