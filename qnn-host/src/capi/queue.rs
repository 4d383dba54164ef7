//! Executions that wait: one worker per context, started when first needed, runs them in order.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use qnn_sys as q;
use qnn_sys::{Qnn_NotifyFn_t, Qnn_NotifyStatus_t, Qnn_ProfileHandle_t};

use crate::error::Error;

use super::execute::Binding;
use super::guard::{guard, set_error_log};
use super::objects::Graph;
use super::profile::timed;

/// An execution whose buffers are bound.
pub(super) struct Job {
    graph: Arc<Graph>,
    binding: Binding,
    profile: usize,
    notify: Qnn_NotifyFn_t,
    param: Param,
}

/// The client's word for a job; handed back, never looked at.
struct Param(*mut c_void);

// SAFETY: QNN notifies from a thread of the backend, so the client expects its parameter there.
unsafe impl Send for Param {}

impl Job {
    pub(super) fn new(
        graph: Arc<Graph>,
        binding: Binding,
        profile: Qnn_ProfileHandle_t,
        notify: Qnn_NotifyFn_t,
        param: *mut c_void,
    ) -> Self {
        Self { graph, binding, profile: profile.addr(), notify, param: Param(param) }
    }

    /// Runs it and notifies the client.
    fn run(mut self) {
        let graph = &self.graph;
        let status = guard("QnnGraph_executeAsync", || {
            set_error_log(graph.core.backend.log.as_ref());
            let profile = std::ptr::without_provenance_mut(self.profile);
            timed(profile, q::QNN_PROFILE_EVENTTYPE_EXECUTE, &graph.name, |steps| {
                if graph.closed() {
                    return Err(Error::Aborted { graph: graph.name.clone() });
                }
                graph.with_runner(|runner| {
                    // SAFETY: the buffers were bound by `execute_async`, and QNN's contract keeps them the client's and
                    // untouched until the notification below.
                    unsafe { runner.run(&graph.core, &self.binding, steps) }
                })
            })
        });
        self.binding.mems.clear();
        let (notify, param) = (self.notify, self.param.0);
        drop(self.graph);
        if let Some(notify) = notify {
            // SAFETY: the client's callback, called once, as QNN requires.
            unsafe { notify(param, Qnn_NotifyStatus_t { error: status }) };
        }
    }
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Most jobs that may wait; 0 means any number.
    limit: usize,
    closed: bool,
    worker: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A context's waiting executions.
#[derive(Default)]
pub(super) struct Queue {
    shared: Arc<Shared>,
}

impl Queue {
    /// Sets how many jobs may wait.
    pub(super) fn limit(&self, depth: usize) {
        self.shared.state.lock().limit = depth;
    }

    /// Adds a job; starts the worker if there is none.
    pub(super) fn push(&self, job: Job) -> Result<(), Error> {
        let mut state = self.shared.state.lock();
        if state.closed {
            return Err(Error::Aborted { graph: job.graph.name.clone() });
        }
        if state.limit != 0 && state.jobs.len() >= state.limit {
            return Err(Error::QueueFull { graph: job.graph.name.clone(), depth: state.limit });
        }
        if state.worker.is_none() {
            let shared = self.shared.clone();
            let worker = std::thread::Builder::new().name("qnn-host-queue".to_owned());
            state.worker = Some(worker.spawn(move || work(&shared)).map_err(Error::Thread)?);
        }
        state.jobs.push_back(job);
        self.shared.changed.notify_one();
        Ok(())
    }

    /// Takes no more jobs, aborts those that wait, and waits for the one that runs.
    pub(super) fn close(&self) {
        let worker = {
            let mut state = self.shared.state.lock();
            state.closed = true;
            self.shared.changed.notify_all();
            state.worker.take()
        };
        // A client may free its context inside of a notification, that is, on the worker itself.
        if let Some(worker) = worker.filter(|w| w.thread().id() != std::thread::current().id()) {
            // The worker catches panics of its jobs; should it die all the same, there is nothing to wait for.
            let _ = worker.join();
        }
    }
}

fn work(shared: &Shared) {
    loop {
        let job = {
            let mut state = shared.state.lock();
            loop {
                if let Some(job) = state.jobs.pop_front() {
                    break job;
                }
                if state.closed {
                    return;
                }
                shared.changed.wait(&mut state);
            }
        };
        job.run();
    }
}
