//! Names of projections that lie in one tensor in some families.

/// A tensor that holds several projections, and those, in the order of their rows.
pub(crate) type Fused = (&'static str, &'static [&'static str]);

/// Q, K and V.
pub(crate) const QKV: Fused = ("self_attn.qkv_proj", &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]);
/// The two inputs of the feed-forward part.
pub(crate) const GATE_UP: Fused = ("mlp.gate_up_proj", &["mlp.gate_proj", "mlp.up_proj"]);

/// The tensor that a projection of that name is a part of, in a family that has these.
pub(crate) fn fused_name(name: &str, fused: &[Fused]) -> Option<String> {
    let part = |(whole, parts): &Fused| {
        let part = parts.iter().find(|part| name.contains(&format!(".{part}.")))?;
        Some(name.replace(part, whole))
    };
    fused.iter().find_map(part)
}

#[cfg(test)]
mod tests {
    use super::{GATE_UP, QKV, fused_name};

    #[test]
    fn parts_are_known_by_name() {
        let name = |part: &str| fused_name(&format!("model.layers.3.{part}.weight"), &[QKV, GATE_UP]);
        assert_eq!(name("self_attn.k_proj").as_deref(), Some("model.layers.3.self_attn.qkv_proj.weight"));
        assert_eq!(name("mlp.up_proj").as_deref(), Some("model.layers.3.mlp.gate_up_proj.weight"));
        assert_eq!(name("mlp.down_proj"), None);
        assert_eq!(fused_name("model.layers.3.mlp.up_proj.weight", &[QKV]), None);
    }
}
