//! Names of projections that lie in one tensor in some families.

/// Names of tensors that hold several projections, and of those, in the order of their rows.
pub(crate) const FUSED: [(&str, &[&str]); 2] = [
    ("self_attn.qkv_proj", &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
    ("mlp.gate_up_proj", &["mlp.gate_proj", "mlp.up_proj"]),
];

/// The tensor that a projection of that name is a part of.
pub(crate) fn fused_name(name: &str) -> Option<String> {
    let part = |(whole, parts): &(&str, &[&str])| {
        let part = parts.iter().find(|part| name.contains(&format!(".{part}.")))?;
        Some(name.replace(part, whole))
    };
    FUSED.iter().find_map(part)
}

#[cfg(test)]
mod tests {
    use super::fused_name;

    #[test]
    fn parts_are_known_by_name() {
        let name = |part: &str| fused_name(&format!("model.layers.3.{part}.weight"));
        assert_eq!(name("self_attn.k_proj").as_deref(), Some("model.layers.3.self_attn.qkv_proj.weight"));
        assert_eq!(name("mlp.up_proj").as_deref(), Some("model.layers.3.mlp.gate_up_proj.weight"));
        assert_eq!(name("mlp.down_proj"), None);
    }
}
