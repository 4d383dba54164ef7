//! Executions: the client's tensors bound to a prepared graph, run at once or put into the queue.

use std::ffi::c_void;

use qnn_sys as q;
use qnn_sys::{
    Qnn_ErrorHandle_t, Qnn_GraphHandle_t, Qnn_NotifyFn_t, Qnn_ProfileHandle_t, Qnn_SignalHandle_t, Qnn_Tensor_t,
};

use crate::error::{Component, Error};

use super::execute::{Binding, ClientTensor, Runner};
use super::guard::{guard, set_error_log};
use super::objects::{GRAPHS, find};
use super::profile::timed;
use super::queue::Job;
use super::raw;
use super::tensor::view;
use super::trace;

const GRAPH: Component = Component::Graph;

/// A binding for one run: lets go of registered memory when that is over, however it ends.
struct OneRun<'a>(&'a mut Binding);

impl Drop for OneRun<'_> {
    fn drop(&mut self) {
        self.0.mems.clear();
    }
}

/// Fills a binding from the client's two lists.
///
/// # Safety
/// The tensors' pointers must be as QNN requires.
unsafe fn bind(
    runner: &Runner,
    binding: &mut Binding,
    inputs: &[Qnn_Tensor_t],
    outputs: &[Qnn_Tensor_t],
) -> Result<(), Error> {
    runner.start(binding);
    trace::note(|| {
        let by_handle = |t: &&Qnn_Tensor_t| {
            // SAFETY: plain data at the same place in both versions of the struct.
            unsafe { t.anon0.v1 }.memType == q::QNN_TENSORMEMTYPE_MEMHANDLE
        };
        let all = || inputs.iter().chain(outputs);
        let versions = all().map(|t| t.version).collect::<std::collections::BTreeSet<_>>();
        let (n_in, n_out, n_mem) = (inputs.len(), outputs.len(), all().filter(by_handle).count());
        format!("{} in {n_in} out {n_out}, tensor versions {versions:?}, by handle {n_mem}", runner.ir.name)
    });
    for (list, as_input) in [(inputs, true), (outputs, false)] {
        for tensor in list {
            // SAFETY: the caller's promise.
            let view = unsafe { view(tensor) }?;
            let buffer = view.buffer(&mut binding.mems)?;
            let given = ClientTensor { id: view.id, dtype: view.dtype, dims: view.dims, buffer };
            runner.bind(binding, &given, as_input)?;
        }
    }
    Ok(())
}

fn check_counts(runner: &Runner, n_inputs: u32, n_outputs: u32) -> Result<(), Error> {
    let (inputs, outputs) = runner.counts();
    for (what, want, have) in [("inputs", inputs, n_inputs), ("outputs", outputs, n_outputs)] {
        if want != have as usize {
            let what = format!("graph `{}`: expected {want} {what}, found {have}", runner.ir.name);
            return Err(Error::Argument { component: GRAPH, what });
        }
    }
    Ok(())
}

pub(super) unsafe extern "C" fn execute(
    graph: Qnn_GraphHandle_t,
    inputs: *const Qnn_Tensor_t,
    n_inputs: u32,
    outputs: *mut Qnn_Tensor_t,
    n_outputs: u32,
    profile: Qnn_ProfileHandle_t,
    signal: Qnn_SignalHandle_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnGraph_execute", || {
        let graph = find(&GRAPHS, graph)?;
        set_error_log(graph.core.backend.log.as_ref());
        if !signal.is_null() {
            return Err(Error::Unsupported { component: GRAPH, what: "signals".to_owned() });
        }
        graph.with_runner(|runner| {
            check_counts(runner, n_inputs, n_outputs)?;
            // SAFETY: QNN's contract: as many tensors as stated.
            let ins = unsafe { raw::slice(inputs, n_inputs as usize, GRAPH, "inputs") }?;
            // SAFETY: as above.
            let outs = unsafe { raw::slice(outputs.cast_const(), n_outputs as usize, GRAPH, "outputs") }?;
            timed(profile, q::QNN_PROFILE_EVENTTYPE_EXECUTE, &graph.name, |steps| {
                let mut binding = runner.binding.lock();
                let binding = OneRun(&mut binding);
                // SAFETY: QNN's contract for the tensors.
                unsafe { bind(runner, binding.0, ins, outs) }?;
                // SAFETY: QNN's contract for the buffers: the client's, and left alone until this call returns.
                unsafe { runner.run(&graph.core, binding.0, steps) }
            })
        })
    })
}

pub(super) unsafe extern "C" fn execute_async(
    graph: Qnn_GraphHandle_t,
    inputs: *const Qnn_Tensor_t,
    n_inputs: u32,
    outputs: *mut Qnn_Tensor_t,
    n_outputs: u32,
    profile: Qnn_ProfileHandle_t,
    signal: Qnn_SignalHandle_t,
    notify: Qnn_NotifyFn_t,
    param: *mut c_void,
) -> Qnn_ErrorHandle_t {
    guard("QnnGraph_executeAsync", || {
        let graph = find(&GRAPHS, graph)?;
        set_error_log(graph.core.backend.log.as_ref());
        if !signal.is_null() {
            return Err(Error::Unsupported { component: GRAPH, what: "signals".to_owned() });
        }
        let mut binding = Binding::default();
        graph.with_runner(|runner| {
            check_counts(runner, n_inputs, n_outputs)?;
            // SAFETY: QNN's contract: as many tensors as stated.
            let ins = unsafe { raw::slice(inputs, n_inputs as usize, GRAPH, "inputs") }?;
            // SAFETY: as above.
            let outs = unsafe { raw::slice(outputs.cast_const(), n_outputs as usize, GRAPH, "outputs") }?;
            // SAFETY: QNN's contract for the tensors. The buffers stay valid until the notification.
            unsafe { bind(runner, &mut binding, ins, outs) }
        })?;
        let core = graph.core.clone();
        core.queue.push(Job::new(graph, binding, profile, notify, param))
    })
}
