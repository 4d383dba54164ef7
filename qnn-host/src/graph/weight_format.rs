//! In which formats the steps of linear layers read constant weights.

use super::typed::Constant;
use crate::ir::{Dtype, Quant};

/// Quantised values of a byte or two, with one scale for all rows or one for each.
pub(crate) fn is_quantised_by_row(dtype: Dtype, quant: &Quant) -> bool {
    let bytes = matches!(dtype, Dtype::SFixed8 | Dtype::UFixed8 | Dtype::SFixed16 | Dtype::UFixed16);
    bytes && matches!(quant, Quant::None | Quant::PerTensor { .. } | Quant::PerAxis { axis: 0, .. })
}

/// Whether the vector kernels take a layer's weights: floats, packed blocks, symmetric signed bytes.
pub(crate) fn has_kernel(weights: &Constant) -> bool {
    let symmetric = match &weights.quant {
        Quant::PerTensor { offset, .. } => *offset == 0,
        Quant::PerAxis { offsets, .. } => offsets.iter().all(|&o| o == 0),
        _ => true,
    };
    let bytes = weights.dtype == Dtype::SFixed8 && is_quantised_by_row(weights.dtype, &weights.quant) && symmetric;
    weights.dtype.is_float() || weights.packing.is_some() || bytes
}
