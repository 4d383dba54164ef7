//! Updateable tensors: new data or encodings for a graph, which is then finalized again.
//!
//! *Invariant*: all tensors of a call are taken or none. A graph whose update is refused is what it was, and runs if it did.
//!
//! Trap: the mark "updateable" lives with the graph in memory; a context binary does not keep it.

use qnn_sys::{Qnn_ContextHandle_t, Qnn_ErrorHandle_t, Qnn_GraphHandle_t, Qnn_Tensor_t};

use crate::error::{Component, Error};
use crate::ir::Role;

use super::guard::{guard, set_error_log};
use super::objects::{CONTEXTS, GRAPHS, find};
use super::raw;
use super::tensor::view;

const TENSOR: Component = Component::Tensor;

pub(super) unsafe extern "C" fn graph_tensors(
    graph: Qnn_GraphHandle_t,
    tensors: *mut *const Qnn_Tensor_t,
    n: u64,
) -> Qnn_ErrorHandle_t {
    guard("QnnTensor_updateGraphTensors", || {
        let graph = find(&GRAPHS, graph)?;
        set_error_log(graph.core.backend.log.as_ref());
        // SAFETY: QNN's contract: `n` pointers.
        let list = unsafe { raw::slice(tensors.cast_const(), n as usize, TENSOR, "tensor") }?;
        graph.update(|draft| {
            for &tensor in list {
                // SAFETY: QNN's contract for each tensor and its pointers.
                let view = unsafe { view(raw::reference(tensor, TENSOR, "tensor[]")?) }?;
                // SAFETY: as above.
                let name = unsafe { view.name() }?;
                let id = draft.resolve(&graph.core, view.id, name)?;
                let keep = |data: &[u8]| graph.core.weights.lock().intern(data);
                // SAFETY: as above.
                let (new, _) = unsafe { view.to_ir(name, keep) }?;
                let old = draft.ir.tensor(id);
                if new.dims != old.dims || new.dtype != old.dtype {
                    return Err(Error::TensorUpdate {
                        graph: graph.name.clone(),
                        tensor: old.name.clone(),
                        what: format!(
                            "expected {:?} of {:?}, found {:?} of {:?}",
                            old.dims, old.dtype, new.dims, new.dtype
                        ),
                    });
                }
                let data = match new.role {
                    Role::Static(data) => Some(data),
                    _ => None,
                };
                draft.update(id, new.quant, data)?;
            }
            Ok(())
        })
    })
}

/// Context tensors are fixed here.
pub(super) unsafe extern "C" fn context_tensors(
    context: Qnn_ContextHandle_t,
    tensors: *mut *const Qnn_Tensor_t,
    n: u64,
) -> Qnn_ErrorHandle_t {
    guard("QnnTensor_updateContextTensors", || {
        let context = find(&CONTEXTS, context)?;
        set_error_log(context.core.backend.log.as_ref());
        let _ = (tensors, n);
        Err(Error::Unsupported { component: TENSOR, what: "updates of context tensors".to_owned() })
    })
}
