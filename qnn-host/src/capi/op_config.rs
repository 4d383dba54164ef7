//! From the client's op configs to nodes: parameters, operands by id.

use qnn_sys as q;
use qnn_sys::{Qnn_OpConfig_t, Qnn_OpConfigV1_t, Qnn_Tensor_t};

use crate::bytes::Bytes;
use crate::error::{Component, Error};
use crate::graph::Violation;
use crate::ir::{self, Node, Role, Tensor, TensorId};

use super::draft::Draft;
use super::objects::ContextShared;
use super::tensor::view;
use super::{op_param, raw};

const GRAPH: Component = Component::Graph;

/// Reads a config against a graph's draft: its tensors are named by id.
///
/// # Safety
/// The pointers in `config` must be as QNN requires.
pub(super) unsafe fn to_node(config: &Qnn_OpConfig_t, draft: &mut Draft, core: &ContextShared) -> Result<Node, Error> {
    let v1 = v1(config)?;
    // SAFETY: the caller's promise.
    let (name, op) = unsafe { names(v1) }?;
    let foreign = ir::split_op(&op).0 != ir::QNN_PACKAGE;
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
                let given = unsafe { &param.anon0.scalarParam };
                match given.dataType {
                    // SAFETY: plain data, and the type decides which member it is; the caller's promise about the text.
                    q::QNN_DATATYPE_STRING if foreign => unsafe { op_param::text(given) }?,
                    q::QNN_DATATYPE_FLOAT_64 if foreign => op_param::double(given),
                    _ => op_param::scalar(given).map_err(|found| {
                        bad(&of(key), if foreign { "a number, bool8 or text" } else { "a number or bool8" }, found)
                    })?,
                }
            }
            q::QNN_PARAMTYPE_TENSOR => {
                // SAFETY: as above.
                let tensor = unsafe { &param.anon0.tensorParam };
                // SAFETY: the caller's promise about the tensor's pointers.
                let given = unsafe { view(tensor) }?;
                let given = if given.id == 0 {
                    // SAFETY: as above.
                    unsafe { given.to_ir("", Bytes::copy_from) }?.0
                } else {
                    // SAFETY: as above.
                    let id = draft.resolve(core, given.id, unsafe { given.name() }?)?;
                    draft.ir.tensor(id).clone()
                };
                let Role::Static(data) = &given.role else {
                    return Err(bad(&of(key), "a static tensor", "one without data".to_owned()));
                };
                if foreign {
                    op_param::typed(&given, data)
                        .map_err(|found| bad(&of(key), "a tensor of its own size, without an encoding", found))?
                } else {
                    op_param::ints(given.dims.clone(), given.dtype, data)
                        .map_err(|found| bad(&of(key), "an integer tensor", found))?
                }
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
