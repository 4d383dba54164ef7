//! One graph under construction, with an op per method: parameters, output shape and output tensor in one place.
//!
//! A node named `x` writes the tensor `x_out`, unless the result is a graph output, which is named by the caller.
//! *Source*: `docs/graph-contract.md`; op names, parameters and layouts as measured on libQnnHtp 2.51.

use super::encode::EncodedWeight;
use super::sink::{GraphSink, Kind, Param};
use super::weight_format::LinearForm;
use crate::{GraphKinds, Progress, Result};
use genie_types::{DataFormat, Dtype, TensorInfo};
use half::f16;
use nsp_graph::names::KvName;

/// A tensor and its extents.
#[derive(Clone, Debug)]
pub(crate) struct TensorValue<T> {
    pub(crate) tensor: T,
    pub(crate) dims: Vec<usize>,
    /// Of a weight that has some: a tensor `[out, blocks]` of what is taken off each block of its rows, and their number.
    pub(crate) minima: Option<(T, usize)>,
}

impl<T> TensorValue<T> {
    fn new(tensor: T, dims: Vec<usize>) -> Self {
        Self { tensor, dims, minima: None }
    }
}

/// A graph whose float tensors all have one type.
pub(crate) struct Composer<S: GraphSink> {
    sink: S,
    dtype: Dtype,
    form: LinearForm,
    /// Arrangement of cache tensors.
    cache: DataFormat,
}

impl<S: GraphSink> Composer<S> {
    pub(crate) fn new(sink: S, dtype: Dtype, form: LinearForm, kinds: &GraphKinds) -> Self {
        let cache = if kinds.native_kv { DataFormat::HmxWeight } else { DataFormat::Flat };
        Self { sink, dtype, form, cache }
    }

    /// Description of a tensor of the graph.
    fn info(&self, name: &str, dims: Vec<usize>, dtype: Dtype) -> TensorInfo {
        let format = if KvName::parse(name).is_some() { self.cache } else { DataFormat::Flat };
        TensorInfo { format, ..TensorInfo::new(name, dims, dtype) }
    }

    pub(crate) fn into_sink(self) -> S {
        self.sink
    }

    /// The type of all floats of the graph.
    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// A graph input.
    pub(crate) fn input(&mut self, name: &str, dims: Vec<usize>, dtype: Dtype) -> Result<TensorValue<S::Tensor>> {
        let tensor = self.sink.tensor(&self.info(name, dims.clone(), dtype), Kind::Input)?;
        Ok(TensorValue::new(tensor, dims))
    }

    /// A weight.
    pub(crate) fn constant(
        &mut self,
        stored: &EncodedWeight,
        progress: &dyn Progress,
    ) -> Result<TensorValue<S::Tensor>> {
        let tensor = self.sink.weight(&stored.info, &stored.bytes, progress)?;
        let minima = match &stored.minima {
            Some(minima) => Some((self.sink.weight(&minima.info, &minima.bytes, progress)?, minima.info.dims[1])),
            None => None,
        };
        Ok(TensorValue { tensor, dims: stored.info.dims.clone(), minima })
    }

    /// A constant that is not a weight, in the bytes of its type.
    pub(super) fn table(&mut self, info: &TensorInfo, bytes: &[u8]) -> Result<TensorValue<S::Tensor>> {
        Ok(TensorValue::new(self.sink.constant(info, bytes)?, info.dims.clone()))
    }

    /// A graph input with an encoding.
    pub(super) fn encoded_input(&mut self, info: &TensorInfo) -> Result<TensorValue<S::Tensor>> {
        Ok(TensorValue::new(self.sink.tensor(info, Kind::Input)?, info.dims.clone()))
    }

    /// The past of a cache tensor, arranged as caches are.
    pub(super) fn cache_input(&mut self, info: &TensorInfo) -> Result<TensorValue<S::Tensor>> {
        let info = TensorInfo { format: self.info(&info.name, Vec::new(), info.dtype).format, ..info.clone() };
        self.encoded_input(&info)
    }

    /// A constant that is not a weight, `[1]`.
    pub(crate) fn scalar(&mut self, name: &str, value: f32) -> Result<TensorValue<S::Tensor>> {
        let bytes = match self.dtype {
            Dtype::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
            _ => value.to_le_bytes().to_vec(),
        };
        let tensor = self.sink.constant(&TensorInfo::new(name, vec![1], self.dtype), &bytes)?;
        Ok(TensorValue::new(tensor, vec![1]))
    }

    /// Rows of `table [v, w]` by `ids [1, n]`: `[1, n, w]`. With minima: less the rows of those, each number for its block; `qnn-host` does
    /// both in one step.
    pub(crate) fn gather(
        &mut self,
        node: &str,
        table: &TensorValue<S::Tensor>,
        ids: &TensorValue<S::Tensor>,
        out: Option<&str>,
    ) -> Result<TensorValue<S::Tensor>> {
        let dims = [&ids.dims[..], &table.dims[1..]].concat();
        let axis = [("axis", Param::I32(0))];
        let Some((minima, blocks)) = table.minima else {
            return self.op(node, "Gather", &axis, &[table, ids], dims, out);
        };
        let (n, shared) = (ids.dims.iter().product(), table.dims[1] / blocks);
        let minima = TensorValue::new(minima, vec![table.dims[0], blocks]);
        let whole = self.op(&format!("{node}_whole"), "Gather", &axis, &[table, ids], dims.clone(), None)?;
        let less_dims = [&ids.dims[..], &[blocks]].concat();
        let less = self.op(&format!("{node}_minima"), "Gather", &axis, &[&minima, ids], less_dims, None)?;
        let whole = self.reshape(&format!("{node}_blocks"), &whole, vec![n, blocks, shared], None)?;
        let less = self.reshape(&format!("{node}_less"), &less, vec![n, blocks, 1], None)?;
        let of_blocks = vec![n, blocks, shared];
        let name = format!("{node}_difference");
        let difference = self.op(&name, "ElementWiseSubtract", &[], &[&whole, &less], of_blocks, None)?;
        self.reshape(node, &difference, dims, out)
    }

    /// Every `step`-th of the last axis' elements, `n` of them.
    pub(crate) fn columns(
        &mut self,
        node: &str,
        x: &TensorValue<S::Tensor>,
        step: usize,
        n: usize,
    ) -> Result<TensorValue<S::Tensor>> {
        let bytes: Vec<u8> = (0..n).flat_map(|i| ((i * step) as i32).to_le_bytes()).collect();
        let info = TensorInfo::new(format!("{node}_columns"), vec![n], Dtype::I32);
        let ids = TensorValue::new(self.sink.constant(&info, &bytes)?, vec![n]);
        let (axis, mut dims) = (x.dims.len() - 1, x.dims.clone());
        dims[axis] = n;
        self.op(node, "Gather", &[("axis", Param::I32(axis as i32))], &[x, &ids], dims, None)
    }

    /// Normalises the last axis.
    pub(crate) fn rms_norm(
        &mut self,
        node: &str,
        x: &TensorValue<S::Tensor>,
        gamma: &TensorValue<S::Tensor>,
        epsilon: f32,
    ) -> Result<TensorValue<S::Tensor>> {
        let axes = Param::U32Tensor { dims: vec![1], data: vec![x.dims.len() as u32 - 1] };
        let params = [("epsilon", Param::F32(epsilon)), ("axes", axes)];
        self.op(node, "RmsNorm", &params, &[x, gamma], x.dims.clone(), None)
    }

    /// Mean and variance of the last axis to 0 and 1, then weight and bias.
    pub(crate) fn layer_norm(
        &mut self,
        node: &str,
        x: &TensorValue<S::Tensor>,
        gamma: &TensorValue<S::Tensor>,
        beta: &TensorValue<S::Tensor>,
        epsilon: f32,
    ) -> Result<TensorValue<S::Tensor>> {
        let axes = Param::U32Tensor { dims: vec![1], data: vec![x.dims.len() as u32 - 1] };
        let params = [("epsilon", Param::F32(epsilon)), ("axes", axes)];
        self.op(node, "LayerNorm", &params, &[x, gamma, beta], x.dims.clone(), None)
    }

    /// `x [.., in]` as [`Self::linear`] takes it; layers of the same input share this.
    pub(crate) fn rows(&mut self, node: &str, x: &TensorValue<S::Tensor>) -> Result<TensorValue<S::Tensor>> {
        let (last, leading) = x.dims.split_last().expect("no tensor here is a scalar");
        match self.form {
            LinearForm::FullyConnected => Ok(x.clone()),
            LinearForm::Conv2d => self.reshape(node, x, vec![1, 1, leading.iter().product(), *last], None),
        }
    }

    /// Rows through weights `[out, in]` (or `[1, 1, in, out]`): `[rows, out]` (or `[1, 1, rows, out]`). With minima: less the sums
    /// of each block of columns through those, which is the same; `qnn-host` computes both in one step.
    pub(crate) fn linear(
        &mut self,
        node: &str,
        x: &TensorValue<S::Tensor>,
        weight: &TensorValue<S::Tensor>,
        bias: Option<&TensorValue<S::Tensor>>,
    ) -> Result<TensorValue<S::Tensor>> {
        let rows = x.dims[..x.dims.len() - 1].iter().product();
        let inputs: Vec<_> = [x, weight].into_iter().chain(bias).collect();
        if let Some((minima, blocks)) = weight.minima {
            let (out, shared) = (weight.dims[0], weight.dims[1] / blocks);
            let minima = TensorValue::new(minima, vec![out, blocks]);
            let whole = self.op(&format!("{node}_whole"), "FullyConnected", &[], &inputs, vec![rows, out], None)?;
            let by_blocks = self.reshape(&format!("{node}_blocks"), x, vec![rows, blocks, shared], None)?;
            let axes = Param::U32Tensor { dims: vec![1], data: vec![2] };
            let sums = self.op(
                &format!("{node}_sums"),
                "ReduceSum",
                &[("axes", axes)],
                &[&by_blocks],
                vec![rows, blocks],
                None,
            )?;
            let less = [&sums, &minima];
            let less = self.op(&format!("{node}_minima"), "FullyConnected", &[], &less, vec![rows, out], None)?;
            return self.op(node, "ElementWiseSubtract", &[], &[&whole, &less], vec![rows, out], None);
        }
        match self.form {
            LinearForm::FullyConnected => {
                self.op(node, "FullyConnected", &[], &inputs, vec![rows, weight.dims[0]], None)
            }
            LinearForm::Conv2d => {
                let stride = Param::U32Tensor { dims: vec![2], data: vec![1, 1] };
                let padding = Param::U32Tensor { dims: vec![2, 2], data: vec![0; 4] };
                let params = [("stride", stride), ("pad_amount", padding)];
                self.op(node, "Conv2d", &params, &inputs, vec![1, 1, rows, weight.dims[3]], None)
            }
        }
    }

    /// The same elements under other extents.
    pub(crate) fn reshape(
        &mut self,
        node: &str,
        x: &TensorValue<S::Tensor>,
        dims: Vec<usize>,
        out: Option<&str>,
    ) -> Result<TensorValue<S::Tensor>> {
        self.op(node, "Reshape", &[], &[x], dims, out)
    }

    /// Axis `i` of the result is axis `perm[i]` of `x`.
    pub(crate) fn transpose(
        &mut self,
        node: &str,
        x: &TensorValue<S::Tensor>,
        perm: [u32; 4],
    ) -> Result<TensorValue<S::Tensor>> {
        let dims = perm.iter().map(|&axis| x.dims[axis as usize]).collect();
        let perm = Param::U32Tensor { dims: vec![4], data: perm.to_vec() };
        self.op(node, "Transpose", &[("perm", perm)], &[x], dims, None)
    }

    /// Rotates the pairs `(j, j + r/2)` of `x [1, h, n, d]` by tables `[1, n, r/2]`; elements from `r` on stay as they are.
    pub(crate) fn rotary(
        &mut self,
        node: &str,
        x: &TensorValue<S::Tensor>,
        cos: &TensorValue<S::Tensor>,
        sin: &TensorValue<S::Tensor>,
    ) -> Result<TensorValue<S::Tensor>> {
        let width = 2 * cos.dims[2] as u32;
        let params = [("interleaved", Param::Bool(false)), ("rotary_embedding_dim", Param::U32(width))];
        self.op(node, "RotaryEmbedding", &params, &[x, cos, sin], x.dims.clone(), None)
    }

    /// Joins two tensors along an axis.
    pub(crate) fn concat(
        &mut self,
        node: &str,
        a: &TensorValue<S::Tensor>,
        b: &TensorValue<S::Tensor>,
        axis: usize,
    ) -> Result<TensorValue<S::Tensor>> {
        let mut dims = a.dims.clone();
        dims[axis] += b.dims[axis];
        self.op(node, "Concat", &[("axis", Param::U32(axis as u32))], &[a, b], dims, None)
    }

    /// `a [b, g, m, k]` times `b [b, 1, k, n]`: `[b, g, m, n]`.
    pub(crate) fn matmul(
        &mut self,
        node: &str,
        a: &TensorValue<S::Tensor>,
        b: &TensorValue<S::Tensor>,
    ) -> Result<TensorValue<S::Tensor>> {
        let params = [("transpose_in0", Param::Bool(false)), ("transpose_in1", Param::Bool(false))];
        let dims = vec![a.dims[0], a.dims[1], a.dims[2], b.dims[3]];
        self.op(node, "MatMul", &params, &[a, b], dims, None)
    }

    /// `a [b, g, m, k]` times `b [b, 1, n, k]`, transposed: `[b, g, m, n]`.
    pub(crate) fn matmul_transposed(
        &mut self,
        node: &str,
        a: &TensorValue<S::Tensor>,
        b: &TensorValue<S::Tensor>,
    ) -> Result<TensorValue<S::Tensor>> {
        let params = [("transpose_in0", Param::Bool(false)), ("transpose_in1", Param::Bool(true))];
        let dims = vec![a.dims[0], a.dims[1], a.dims[2], b.dims[2]];
        self.op(node, "MatMul", &params, &[a, b], dims, None)
    }

    /// Slots of `n` new cache rows, `[n]`: an input, or counted on from an input `[1]`.
    pub(crate) fn slots(&mut self, name: &str, n: usize, each: bool) -> Result<TensorValue<S::Tensor>> {
        if each {
            return self.input(name, vec![n], Dtype::I32);
        }
        let first = self.input(name, vec![1], Dtype::I32)?;
        let bytes: Vec<u8> = (0..n as i32).flat_map(i32::to_le_bytes).collect();
        let info = TensorInfo::new("cache_rows", vec![n], Dtype::I32);
        let rows = TensorValue::new(self.sink.constant(&info, &bytes)?, vec![n]);
        let out = ("cache_slots_out", Kind::Native);
        self.typed_op(("cache_slots", "ElementWiseAdd"), &[], &[&first, &rows], out, vec![n], Dtype::I32)
    }

    /// Whole numbers reshaped to `line` and repeated to `dims`.
    pub(crate) fn spread(
        &mut self,
        node: &str,
        x: &TensorValue<S::Tensor>,
        line: [usize; 4],
        dims: [usize; 4],
    ) -> Result<TensorValue<S::Tensor>> {
        let (at_line, at_end) = (format!("{node}_line"), format!("{node}_out"));
        let out = (at_line.as_str(), Kind::Native);
        let x = self.typed_op((&at_line, "Reshape"), &[], &[x], out, line.to_vec(), Dtype::I32)?;
        let data = dims.iter().zip(line).map(|(d, l)| (d / l) as u32).collect();
        let multiples = [("multiples", Param::U32Tensor { dims: vec![4], data })];
        let out = (at_end.as_str(), Kind::Native);
        self.typed_op((node, "Tile"), &multiples, &[&x], out, dims.to_vec(), Dtype::I32)
    }

    /// `past` with the elements of `new` at the slots `index` of an axis.
    pub(crate) fn scatter(
        &mut self,
        node: &str,
        past: &TensorValue<S::Tensor>,
        index: &TensorValue<S::Tensor>,
        new: &TensorValue<S::Tensor>,
        axis: u32,
    ) -> Result<TensorValue<S::Tensor>> {
        let params = [("axis", Param::U32(axis))];
        self.op(node, "ScatterElements", &params, &[past, index, new], past.dims.clone(), None)
    }

    /// Sum; `b` may be broadcast.
    pub(crate) fn add(
        &mut self,
        node: &str,
        a: &TensorValue<S::Tensor>,
        b: &TensorValue<S::Tensor>,
        out: Option<&str>,
    ) -> Result<TensorValue<S::Tensor>> {
        self.op(node, "ElementWiseAdd", &[], &[a, b], a.dims.clone(), out)
    }

    /// Product; `b` may be broadcast.
    pub(crate) fn mul(
        &mut self,
        node: &str,
        a: &TensorValue<S::Tensor>,
        b: &TensorValue<S::Tensor>,
        out: Option<&str>,
    ) -> Result<TensorValue<S::Tensor>> {
        self.op(node, "ElementWiseMultiply", &[], &[a, b], a.dims.clone(), out)
    }

    /// Quotient; `b` may be broadcast.
    pub(super) fn div(
        &mut self,
        node: &str,
        a: &TensorValue<S::Tensor>,
        b: &TensorValue<S::Tensor>,
    ) -> Result<TensorValue<S::Tensor>> {
        self.op(node, "ElementWiseDivide", &[], &[a, b], a.dims.clone(), None)
    }

    /// Magnitude.
    pub(super) fn abs(&mut self, node: &str, x: &TensorValue<S::Tensor>) -> Result<TensorValue<S::Tensor>> {
        self.op(node, "ElementWiseAbs", &[], &[x], x.dims.clone(), None)
    }

    /// Codes as numbers.
    pub(super) fn dequantise(&mut self, node: &str, x: &TensorValue<S::Tensor>) -> Result<TensorValue<S::Tensor>> {
        self.op(node, "Dequantize", &[], &[x], x.dims.clone(), None)
    }

    /// Floats of one type as those of another.
    pub(super) fn converted(
        &mut self,
        node: &str,
        x: &TensorValue<S::Tensor>,
        (from, to): (Dtype, Dtype),
    ) -> Result<TensorValue<S::Tensor>> {
        if from == to {
            return Ok(x.clone());
        }
        let out = format!("{node}_out");
        self.typed_op((node, "Convert"), &[], &[x], (&out, Kind::Native), x.dims.clone(), to)
    }

    /// An op whose result is described by the caller: its type may have an encoding.
    pub(super) fn described_op(
        &mut self,
        (node, op): (&str, &str),
        params: &[(&str, Param)],
        inputs: &[&TensorValue<S::Tensor>],
        info: &TensorInfo,
        kind: Kind,
    ) -> Result<TensorValue<S::Tensor>> {
        let tensor = self.sink.tensor(info, kind)?;
        let inputs: Vec<S::Tensor> = inputs.iter().map(|val| val.tensor).collect();
        self.sink.node(node, op, params, &inputs, &[tensor])?;
        Ok(TensorValue::new(tensor, info.dims.clone()))
    }

    /// Hyperbolic tangent.
    pub(crate) fn tanh(&mut self, node: &str, x: &TensorValue<S::Tensor>) -> Result<TensorValue<S::Tensor>> {
        self.op(node, "Tanh", &[], &[x], x.dims.clone(), None)
    }

    /// GELU by the error function.
    pub(crate) fn gelu(&mut self, node: &str, x: &TensorValue<S::Tensor>) -> Result<TensorValue<S::Tensor>> {
        self.op(node, "Gelu", &[], &[x], x.dims.clone(), None)
    }

    /// `max(x, 0)`.
    pub(crate) fn relu(&mut self, node: &str, x: &TensorValue<S::Tensor>) -> Result<TensorValue<S::Tensor>> {
        self.op(node, "Relu", &[], &[x], x.dims.clone(), None)
    }

    /// Logistic function.
    pub(crate) fn sigmoid(&mut self, node: &str, x: &TensorValue<S::Tensor>) -> Result<TensorValue<S::Tensor>> {
        self.op(node, "Sigmoid", &[], &[x], x.dims.clone(), None)
    }

    /// Over the last axis.
    pub(crate) fn softmax(&mut self, node: &str, x: &TensorValue<S::Tensor>) -> Result<TensorValue<S::Tensor>> {
        let axis = x.dims.len() as u32 - 1;
        self.op(node, "Softmax", &[("axis", Param::U32(axis))], &[x], x.dims.clone(), None)
    }

    pub(super) fn op(
        &mut self,
        node: &str,
        op: &str,
        params: &[(&str, Param)],
        inputs: &[&TensorValue<S::Tensor>],
        dims: Vec<usize>,
        out: Option<&str>,
    ) -> Result<TensorValue<S::Tensor>> {
        let (name, kind) = match out {
            Some(name) => (name.to_string(), Kind::Output),
            None => (format!("{node}_out"), Kind::Native),
        };
        self.typed_op((node, op), params, inputs, (&name, kind), dims, self.dtype)
    }

    /// An op with several results, which are outputs of the graph.
    pub(super) fn several(
        &mut self,
        (node, op): (&str, &str),
        inputs: &[&TensorValue<S::Tensor>],
        outputs: &[TensorInfo],
    ) -> Result<()> {
        let mut declare = |info: &TensorInfo| self.sink.tensor(info, Kind::Output);
        let outputs = outputs.iter().map(&mut declare).collect::<Result<Vec<_>>>()?;
        let inputs: Vec<S::Tensor> = inputs.iter().map(|val| val.tensor).collect();
        self.sink.node(node, op, &[], &inputs, &outputs)
    }

    pub(super) fn typed_op(
        &mut self,
        (node, op): (&str, &str),
        params: &[(&str, Param)],
        inputs: &[&TensorValue<S::Tensor>],
        (name, kind): (&str, Kind),
        dims: Vec<usize>,
        dtype: Dtype,
    ) -> Result<TensorValue<S::Tensor>> {
        let tensor = self.sink.tensor(&self.info(name, dims.clone(), dtype), kind)?;
        let inputs: Vec<S::Tensor> = inputs.iter().map(|val| val.tensor).collect();
        self.sink.node(node, op, params, &inputs, &[tensor])?;
        Ok(TensorValue::new(tensor, dims))
    }
}
