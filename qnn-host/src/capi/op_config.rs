//! From the client's op configs to nodes: scalars, static tensor parameters, operands by id.

use qnn_sys as q;
use qnn_sys::{Qnn_OpConfig_t, Qnn_OpConfigV1_t, Qnn_Scalar_t, Qnn_Tensor_t};

use crate::bytes::Bytes;
use crate::error::{Component, Error};
use crate::graph::Violation;
use crate::graph::walk::MAX_RANK;
use crate::ir::{self, Dtype, Node, Param, Role, Tensor, TensorId};

use super::objects::{ContextShared, Draft};
use super::raw;
use super::tensor::view;

const GRAPH: Component = Component::Graph;

/// Reads a config against a graph's draft: its tensors are named by id.
///
/// # Safety
/// The pointers in `config` must be as QNN requires.
pub(super) unsafe fn to_node(config: &Qnn_OpConfig_t, draft: &mut Draft, core: &ContextShared) -> Result<Node, Error> {
    let v1 = v1(config)?;
    // SAFETY: the caller's promise.
    let (name, op) = unsafe { names(v1) }?;
    let bad = |subject: &str, expected: &str, found: String| {
        Error::Node(Violation {
            node: name.into(),
            op: op.as_str().into(),
            subject: subject.into(),
            expected: expected.into(),
            found: found.into(),
        })
    };
    // SAFETY: the caller's promise.
    let list = unsafe { raw::slice(v1.params.cast_const(), v1.numOfParams as usize, GRAPH, "params") }?;
    let mut params = Vec::with_capacity(list.len());
    for param in list {
        // SAFETY: the caller's promise.
        let key = unsafe { raw::text(param.name, GRAPH, "params[].name") }?;
        let value = match param.paramType {
            q::QNN_PARAMTYPE_SCALAR => {
                // SAFETY: plain data, and the type decides which member it is.
                scalar(unsafe { &param.anon0.scalarParam })
                    .map_err(|found| bad(&of(key), "a number or bool8", found))?
            }
            q::QNN_PARAMTYPE_TENSOR => {
                // SAFETY: as above.
                let tensor = unsafe { &param.anon0.tensorParam };
                // SAFETY: the caller's promise about the tensor's pointers.
                let given = unsafe { view(tensor) }?;
                let (dims, dtype, data) = if given.id == 0 {
                    // SAFETY: as above.
                    let (t, _) = unsafe { given.to_ir("", Bytes::copy_from) }?;
                    (t.dims, t.dtype, t.role)
                } else {
                    // SAFETY: as above.
                    let id = draft.resolve(core, given.id, unsafe { given.name() }?)?;
                    let t = draft.ir.tensor(id);
                    (t.dims.clone(), t.dtype, t.role.clone())
                };
                let Role::Static(data) = data else {
                    return Err(bad(&of(key), "a static tensor", "one without data".to_owned()));
                };
                ints(dims, dtype, &data).map_err(|found| bad(&of(key), "an integer tensor", found))?
            }
            other => return Err(bad(&of(key), "a scalar or a tensor", format!("parameter type {other}"))),
        };
        params.push((key.to_owned(), value));
    }
    // SAFETY: the caller's promise.
    let ins = unsafe { raw::slice(v1.inputTensors.cast_const(), v1.numOfInputs as usize, GRAPH, "inputTensors") }?;
    // SAFETY: the caller's promise.
    let outs = unsafe { raw::slice(v1.outputTensors.cast_const(), v1.numOfOutputs as usize, GRAPH, "outputTensors") }?;
    let mut operands = |list: &[Qnn_Tensor_t]| {
        let mut ids = Vec::with_capacity(list.len());
        for tensor in list {
            // SAFETY: the caller's promise.
            let given = unsafe { view(tensor) }?;
            ids.push(if given.kind == q::QNN_TENSOR_TYPE_NULL && given.id == 0 {
                draft.null_tensor()
            } else {
                // SAFETY: the caller's promise.
                draft.resolve(core, given.id, unsafe { given.name() }?)?
            });
        }
        Ok::<Vec<TensorId>, Error>(ids)
    };
    let (inputs, outputs) = (operands(ins)?, operands(outs)?);
    Ok(Node { name: name.to_owned(), op, params, inputs, outputs })
}

/// Reads a config that stands alone: its tensors are described in place, static data may be missing.
///
/// # Safety
/// The pointers in `config` must be as QNN requires.
pub(super) unsafe fn to_lone_node(config: &Qnn_OpConfig_t, core: &ContextShared) -> Result<(Draft, Node), Error> {
    let v1 = v1(config)?;
    let mut draft = Draft::new("(validation)");
    let mut place = |list: &[Qnn_Tensor_t], as_output: bool| {
        let mut ids = Vec::with_capacity(list.len());
        for (i, tensor) in list.iter().enumerate() {
            // SAFETY: the caller's promise.
            let given = unsafe { view(tensor) }?;
            if given.kind == q::QNN_TENSOR_TYPE_NULL {
                ids.push(draft.null_tensor());
                continue;
            }
            let mut plain = *tensor;
            // Data is of no interest here, and often not there yet.
            let kind = if as_output { q::QNN_TENSOR_TYPE_NATIVE } else { q::QNN_TENSOR_TYPE_APP_WRITE };
            plain.anon0.v1.r#type = kind;
            // SAFETY: a copy with another type; its pointers are the caller's.
            let given = unsafe { view(&plain) }?;
            // SAFETY: as above.
            let (mut t, _): (Tensor, bool) = unsafe { given.to_ir("tensor", |_| Bytes::copy_from(&[])) }?;
            // One tensor may be two operands, and names mean nothing outside of a graph.
            let called = t.name.clone();
            let mut copy = 0;
            while draft.has_name(&t.name) {
                copy += 1;
                t.name = format!("{called}#{copy}");
            }
            ids.push(draft.add_tensor(t, false).map_err(|e| match e {
                Error::TensorParam(v) => {
                    Error::OpConfig(Violation { subject: format!("operand {i}, {}", v.subject).into(), ..v })
                }
                other => other,
            })?);
        }
        Ok::<Vec<TensorId>, Error>(ids)
    };
    // SAFETY: the caller's promise.
    let ins = unsafe { raw::slice(v1.inputTensors.cast_const(), v1.numOfInputs as usize, GRAPH, "inputTensors") }?;
    // SAFETY: the caller's promise.
    let outs = unsafe { raw::slice(v1.outputTensors.cast_const(), v1.numOfOutputs as usize, GRAPH, "outputTensors") }?;
    let (inputs, outputs) = (place(ins, false)?, place(outs, true)?);

    // Parameters: tensors among them carry their data in place, whatever their id is.
    let mut lone = *config;
    // SAFETY: the caller's promise.
    let list = unsafe { raw::slice(v1.params.cast_const(), v1.numOfParams as usize, GRAPH, "params") }?;
    let mut params = list.to_vec();
    for param in params.iter_mut().filter(|p| p.paramType == q::QNN_PARAMTYPE_TENSOR) {
        param.anon0.tensorParam.anon0.v1.id = 0;
    }
    lone.anon0.v1.params = params.as_mut_ptr();
    lone.anon0.v1.numOfInputs = 0;
    lone.anon0.v1.numOfOutputs = 0;
    // SAFETY: a copy of the caller's config whose parameters live in `params`.
    let node = unsafe { to_node(&lone, &mut draft, core) }?;
    Ok((draft, Node { inputs, outputs, ..node }))
}

fn v1(config: &Qnn_OpConfig_t) -> Result<&Qnn_OpConfigV1_t, Error> {
    match config.version {
        // SAFETY: the version decides which member it is, and its fields are plain data.
        q::QNN_OPCONFIG_VERSION_1 => Ok(unsafe { &config.anon0.v1 }),
        other => {
            Err(Error::Argument { component: GRAPH, what: format!("expected op config version 1, found {other}") })
        }
    }
}

/// The node's name, and the op with its package.
///
/// # Safety
/// The strings must be as QNN requires.
unsafe fn names(v1: &Qnn_OpConfigV1_t) -> Result<(&str, String), Error> {
    // SAFETY: the caller's promise.
    let name = unsafe { raw::text(v1.name, GRAPH, "opConfig.name") }?;
    // SAFETY: the caller's promise.
    let op = unsafe { raw::text(v1.typeName, GRAPH, "opConfig.typeName") }?;
    if v1.packageName.is_null() {
        return Ok((name, op.to_owned()));
    }
    // SAFETY: the caller's promise.
    let package = unsafe { raw::text(v1.packageName, GRAPH, "opConfig.packageName") }?;
    Ok((name, ir::join_op(package, op)))
}

fn of(param: &str) -> String {
    format!("parameter `{param}`")
}

/// A scalar parameter; the error is what was found instead of a number.
fn scalar(s: &Qnn_Scalar_t) -> Result<Param, String> {
    macro_rules! read {
        ($member:ident) => {{
            // SAFETY: the type decides which member it is, and any bits are valid for a number.
            unsafe { s.anon0.$member }
        }};
    }
    Ok(match s.dataType {
        q::QNN_DATATYPE_FLOAT_32 => Param::F32(read!(floatValue)),
        q::QNN_DATATYPE_FLOAT_64 => Param::F32(read!(doubleValue) as f32),
        q::QNN_DATATYPE_FLOAT_16 => Param::F32(half::f16::from_bits(read!(uint16Value)).to_f32()),
        q::QNN_DATATYPE_INT_8 | q::QNN_DATATYPE_SFIXED_POINT_8 => Param::Int(read!(int8Value).into()),
        q::QNN_DATATYPE_INT_16 | q::QNN_DATATYPE_SFIXED_POINT_16 => Param::Int(read!(int16Value).into()),
        q::QNN_DATATYPE_INT_32 | q::QNN_DATATYPE_SFIXED_POINT_32 => Param::Int(read!(int32Value).into()),
        q::QNN_DATATYPE_INT_64 => Param::Int(read!(int64Value)),
        q::QNN_DATATYPE_UINT_8 | q::QNN_DATATYPE_UFIXED_POINT_8 => Param::UInt(read!(uint8Value).into()),
        q::QNN_DATATYPE_UINT_16 | q::QNN_DATATYPE_UFIXED_POINT_16 => Param::UInt(read!(uint16Value).into()),
        q::QNN_DATATYPE_UINT_32 | q::QNN_DATATYPE_UFIXED_POINT_32 => Param::UInt(read!(uint32Value).into()),
        q::QNN_DATATYPE_UINT_64 => Param::UInt(read!(uint64Value)),
        q::QNN_DATATYPE_BOOL_8 => Param::Bool(read!(bool8Value) != 0),
        other => return Err(format!("a scalar of type {other:#06x}")),
    })
}

/// An integer tensor parameter, widened; the error is what was found instead.
fn ints(dims: Vec<u32>, dtype: Dtype, data: &[u8]) -> Result<Param, String> {
    let n = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d as usize));
    if dims.len() > MAX_RANK || n.and_then(|n| n.checked_mul(dtype.size_bytes())) != Some(data.len()) {
        return Err(format!("{} bytes of {dtype:?} for {dims:?}", data.len()));
    }
    fn wide<const N: usize>(data: &[u8], read: impl Fn([u8; N]) -> i64) -> Vec<i64> {
        data.as_chunks::<N>().0.iter().map(|&c| read(c)).collect()
    }
    let values = match dtype {
        Dtype::I8 | Dtype::SFixed8 => wide(data, |b: [u8; 1]| i64::from(b[0] as i8)),
        Dtype::U8 | Dtype::UFixed8 | Dtype::Bool8 => wide(data, |b: [u8; 1]| i64::from(b[0])),
        Dtype::I16 => wide(data, |b| i64::from(i16::from_ne_bytes(b))),
        Dtype::U16 => wide(data, |b| i64::from(u16::from_ne_bytes(b))),
        Dtype::I32 | Dtype::SFixed32 => wide(data, |b| i64::from(i32::from_ne_bytes(b))),
        Dtype::U32 | Dtype::UFixed32 => wide(data, |b| i64::from(u32::from_ne_bytes(b))),
        Dtype::I64 => wide(data, i64::from_ne_bytes),
        other => return Err(format!("a tensor of {other:?}")),
    };
    Ok(Param::Ints(dims, values))
}
