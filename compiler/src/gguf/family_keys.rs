//! Keys that only some families have: what they are in `config.json`, and which values an absent one stands for.
//!
//! *Traps*: an absent key may mean something else than in `config.json`. Gemma's score factor is no key at all: llama.cpp takes it
//! from the number of layers.
//! *Source*: the keys that llama.cpp's converter writes for these families, and the values that it loads without them.

use super::Metadata;
use super::config::ModelKeys;
use super::value::Value as Stored;
use crate::Result;
use crate::family::Family;
use serde_json::{Map, Value, json};

/// What entries depend on.
pub(super) struct Shape {
    pub(super) n_layers: u64,
    pub(super) hidden: u64,
    pub(super) n_heads: u64,
    pub(super) head_dim: u64,
    /// Elements of a head that are rotated.
    pub(super) rotated: u64,
}

const WINDOW: &str = "attention.sliding_window";
const PATTERN: &str = "attention.sliding_window_pattern";
const SCALE: &str = "attention.scale";
const ROTATED: &str = "rope.dimension_count";
const PARALLEL: &str = "use_parallel_residual";
const FINETUNED: &str = "rope.scaling.finetuned";
/// Base of the angles of Gemma 3's layers with a window, where there is no key.
const DEFAULT_LOCAL_BASE: f64 = 10_000.0;
/// Layers of the Gemma models whose scores go by the width of the residual stream over the heads.
const LARGE_GEMMA: [u64; 2] = [46, 62];

/// The family of a file whose name several have: OLMo 3 is OLMo 2 with windows.
pub(super) fn family(named: Family, meta: &Metadata) -> Result<Family> {
    if named != Family::Olmo2 {
        return Ok(named);
    }
    let window = meta.count(&format!("{}.{WINDOW}", named.gguf_name()))?;
    Ok(if window.is_some_and(|size| size > 0) { Family::Olmo3 } else { named })
}

/// Keys of a family that other families may not have with any value.
pub(super) const fn of(family: Family) -> &'static [&'static str] {
    match family {
        Family::Granite => &["logit_scale", "embedding_scale", "residual_scale", SCALE],
        Family::Gemma2 | Family::Gemma3 => &["attn_logit_softcapping", "final_logit_softcapping", WINDOW],
        Family::Phi3 | Family::Olmo3 => &[WINDOW],
        // Which form the layers have is seen by their tensors: the key is true in files of either form.
        Family::StableLm => &[PARALLEL],
        _ => &[],
    }
}

/// Elements of a head that are rotated.
pub(super) fn rotated(keys: &ModelKeys<'_>, head_dim: u64) -> Result<u64> {
    let in_part = matches!(keys.family, Family::Phi3 | Family::StableLm);
    match keys.meta.count(&keys.key(ROTATED))? {
        None => Ok(head_dim),
        Some(n) if n == head_dim || (in_part && n > 0 && n < head_dim && n.is_multiple_of(2)) => Ok(n),
        Some(_) if in_part => {
            Err(keys.refused(ROTATED, format!("an even number of at most {head_dim}, the width of a head")))
        }
        Some(_) => Err(keys.refused(ROTATED, format!("{head_dim}, the width of a head"))),
    }
}

/// The family's own entries of `config.json`.
pub(super) fn entries(keys: &ModelKeys<'_>, shape: &Shape) -> Result<Map<String, Value>> {
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| drop(out.insert(key.into(), value));
    // llama.cpp takes 0 as unset.
    let set = |key: &str| Ok::<_, crate::CompileError>(keys.decimal(key)?.filter(|x| *x != 0.0));
    match keys.family {
        Family::Granite => {
            put("logits_scaling", json!(keys.meta.required(&keys.key("logit_scale"), keys.decimal("logit_scale")?)?));
            put("embedding_multiplier", json!(set("embedding_scale")?.unwrap_or(1.0)));
            put("residual_multiplier", json!(set("residual_scale")?.unwrap_or(1.0)));
            put("attention_multiplier", json!(set(SCALE)?.unwrap_or_else(|| (shape.head_dim as f64).sqrt().recip())));
            if keys.meta.bool(&keys.key(FINETUNED))? == Some(false) {
                // There it says that positions are not rotated.
                return Err(keys.refused(FINETUNED, "true"));
            }
        }
        Family::Gemma2 | Family::Gemma3 => {
            let large = LARGE_GEMMA.contains(&shape.n_layers);
            // That there are heads is checked behind this.
            let width = shape.hidden.checked_div(shape.n_heads).filter(|_| large);
            put("query_pre_attn_scalar", json!(width.unwrap_or(shape.head_dim)));
            for (theirs, ours) in [
                ("attn_logit_softcapping", "attn_logit_softcapping"),
                ("final_logit_softcapping", "final_logit_softcapping"),
            ] {
                // 0 switches a cap off; without the key it is what it is without that of `config.json`.
                if let Some(cap) = keys.decimal(theirs)? {
                    put(ours, if cap == 0.0 { Value::Null } else { json!(cap) });
                }
            }
            window(keys, shape, &mut put)?;
        }
        Family::Phi3 | Family::Olmo3 => window(keys, shape, &mut put)?,
        Family::StableLm => drop(keys.meta.bool(&keys.key(PARALLEL))?),
        _ => {}
    }
    if matches!(keys.family, Family::Phi3 | Family::StableLm) {
        put("partial_rotary_factor", json!(part(shape)));
    }
    Ok(out)
}

/// Window, which layers have it, and the base of their positions.
fn window(keys: &ModelKeys<'_>, shape: &Shape, put: &mut impl FnMut(&str, Value)) -> Result<()> {
    let size = keys.meta.count(&keys.key(WINDOW))?;
    if keys.family == Family::Gemma3 {
        // Without one no layer would have positions of its own.
        if keys.meta.required(&keys.key(WINDOW), size)? == 0 {
            return Err(keys.refused(WINDOW, "a number above 0"));
        }
        let base = keys.number(super::rope::LOCAL_BASE)?.unwrap_or(DEFAULT_LOCAL_BASE);
        put("rope_local_base_freq", json!(base));
    }
    match size {
        Some(0) => put("sliding_window", Value::Null),
        Some(size) => put("sliding_window", json!(size)),
        None => {}
    }
    if keys.family == Family::Phi3 {
        return Ok(());
    }
    let key = keys.key(PATTERN);
    match keys.meta.get(&key) {
        None => {}
        Some(Stored::Numbers(list)) if list.bools().is_some_and(|list| list.len() as u64 == shape.n_layers) => {
            let kind = |local: bool| if local { "sliding_attention" } else { "full_attention" };
            put("layer_types", list.bools().into_iter().flatten().map(kind).collect());
        }
        Some(Stored::Int(n)) if *n > 0 => put("sliding_window_pattern", json!(keys.meta.count(&key)?)),
        Some(_) => {
            let expected = format!("a number above 0, or a truth value for each of the {} layers", shape.n_layers);
            return Err(keys.refused(PATTERN, expected));
        }
    }
    Ok(())
}

/// The rotated part of a head: a number of which the rotated elements are the whole part, whatever is lost by rounding.
fn part(shape: &Shape) -> f64 {
    let (rotated, whole) = (shape.rotated as f64, shape.head_dim as f64);
    let part = rotated / whole;
    if (whole * part) as u64 == shape.rotated { part } else { (rotated + 0.5) / whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_head_is_as_many_elements_as_it_was() {
        for head_dim in (2..=256).step_by(2) {
            for rotated in (2..=head_dim).step_by(2) {
                let part = part(&Shape { n_layers: 1, hidden: 1, n_heads: 1, head_dim, rotated });
                assert_eq!((head_dim as f64 * part) as u64, rotated, "{rotated} of {head_dim}");
                assert!(part <= 1.0);
            }
        }
    }
}
