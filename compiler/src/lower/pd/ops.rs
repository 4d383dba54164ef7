//! Ops that only these graphs need: slices, and whole numbers computed from `fusion_ctrl`.

use super::super::composer::{Composer, TensorValue};
use super::super::sink::{GraphSink, Kind, Param};
use crate::Result;
use genie_types::{Dtype, TensorInfo};

impl<S: GraphSink> Composer<S> {
    /// Elements `from..to` of every axis.
    pub(super) fn slice(
        &mut self,
        node: &str,
        x: &TensorValue<S::Tensor>,
        ranges: &[(usize, usize)],
    ) -> Result<TensorValue<S::Tensor>> {
        let dtype = self.dtype();
        self.slice_as(node, x, ranges, dtype)
    }

    /// The same of a tensor of another type.
    pub(super) fn slice_as(
        &mut self,
        node: &str,
        x: &TensorValue<S::Tensor>,
        ranges: &[(usize, usize)],
        dtype: Dtype,
    ) -> Result<TensorValue<S::Tensor>> {
        self.slice_of(node, x, ranges, |name, dims| TensorInfo::new(name, dims.to_vec(), dtype))
    }

    /// The same; the result is described by the caller.
    pub(super) fn slice_of(
        &mut self,
        node: &str,
        x: &TensorValue<S::Tensor>,
        ranges: &[(usize, usize)],
        info: impl FnOnce(&str, &[usize]) -> TensorInfo,
    ) -> Result<TensorValue<S::Tensor>> {
        let dims: Vec<usize> = ranges.iter().map(|(from, to)| to - from).collect();
        let data = ranges.iter().flat_map(|&(from, to)| [from as i32, to as i32, 1]).collect();
        let ranges = Param::I32Tensor { dims: vec![ranges.len(), 3], data };
        let none = || Param::U32(0);
        let params = [
            ("ranges", ranges),
            ("begin_mask", none()),
            ("end_mask", none()),
            ("shrink_axes", none()),
            ("new_axes_mask", none()),
        ];
        let info = info(&format!("{node}_out"), &dims);
        self.described_op((node, "StridedSlice"), &params, &[x], &info, Kind::Native)
    }

    /// Whole numbers that are constants, `[n]`.
    pub(super) fn integers(
        &mut self,
        name: &str,
        values: impl Iterator<Item = usize>,
    ) -> Result<TensorValue<S::Tensor>> {
        let bytes: Vec<u8> = values.flat_map(|v| (v as i32).to_le_bytes()).collect();
        let info = TensorInfo::new(name, vec![bytes.len() / 4], Dtype::I32);
        self.table(&info, &bytes)
    }

    /// An op over whole numbers, of the extents of its longer input.
    pub(super) fn whole(
        &mut self,
        (node, op): (&str, &str),
        inputs: &[&TensorValue<S::Tensor>],
        dtype: Dtype,
    ) -> Result<TensorValue<S::Tensor>> {
        let dims = inputs.iter().map(|x| &x.dims).max_by_key(|dims| dims[0]).cloned().unwrap_or_default();
        let out = format!("{node}_out");
        self.typed_op((node, op), &[], inputs, (&out, Kind::Native), dims, dtype)
    }

    /// [`Composer::scatter`] into an output of the graph.
    pub(super) fn scatter_out(
        &mut self,
        node: &str,
        [past, index, new]: [&TensorValue<S::Tensor>; 3],
        axis: u32,
        out: &TensorInfo,
    ) -> Result<TensorValue<S::Tensor>> {
        let params = [("axis", Param::U32(axis))];
        self.described_op((node, "ScatterElements"), &params, &[past, index, new], out, Kind::Output)
    }
}
