//! Nodes for tests: op, parameters, and each operand's element type and extents.

use crate::ir::{Dtype, Param};

pub(crate) const F: Dtype = Dtype::F32;
pub(crate) const H: Dtype = Dtype::F16;
pub(crate) const I: Dtype = Dtype::I32;
pub(crate) const B: Dtype = Dtype::Bool8;

/// An operand: element type and extents.
pub(crate) type T = (Dtype, &'static [u32]);

/// A node that its op must accept, and that must run.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) op: &'static str,
    pub(crate) params: Vec<(&'static str, Param)>,
    pub(crate) inputs: Vec<T>,
    pub(crate) outputs: Vec<T>,
}

/// One sample.
pub(crate) fn sample(op: &'static str, params: &[(&'static str, Param)], inputs: &[T], outputs: &[T]) -> Sample {
    Sample { op, params: params.to_vec(), inputs: inputs.to_vec(), outputs: outputs.to_vec() }
}

/// A parameter that is a list.
pub(crate) fn ints(values: &[i64]) -> Param {
    Param::Ints(vec![values.len() as u32], values.into())
}

/// A parameter that is a table of rows of `width`.
pub(crate) fn table(width: usize, values: &[i64]) -> Param {
    Param::Ints(vec![(values.len() / width) as u32, width as u32], values.into())
}
