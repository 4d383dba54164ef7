//! The names of the contract: tensors by what they carry, cache tensors, graphs.
//!
//! *Source*: libGenie's contract, as measured (names are free only for graphs and for tensors between splits).

use genie_types::KvKind;

/// Token ids, `[1, AR]` int32.
pub const INPUT_IDS: &str = "input_ids";
/// Token embeddings in place of ids, `[1, AR, width]`.
pub const INPUTS_EMBEDS: &str = "inputs_embeds";
/// Mask of the default cache group, `[1, 1, AR, CL]` or `[1, AR, CL]`; other groups put their prefix before it.
pub const ATTENTION_MASK: &str = "attention_mask";
/// Cosines of the rows' rotary angles, `[1, 1, AR, rope_dim]` or `[1, AR, rope_dim]`; a second table puts its prefix before it.
pub const POSITION_COS: &str = "position_ids_cos";
/// Sines of the rows' rotary angles, shaped like the cosines.
pub const POSITION_SIN: &str = "position_ids_sin";
/// Absolute positions, `[1, AR]` int32, or distances to the keys, `[1, 1, AR, CL]` int32.
pub const POSITION_IDS: &str = "position_ids";
/// First cache slot that a scatter graph writes, `[1]` int32, or the slot of each row, `[AR]`; other groups put their
/// prefix before it.
pub const CACHE_INDEX: &str = "cache_index";
/// Strength of a LoRA adapter whose weights are in the graph, a number; names that begin so are such inputs, and others that
/// the configuration names.
pub const LORA_ALPHA: &str = "lora_alpha";
/// The logits, `[1, AR, vocab]`.
pub const LOGITS: &str = "logits";
/// The hidden states behind the last layer, `[1, AR, width]`: what a model gives to one that drafts for it.
pub const LAST_HIDDEN_STATES: &str = "last_hidden_states";
/// The same as an input of the model that drafts: for each token those of the token before it, `[1, AR, width]`.
pub const TARGET_HIDDEN_STATES: &str = "target_hidden_states";
/// Prefix of the default cache group.
pub const DEFAULT_GROUP: &str = "past_";
/// Running anchor of a layer's keys, `[heads, 1, head_dim, 1]`, between this and `_in` or `_out` the layer's number. What comes
/// out is the next step's input; a network that scores keys takes it.
pub const ANCHOR: &str = "anchor_buffer_";
/// An image, the input by which an image encoder is known.
pub const PIXEL_VALUES: &str = "pixel_values";

/// True for an input that holds a weight rather than something of the step: libGenie fills an LM head's `weight` inputs from
/// files.
pub fn is_weight(name: &str) -> bool {
    name.contains("weight")
}

/// The parts of `past_{key,value}[_scale]_{layer}[_h{head}]_{in,out}`, with any group's prefix in place of `past_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvName<'a> {
    /// Prefix of the cache group, underscore included.
    pub prefix: &'a str,
    /// Key, value, or the scales of one.
    pub kind: KvKind,
    /// Layer, counted over the whole model.
    pub layer: usize,
    /// The single head that the tensor holds, if it says so.
    pub head: Option<usize>,
    /// True for `_in` (the past), false for `_out` (the new rows).
    pub is_input: bool,
}

/// Layer of an anchor's name, and whether it is the input; `None` for other names.
pub fn anchor(name: &str) -> Option<(usize, bool)> {
    let rest = name.strip_prefix(ANCHOR)?;
    let input = rest.strip_suffix("_in").map(|layer| (layer, true));
    let (layer, is_input) = input.or_else(|| Some((rest.strip_suffix("_out")?, false)))?;
    Some((number(layer)?, is_input))
}

/// The prefix of a rotary table's cosines or sines, and whether they are the sines; `None` for other names.
pub fn rope_prefix(name: &str) -> Option<(&str, bool)> {
    let cos = name.strip_suffix(POSITION_COS).map(|prefix| (prefix, false));
    let found = cos.or_else(|| name.strip_suffix(POSITION_SIN).map(|prefix| (prefix, true)));
    found.filter(|(prefix, _)| prefix.is_empty() || prefix.ends_with('_'))
}

impl<'a> KvName<'a> {
    /// `None` if the name is not a cache tensor's.
    pub fn parse(name: &'a str) -> Option<Self> {
        let (rest, is_input) = match name.strip_suffix("_in") {
            Some(rest) => (rest, true),
            None => (name.strip_suffix("_out")?, false),
        };
        let (mut rest, mut last) = rest.rsplit_once('_')?;
        let head = last.strip_prefix('h').and_then(number);
        if head.is_some() {
            (rest, last) = rest.rsplit_once('_')?;
        }
        let layer = number(last)?;
        let named = |kind: KvKind| rest.strip_suffix(kind.name()).map(|prefix| (prefix, kind));
        let (prefix, kind) = KvKind::ALL.into_iter().find_map(named)?;
        prefix.ends_with('_').then_some(Self { prefix, kind, layer, head, is_input })
    }
}

impl core::fmt::Display for KvName<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}{}_{}", self.prefix, self.kind.name(), self.layer)?;
        if let Some(head) = self.head {
            write!(f, "_h{head}")?;
        }
        f.write_str(if self.is_input { "_in" } else { "_out" })
    }
}

/// The parts of `[prefix_]ar{n}_cl{m}_{i}_of_{k}`, each where it is present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphName {
    /// `n` of `ar{n}`.
    pub ar: Option<u32>,
    /// `m` of `cl{m}`.
    pub cl: Option<u32>,
    /// `(i, k)` of `_{i}_of_{k}`, with `1 <= i <= k`.
    pub split: Option<(usize, usize)>,
}

impl GraphName {
    /// Takes what there is; a free name gives none of it.
    pub fn parse(name: &str) -> Self {
        let words: Vec<&str> = name.split('_').collect();
        let width = |prefix: &str| {
            let number = |w: &&str| w.strip_prefix(prefix).and_then(number).and_then(|n| u32::try_from(n).ok());
            words.iter().find_map(number).filter(|&n| n > 0)
        };
        let split = words.windows(3).rev().find(|w| w[1] == "of").and_then(|w| Some((number(w[0])?, number(w[2])?)));
        Self { ar: width("ar"), cl: width("cl"), split: split.filter(|(i, k)| (1..=*k).contains(i)) }
    }
}

/// Digits only: no sign, no blank, no overflow.
fn number(digits: &str) -> Option<usize> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) { None } else { digits.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_names() {
        type Parts<'a> = (&'a str, KvKind, usize, Option<usize>, bool);
        let cases: &[(&str, Option<Parts<'_>>)] = &[
            ("past_key_0_in", Some(("past_", KvKind::Key, 0, None, true))),
            ("past_value_31_out", Some(("past_", KvKind::Value, 31, None, false))),
            ("past_key_0_h1_in", Some(("past_", KvKind::Key, 0, Some(1), true))),
            ("past_key_scale_0_in", Some(("past_", KvKind::KeyScale, 0, None, true))),
            ("swa_value_scale_7_out", Some(("swa_", KvKind::ValueScale, 7, None, false))),
            ("swa_value_7_h12_out", Some(("swa_", KvKind::Value, 7, Some(12), false))),
            ("layer3_past_key_3_in", Some(("layer3_past_", KvKind::Key, 3, None, true))),
            ("past_key_in", None),
            ("past_key_x_in", None),
            ("past_key_-1_in", None),
            ("past_key_0", None),
            ("key_0_in", None),
            ("monkey_0_in", None),
            ("past_key_99999999999999999999999_in", None),
            ("past_key_0_h_in", None),
            ("attention_mask", None),
            ("_in", None),
            ("", None),
        ];
        for (name, want) in cases {
            let got = KvName::parse(name).map(|k| (k.prefix, k.kind, k.layer, k.head, k.is_input));
            assert_eq!(got, *want, "{name}");
            assert!(KvName::parse(name).is_none_or(|k| k.to_string() == *name), "{name} is written as it is read");
        }
    }

    #[test]
    fn names_of_anchors() {
        let cases = [
            ("anchor_buffer_0_in", Some((0, true))),
            ("anchor_buffer_31_out", Some((31, false))),
            ("anchor_buffer_0", None),
            ("anchor_buffer_x_in", None),
            ("anchor_0_in", None),
        ];
        for (name, want) in cases {
            assert_eq!(anchor(name), want, "{name}");
        }
    }

    #[test]
    fn names_of_weights() {
        assert!(["lm_head_weight", "weight", "model.lm_head.weight"].iter().all(|name| is_weight(name)));
        assert!(!["hidden_0", "logits", "attention_mask", "cache_index"].iter().any(|name| is_weight(name)));
    }

    #[test]
    fn names_of_rotary_tables() {
        let cases = [
            ("position_ids_cos", Some(("", false))),
            ("position_ids_sin", Some(("", true))),
            ("local_position_ids_sin", Some(("local_", true))),
            ("xposition_ids_cos", None),
            ("position_ids_cos_1", None),
            ("position_ids", None),
        ];
        for (name, want) in cases {
            assert_eq!(rope_prefix(name), want, "{name}");
        }
    }

    #[test]
    fn graph_names() {
        type Parts = (Option<u32>, Option<u32>, Option<(usize, usize)>);
        let cases: &[(&str, Parts)] = &[
            ("ar1_cl128_2_of_2", (Some(1), Some(128), Some((2, 2)))),
            ("prompt_ar128_cl4096_1_of_5", (Some(128), Some(4096), Some((1, 5)))),
            ("llama_3_2_ar32_cl512_3_of_4", (Some(32), Some(512), Some((3, 4)))),
            ("token_1_of_3", (None, None, Some((1, 3)))),
            ("prefill", (None, None, None)),
            ("ar_cl_of", (None, None, None)),
            ("ar0_cl128_0_of_2", (None, Some(128), None)),
            ("ar1_cl128_3_of_2", (Some(1), Some(128), None)),
            ("", (None, None, None)),
        ];
        for (name, want) in cases {
            let got = GraphName::parse(name);
            assert_eq!((got.ar, got.cl, got.split), *want, "{name}");
        }
    }
}
