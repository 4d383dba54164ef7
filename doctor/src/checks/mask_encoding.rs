//! The encoding of a quantised mask: its greatest code must be the number 0.

use genie_types::{Dtype, Quant};
use nsp_graph::names::ATTENTION_MASK;

use super::facts;
use crate::{Case, Findings, Rule, Severity};

/// The greatest code is another number.
pub const RULE: Rule = Rule {
    id: "mask-encoding",
    severity: Severity::Error,
    title: "a quantised mask whose greatest code is not 0",
    why: "Genie writes the greatest code for what is visible whatever the encoding says; the graph then adds that number \
          to the scores, or hides nothing: silent nonsense",
    cure: "quantise the mask with the offset -65535 (uint16) or -255 (uint8), and its lowest number as scale times that",
};

/// Every mask of every graph; the first of a binary is told.
pub fn check(case: &Case, found: &mut Findings) {
    let mut told: Vec<String> = Vec::new();
    for mask in facts::inputs(case, |name| name.ends_with(ATTENTION_MASK)) {
        let greatest = match mask.tensor.dtype {
            Dtype::UFixed8 => i64::from(u8::MAX),
            Dtype::UFixed16 => i64::from(u16::MAX),
            _ => continue,
        };
        let what = match &mask.tensor.quant {
            Quant::PerTensor { scale, offset } if greatest + i64::from(*offset) == 0 && *scale > 0.0 => continue,
            Quant::PerTensor { scale, offset } => {
                let number = (greatest + i64::from(*offset)) as f64 * f64::from(*scale);
                format!("`{}` has scale {scale:e} and offset {offset}: code {greatest} is {number}", mask.tensor.name)
            }
            _ => format!("`{}` is {} without scale and offset", mask.tensor.name, mask.tensor.dtype),
        };
        if !told.contains(&mask.binary) {
            found.add(&RULE, mask.at(), what);
            told.push(mask.binary.clone());
        }
    }
}
