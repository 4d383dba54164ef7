//! Tensor names of llama.cpp's converters as Hugging Face writes them, which the rest of the compiler uses.

use crate::family::{Family, Fused, GATE_UP, NormPlace, QKV, fused_name};

/// Parts of a layer that all families call so: their name there, and here.
const PARTS: [(&str, &str); 9] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_down", "mlp.down_proj"),
];
/// Projections that families may have in one tensor: what that is called, and what the last of them is called where it is apart.
const FUSED: [(Fused, &str, Option<&str>); 2] = [(QKV, "attn_qkv", None), (GATE_UP, "ffn_up", Some("mlp.up_proj"))];
/// Norms, by where a layer has them.
const BEFORE: [(&str, &str); 1] = [("ffn_norm", "post_attention_layernorm")];
const AFTER: [(&str, &str); 2] =
    [("post_attention_norm", "post_attention_layernorm"), ("post_ffw_norm", "post_feedforward_layernorm")];
const BOTH: [(&str, &str); 3] = [AFTER[0], AFTER[1], ("ffn_norm", "pre_feedforward_layernorm")];
/// Tensors outside of layers.
const OUTER: [(&str, &str); 3] =
    [("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];
/// The table of positions, of families that have one.
const POSITIONS: (&str, &str) = ("position_embd", "model.position_embeddings");

/// Those of a family.
fn outer(family: Family) -> impl Iterator<Item = (&'static str, &'static str)> {
    OUTER.into_iter().chain(family.info().learned_positions.then_some(POSITIONS))
}

/// All parts of a family's layers.
fn parts(family: Family) -> impl Iterator<Item = (&'static str, &'static str)> {
    let info = family.info();
    let norms: &[_] = match info.norm_place {
        NormPlace::Before => &BEFORE,
        NormPlace::After => &AFTER,
        NormPlace::Both => &BOTH,
    };
    let projections = FUSED.into_iter().filter_map(|(fused, theirs, apart)| {
        Some((theirs, if info.fused.contains(&fused) { fused.0 } else { apart? }))
    });
    PARTS.iter().chain(norms).copied().chain(projections)
}

/// A name without its end, and the end with its point.
fn cut(name: &str) -> Option<(&str, &str)> {
    let at = name.rfind('.')?;
    Some(name.split_at(at)).filter(|(_, end)| [".weight", ".bias"].contains(end))
}

/// Hugging Face's name; `None` for tensors that no model of the family has.
pub(crate) fn hugging_face_name(name: &str, family: Family) -> Option<String> {
    let (name, end) = cut(name)?;
    if let Some((_, ours)) = outer(family).find(|(theirs, _)| *theirs == name) {
        return Some(format!("{ours}{end}"));
    }
    let (layer, part) = name.strip_prefix("blk.")?.split_once('.')?;
    // `blk.01` and `blk.+1` are other names than `blk.1`.
    let layer = layer.parse::<usize>().ok().filter(|n| n.to_string() == layer)?;
    let (_, ours) = parts(family).find(|(theirs, _)| *theirs == part)?;
    Some(format!("model.layers.{layer}.{ours}{end}"))
}

/// llama.cpp's name of a tensor that Hugging Face calls `name`, or of the one that holds it: the inverse of [`hugging_face_name`].
pub(crate) fn gguf_name(name: &str, family: Family) -> Option<String> {
    let whole = fused_name(name, family.info().fused);
    let (name, end) = cut(whole.as_deref().unwrap_or(name))?;
    if let Some((theirs, _)) = outer(family).find(|(_, ours)| *ours == name) {
        return Some(format!("{theirs}{end}"));
    }
    let (layer, part) = name.strip_prefix("model.layers.")?.split_once('.')?;
    let (theirs, _) = parts(family).find(|(_, ours)| *ours == part)?;
    Some(format!("blk.{layer}.{theirs}{end}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_translated_and_unknown_ones_are_not() {
        let name = |n| hugging_face_name(n, Family::Llama);
        assert_eq!(name("blk.12.attn_q.bias").as_deref(), Some("model.layers.12.self_attn.q_proj.bias"));
        assert_eq!(name("blk.0.ffn_down.weight").as_deref(), Some("model.layers.0.mlp.down_proj.weight"));
        assert_eq!(name("output.weight").as_deref(), Some("lm_head.weight"));
        for theirs in
            ["token_embd.weight", "output_norm.weight", "output.weight", "blk.3.ffn_norm.weight", "blk.0.attn_q.bias"]
        {
            assert_eq!(gguf_name(&name(theirs).unwrap(), Family::Llama).as_deref(), Some(theirs));
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

    #[test]
    fn names_differ_by_family() {
        let of = |family, part: &str| {
            let theirs = format!("blk.7.{part}.weight");
            let ours = hugging_face_name(&theirs, family)?;
            assert_eq!(gguf_name(&ours, family).as_deref(), Some(&*theirs), "{family}");
            Some(ours.trim_start_matches("model.layers.7.").trim_end_matches(".weight").to_string())
        };
        let cases = [
            (Family::Llama, "ffn_norm", Some("post_attention_layernorm")),
            (Family::Llama, "post_ffw_norm", None),
            (Family::Llama, "attn_qkv", None),
            (Family::Olmo2, "post_attention_norm", Some("post_attention_layernorm")),
            (Family::Olmo2, "ffn_norm", None),
            (Family::Gemma2, "post_attention_norm", Some("post_attention_layernorm")),
            (Family::Gemma3, "ffn_norm", Some("pre_feedforward_layernorm")),
            (Family::Gemma3, "post_ffw_norm", Some("post_feedforward_layernorm")),
            (Family::Phi3, "attn_qkv", Some("self_attn.qkv_proj")),
            (Family::Phi3, "ffn_up", Some("mlp.gate_up_proj")),
        ];
        for (family, theirs, ours) in cases {
            assert_eq!(of(family, theirs).as_deref(), ours, "{family} {theirs}");
        }
        // A view of a tensor that holds several is called by the whole.
        let part = gguf_name("model.layers.0.mlp.gate_proj.weight", Family::Phi3);
        assert_eq!(part.as_deref(), Some("blk.0.ffn_up.weight"));
    }
}
