//! Checks of tensor encodings that must agree: masks, cache rows, position tables.

use std::collections::BTreeMap;

use genie_types::TensorInfo;
use genie_types::{Dtype, Quant};
use nsp_graph::names::ATTENTION_MASK;
use nsp_graph::names::KvName;
use nsp_graph::names::{POSITION_COS, POSITION_SIN};

use super::{Check, tensors};
use crate::{Facts, Findings, Fix, Rule, Severity};

/// The checks, in the order of the report.
pub(super) const CHECKS: &[Check] = &[
    Check { rules: &[&MASK_ENCODING], run: mask_encoding },
    Check { rules: &[&KV_ENCODING], run: kv_encoding },
    Check { rules: &[&POSITION_ENCODING], run: position_encoding },
];

const MASK_ENCODING: Rule = Rule {
    id: "mask-encoding",
    severity: Severity::Error,
    title: "a quantised mask whose largest quantised value is not 0",
    why: "libGenie writes the largest quantised value for visible cells whatever the encoding; the graph then adds \
        that number to the scores, or masks nothing: wrong text without an error",
    fix: Fix::Text(
        "quantise the mask with offset -65535 (uint16) or -255 (uint8), and its lowest number as scale \
        times that",
    ),
};

/// Each mask; reports the first of each binary.
fn mask_encoding(facts: &Facts, found: &mut Findings) {
    let mut reported: Vec<String> = Vec::new();
    for mask in tensors::inputs(facts, |name| name.ends_with(ATTENTION_MASK)) {
        let largest = match mask.tensor.dtype {
            Dtype::UFixed8 => i64::from(u8::MAX),
            Dtype::UFixed16 => i64::from(u16::MAX),
            _ => continue,
        };
        let what = match &mask.tensor.quant {
            Quant::PerTensor { scale, offset } if largest + i64::from(*offset) == 0 && *scale > 0.0 => continue,
            Quant::PerTensor { scale, offset } => {
                let number = (largest + i64::from(*offset)) as f64 * f64::from(*scale);
                format!(
                    "`{}` has scale {scale:e} and offset {offset}: quantised value {largest} is {number}",
                    mask.tensor.name
                )
            }
            _ => format!("`{}` is {} without scale and offset", mask.tensor.name, mask.tensor.dtype),
        };
        if !reported.contains(&mask.binary) {
            found.add(&MASK_ENCODING, mask.at(), what);
            reported.push(mask.binary.clone());
        }
    }
}

pub(super) const KV_ENCODING: Rule = Rule {
    id: "kv-encoding",
    severity: Severity::Error,
    title: "a cache tensor that is encoded differently in and out, or in two graphs",
    why: "rows are copied byte by byte, so their values change: wrong text without an error",
    fix: Fix::Text("give both the same type, scale and offset when the model is quantised"),
};

/// Each cache tensor against its first occurrence; reports the first difference and the number of others.
fn kv_encoding(facts: &Facts, found: &mut Findings) {
    let mut first: BTreeMap<String, tensors::Tensor<'_>> = BTreeMap::new();
    let mut breaches: Vec<(String, String)> = Vec::new();
    let all = tensors::inputs(facts, |name| KvName::parse(name).is_some())
        .chain(tensors::outputs(facts, |name| KvName::parse(name).is_some()));
    for tensor in all {
        let name = tensor.tensor.name.as_str();
        let row = name.strip_suffix("_in").or_else(|| name.strip_suffix("_out")).unwrap_or(name).to_owned();
        let Some(known) = first.get(&row) else {
            first.insert(row, tensor);
            continue;
        };
        if encoding(known.tensor) != encoding(tensor.tensor) {
            let what = format!(
                "`{}` is {}, but `{}` of `{}` is {}",
                name,
                tensors::encoding_words(tensor.tensor),
                known.tensor.name,
                known.graph,
                tensors::encoding_words(known.tensor)
            );
            breaches.push((tensor.at(), what));
        }
    }
    let more = breaches.len().saturating_sub(1);
    if let Some((at, what)) = breaches.into_iter().next() {
        let what = if more == 0 { what } else { format!("{what}; {more} more") };
        found.add(&KV_ENCODING, at, what);
    }
}

fn encoding(t: &TensorInfo) -> (genie_types::Dtype, &genie_types::Quant, genie_types::DataFormat) {
    (t.dtype, &t.quant, t.format)
}

pub(super) const POSITION_ENCODING: Rule = Rule {
    id: "position-encoding",
    severity: Severity::Error,
    title: "`position_ids_cos` and `position_ids_sin` are encoded differently, or differently in two graphs",
    why: "the table is made once with one encoding, so the other tensor gets wrong values: wrong text without an error",
    fix: Fix::Text("give both the same type, scale and offset in all graphs"),
};

/// Each cos and sin tensor against the first.
fn position_encoding(facts: &Facts, found: &mut Findings) {
    let mut all = tensors::inputs(facts, |name| name == POSITION_COS || name == POSITION_SIN);
    let Some(first) = all.next() else { return };
    let differs =
        |t: &tensors::Tensor<'_>| (t.tensor.dtype, &t.tensor.quant) != (first.tensor.dtype, &first.tensor.quant);
    if let Some(other) = all.find(differs) {
        let what = format!(
            "`{}` is {}, but `{}` of `{}` is {}",
            other.tensor.name,
            tensors::encoding_words(other.tensor),
            first.tensor.name,
            first.graph,
            tensors::encoding_words(first.tensor)
        );
        found.add(&POSITION_ENCODING, other.at(), what);
    }
}
