//! What nearly every op's file needs.

pub(super) use super::call::{Call, Shapes};
pub(super) use super::common;
pub(super) use super::lowering::Lowering;
#[cfg(test)]
pub(super) use super::samples::{B, F, H, I, Sample, ints, sample, table};
pub(super) use super::spec::ParamKind::{Bool, F32 as Float32, Int, Ints, Scalar, UInt};
pub(super) use super::spec::{MANY, OpSpec, ParamSpec, Row, opt, req};
pub(super) use crate::graph::op::{LeafOp, Op};
pub(super) use crate::graph::step_builder::StepBuilder;
pub(super) use crate::graph::typed::{Node, ValueId};
pub(super) use crate::graph::{ExecError, Violation};
#[cfg(test)]
pub(super) use crate::ir::Param;
pub(super) use crate::step::{Fault, Fill, RunContext, Src, Step};
pub(super) use crate::storage::Storage;
