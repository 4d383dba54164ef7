//! Rows that a graph dequantises from blocks: `numbers [.., 32] * scales [.., 1]`, both inputs of a client.

use super::Match;
use crate::graph::scalar::BinaryOp;
use crate::graph::typed::{Source, ValueId};
use crate::ir::{Dtype, Quant};
use crate::kernels::attention::BLOCK;

/// Such rows taken apart.
pub(super) struct Blocks {
    /// 8-bit numbers with a grid whose step is 1.
    pub(super) numbers: ValueId,
    /// `float16`, one for each block.
    pub(super) scales: ValueId,
}

/// Takes rows `[.., rows, head_dim]` apart if they are made so, whole blocks to a row.
pub(super) fn of(m: &Match<'_>, rows: ValueId, head_dim: usize) -> Option<Blocks> {
    let pairs = Match::pairs(m.maker(rows)?, BinaryOp::Multiply)?;
    let whole = head_dim.is_multiple_of(BLOCK) && m.net.shape(rows).last() == Some(&head_dim);
    pairs.into_iter().filter(|_| whole).find_map(|[numbers, scales]| {
        let (numbers_shape, scales_shape) = (m.net.shape(numbers), m.net.shape(scales));
        let by_block = numbers_shape.last() == Some(&BLOCK)
            && scales_shape.last() == Some(&1)
            && numbers_shape[..numbers_shape.len() - 1] == scales_shape[..scales_shape.len() - 1];
        let (of_numbers, of_scales) = (m.net.value(m.net.root(numbers)), m.net.value(m.net.root(scales)));
        let are_inputs = [of_numbers, of_scales].iter().all(|value| matches!(value.source, Source::Input(_)));
        let steps_of_one = match of_numbers.quant {
            Quant::None => true,
            Quant::PerTensor { scale, .. } => scale == 1.0,
            _ => false,
        };
        let types = of_numbers.dtype == Dtype::UFixed8 && of_scales.dtype == Dtype::F16;
        (by_block && are_inputs && steps_of_one && types).then_some(Blocks { numbers, scales })
    })
}
