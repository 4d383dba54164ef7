//! Graphs: created, composed, finalized, retrieved.

use std::ffi::c_char;
use std::sync::Arc;

use qnn_sys as q;
use qnn_sys::{
    Qnn_ContextHandle_t, Qnn_ErrorHandle_t, Qnn_GraphHandle_t, Qnn_OpConfig_t, Qnn_ProfileHandle_t, Qnn_SignalHandle_t,
    Qnn_Tensor_t, QnnGraph_Config_t,
};

use crate::bytes::Bytes;
use crate::error::{Component, Error};
use crate::ir::Role;

use super::draft::Draft;
use super::guard::{guard, set_error_log};
use super::log::Level;
use super::objects::{CONTEXT_TENSOR, CONTEXTS, Context, Entry, GRAPHS, Graph, PROFILES, State, find};
use super::profile::timed;
use super::tensor::view;
use super::weights::Stopped;
use super::{op_config, raw, trace};

const GRAPH: Component = Component::Graph;

/// Checks a config list; nothing in it matters to a CPU.
///
/// # Safety
/// A list as QNN requires.
unsafe fn read(config: *const *const QnnGraph_Config_t) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    for entry in unsafe { raw::list(config, GRAPH, "config") }? {
        let custom = entry.option == q::QNN_GRAPH_CONFIG_OPTION_CUSTOM;
        // SAFETY: plain data, and the option decides which member it is; what it leads to is the client's promise.
        unsafe { trace::note_config(entry.option, custom.then(|| entry.anon0.customConfig.cast_const())) };
        match entry.option {
            q::QNN_GRAPH_CONFIG_OPTION_CUSTOM
            | q::QNN_GRAPH_CONFIG_OPTION_PRIORITY
            | q::QNN_GRAPH_CONFIG_OPTION_SET_PROFILING_STATE
            | q::QNN_GRAPH_CONFIG_OPTION_SET_PROFILING_NUM_EXECUTIONS => {}
            q::QNN_GRAPH_CONFIG_OPTION_PROFILE_HANDLE => {
                // SAFETY: plain data, and the option decides which member it is.
                find(&PROFILES, unsafe { entry.anon0.profileHandle })?;
            }
            option => return Err(Error::Config { component: GRAPH, option, what: "expected 0 or 3 to 6".to_owned() }),
        }
    }
    Ok(())
}

pub(super) unsafe extern "C" fn create(
    context: Qnn_ContextHandle_t,
    name: *const c_char,
    config: *mut *const QnnGraph_Config_t,
    out: *mut Qnn_GraphHandle_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnGraph_create", || {
        let context = find(&CONTEXTS, context)?;
        set_error_log(context.core.backend.log.as_ref());
        // SAFETY: QNN's contract for the string.
        let name = unsafe { raw::text(name, GRAPH, "graphName") }?;
        // SAFETY: QNN's contract for the list.
        unsafe { read(config.cast_const()) }?;
        raw::place(out, GRAPH, "graphHandle")?;
        let mut graphs = context.graphs.lock();
        if name.is_empty() || graphs.iter().any(|e| e.graph.name == name) {
            return Err(Error::GraphName { name: name.to_owned() });
        }
        let graph = Arc::new(Graph::new(context.core.clone(), name, State::Composing(Box::new(Draft::new(name)))));
        let handle = GRAPHS.add(graph.clone());
        graphs.push(Entry { graph, handle: Some(handle.addr()), enabled: true });
        drop(graphs);
        *context.core.binary.lock() = None;
        // SAFETY: QNN's contract: valid for writing.
        unsafe { raw::write(out, handle, GRAPH, "graphHandle") }
    })
}

pub(super) unsafe extern "C" fn set_config(
    graph: Qnn_GraphHandle_t,
    config: *mut *const QnnGraph_Config_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnGraph_setConfig", || {
        let graph = find(&GRAPHS, graph)?;
        set_error_log(graph.core.backend.log.as_ref());
        // SAFETY: QNN's contract for the list.
        unsafe { read(config.cast_const()) }
    })
}

/// Tells the client the id of a tensor it made.
///
/// # Safety
/// `tensor` must be valid for writing; its version was checked.
unsafe fn tell_id(tensor: *mut Qnn_Tensor_t, id: u32) {
    // SAFETY: the caller's promise; the id is at the same place in both versions.
    unsafe { (*tensor).anon0.v1.id = id };
}

pub(super) unsafe extern "C" fn create_tensor(
    graph: Qnn_GraphHandle_t,
    tensor: *mut Qnn_Tensor_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnTensor_createGraphTensor", || {
        let graph = find(&GRAPHS, graph)?;
        set_error_log(graph.core.backend.log.as_ref());
        // SAFETY: QNN's contract for the tensor and its pointers.
        let view = unsafe { view(raw::reference(tensor.cast_const(), Component::Tensor, "tensor")?) }?;
        let id = graph.draft(|draft| {
            let default = format!("tensor_{}", draft.ir.tensors.len());
            let mut store = graph.core.weights.lock();
            if !store.has_scratch() {
                // SAFETY: as above.
                let (tensor, updateable) = unsafe { view.to_ir(&default, |data| store.intern(data)) }?;
                return draft.add_tensor(tensor, updateable);
            }
            // SAFETY: as above; the values are the client's until `settle` has kept them, within this call.
            let (mut tensor, updateable) = unsafe { view.to_ir_lent(&default, Bytes::copy_from) }?;
            draft.check_tensor(&tensor)?;
            let (watch, total) = (*graph.core.watch.lock(), tensor.size_bytes() as u64);
            let mut go_on = || watch.is_none_or(|watch| watch.tell(0, total));
            let settled = store.settle(&mut tensor, &graph.core.options.lock().shared, &mut go_on);
            settled.map_err(|Stopped| Error::Stopped { tensor: tensor.name.clone() })?;
            draft.add_checked(tensor, updateable)
        })?;
        // SAFETY: as above, and it is the client's to be written.
        unsafe { tell_id(tensor, id.0 + 1) };
        Ok(())
    })
}

/// Context tensors are static tensors that every graph of the context may use.
pub(super) unsafe extern "C" fn create_context_tensor(
    context: Qnn_ContextHandle_t,
    tensor: *mut Qnn_Tensor_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnTensor_createContextTensor", || {
        let context = find(&CONTEXTS, context)?;
        set_error_log(context.core.backend.log.as_ref());
        // SAFETY: QNN's contract for the tensor and its pointers.
        let view = unsafe { view(raw::reference(tensor.cast_const(), Component::Tensor, "tensor")?) }?;
        let keep = |data: &[u8]| context.core.weights.lock().intern(data);
        let mut all = context.core.tensors.write();
        let default = format!("context_tensor_{}", all.len());
        // SAFETY: as above.
        let (made, updateable) = unsafe { view.to_ir(&default, keep) }?;
        if !matches!(made.role, Role::Static(_)) || updateable {
            let what = format!("context tensor `{}` that is not a fixed static one", made.name);
            return Err(Error::Unsupported { component: Component::Tensor, what });
        }
        crate::validate::check_tensor(&made).map_err(Error::TensorParam)?;
        if all.iter().any(|t| t.name == made.name) {
            return Err(Error::TensorExists { graph: "(context)".to_owned(), tensor: made.name });
        }
        let id = all.len() as u32 | CONTEXT_TENSOR;
        all.push(made);
        drop(all);
        // SAFETY: as above, and it is the client's to be written.
        unsafe { tell_id(tensor, id) };
        Ok(())
    })
}

pub(super) unsafe extern "C" fn add_node(graph: Qnn_GraphHandle_t, config: Qnn_OpConfig_t) -> Qnn_ErrorHandle_t {
    guard("QnnGraph_addNode", || {
        let graph = find(&GRAPHS, graph)?;
        set_error_log(graph.core.backend.log.as_ref());
        graph.draft(|draft| {
            // SAFETY: QNN's contract for the pointers in the config.
            let node = unsafe { op_config::to_node(&config, draft, &graph.core) }?;
            draft.add_node(node, &graph.core.backend.packages.lock())
        })
    })
}

pub(super) unsafe extern "C" fn finalize(
    graph: Qnn_GraphHandle_t,
    profile: Qnn_ProfileHandle_t,
    signal: Qnn_SignalHandle_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnGraph_finalize", || {
        let graph = find(&GRAPHS, graph)?;
        set_error_log(graph.core.backend.log.as_ref());
        if !signal.is_null() {
            return Err(Error::Unsupported { component: GRAPH, what: "signals".to_owned() });
        }
        timed(profile, q::QNN_PROFILE_EVENTTYPE_FINALIZE, &graph.name, |_| graph.finalize())?;
        if let Some(log) = graph.core.backend.log.as_ref().filter(|log| log.enabled(Level::Info)) {
            let weights = graph.core.weights.lock().total_bytes();
            log.write(Level::Info, &format!("graph `{}` is ready; {weights} bytes of weights so far", graph.name));
        }
        Ok(())
    })
}

/// The handle of a graph, made when first retrieved; a loaded graph is prepared then.
pub(super) fn retrieve_handle(context: &Context, name: &str) -> Result<Qnn_GraphHandle_t, Error> {
    let graph = {
        let graphs = context.graphs.lock();
        let found = graphs.iter().find(|e| e.graph.name == name && e.enabled);
        let known = || graphs.iter().filter(|e| e.enabled).map(|e| e.graph.name.clone()).collect();
        let entry = found.ok_or_else(|| Error::NoSuchGraph { name: name.to_owned(), known: known() })?;
        if let Some(handle) = entry.handle {
            return Ok(std::ptr::without_provenance_mut(handle));
        }
        entry.graph.clone()
    };
    graph.with_runner(|_| Ok(()))?;
    let mut graphs = context.graphs.lock();
    let gone = || Error::Aborted { graph: name.to_owned() };
    let entry = graphs.iter_mut().find(|e| Arc::ptr_eq(&e.graph, &graph)).ok_or_else(gone)?;
    let handle = *entry.handle.get_or_insert_with(|| GRAPHS.add(graph).addr());
    Ok(std::ptr::without_provenance_mut(handle))
}

pub(super) unsafe extern "C" fn retrieve(
    context: Qnn_ContextHandle_t,
    name: *const c_char,
    out: *mut Qnn_GraphHandle_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnGraph_retrieve", || {
        let context = find(&CONTEXTS, context)?;
        set_error_log(context.core.backend.log.as_ref());
        // SAFETY: QNN's contract for the string.
        let name = unsafe { raw::text(name, GRAPH, "graphName") }?;
        trace::note(|| name.to_owned());
        let handle = retrieve_handle(&context, name)?;
        // SAFETY: QNN's contract: `out` is null or valid for writing.
        unsafe { raw::write(out, handle, GRAPH, "graphHandle") }
    })
}
