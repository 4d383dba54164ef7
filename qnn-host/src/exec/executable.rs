//! A graph ready to run.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Profile;
use super::schedule::{self, ScheduledStep};
use crate::bytes::Bytes;
use crate::graph::ExecError;
use crate::graph::typed::{Node, Port, Source, TypedGraph};
use crate::kernels::Isa;
use crate::pool::{Pool, TeamSize, Worker};
use crate::step::{Arena, ClientBuffer, Fault, RunContext};

/// A checked, fused and planned graph. It holds weights and no state, so it can be shared between threads.
pub struct Executable {
    steps: Vec<ScheduledStep>,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    /// Outputs that may be the very buffer of an input: `(input, output)`.
    updates: Vec<(usize, usize)>,
    /// Bytes of arena for values; scratch follows.
    value_bytes: usize,
    /// The graph's.
    name: String,
    isa: Isa,
    /// Weights are in a mapped file, and leave memory when they were read.
    lets_weights_go: bool,
    team_size: TeamSize,
}

impl Executable {
    /// Plans a legal net.
    pub(crate) fn from_net(net: TypedGraph, fast: bool) -> Result<Self, ExecError> {
        let built = schedule::schedule(&net, fast)?;
        let updates = if fast { updates(&net) } else { Vec::new() };
        let TypedGraph { name, inputs, outputs, .. } = net;
        let (steps, value_bytes) = (built.steps, built.value_bytes);
        let (isa, team_size) = (Isa::detect(), TeamSize::default());
        let lets_weights_go = false;
        let executable = Self { steps, inputs, outputs, updates, value_bytes, name, isa, lets_weights_go, team_size };
        let bytes = executable.arena_bytes(1);
        let memory = Vec::<u8>::new().try_reserve_exact(bytes);
        memory.map_err(|_| executable.no_memory(bytes))?;
        Ok(executable)
    }

    fn no_memory(&self, bytes: usize) -> ExecError {
        let what = format!("a run needs {} kB of memory, the system gives none", bytes.div_ceil(1000));
        ExecError::Graph { graph: self.name.clone(), what }
    }

    /// Makes an arena large enough for runs with that many threads.
    ///
    /// # Errors
    /// The system gives no memory.
    pub(crate) fn reserve(&self, arena: &mut Arena, threads: usize) -> Result<(), ExecError> {
        let bytes = self.arena_bytes(threads);
        arena.ensure(bytes).map_err(|_| self.no_memory(bytes))
    }

    /// Has weights leave memory when they were read, if `on`: they must lie in shared, read-only mappings of files.
    pub(crate) fn letting_weights_go(self, on: bool) -> Self {
        Self { lets_weights_go: on, ..self }
    }

    /// Lets the weights of some steps go.
    fn let_go(&self, steps: &[ScheduledStep]) {
        if self.lets_weights_go {
            // SAFETY: the client has promised that its memory is such a mapping (`HOST_CONTEXT_OPTION_MAPPED`).
            let mut forget = |bytes: &Bytes| unsafe { bytes.forget_client_pages() };
            steps.iter().for_each(|scheduled| scheduled.step.weights(&mut forget));
        }
    }

    /// Bytes of arena that a run with that many threads needs.
    pub fn arena_bytes(&self, threads: usize) -> usize {
        let scratch = self.steps.iter().map(|scheduled| scheduled.step.scratch_bytes(threads)).max().unwrap_or(0);
        self.value_bytes + scratch
    }

    /// Which output may be bound to the very buffer of which input, as `(input, output)`: it is updated in place then.
    pub(crate) fn updates(&self) -> &[(usize, usize)] {
        &self.updates
    }

    /// Runs once. `inputs` and `outputs` hold one buffer for each of the graph's inputs and outputs, in the order in which
    /// these tensors were made; sizes as declared, any alignment. The arena grows if it is too small. Output bytes are unspecified after an error.
    ///
    /// # Errors
    /// Buffers of the wrong number or size; an index read from an input that is out of range.
    pub fn run(
        &self,
        pool: &Pool,
        arena: &mut Arena,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        profile: Option<&mut dyn Profile>,
    ) -> Result<(), ExecError> {
        let inputs: Vec<_> = inputs.iter().map(|bytes| ClientBuffer::reading(bytes)).collect();
        let outputs: Vec<_> = outputs.iter_mut().map(|bytes| ClientBuffer::writing(bytes)).collect();
        // SAFETY: borrowed for this call, the outputs for this call alone; references never share bytes with one to write.
        unsafe { self.run_at(pool, arena, &inputs, &outputs, profile) }
    }

    /// As [`Executable::run`], by address. To allocate nothing here, [`Executable::reserve`] before.
    ///
    /// # Safety
    /// Until it returns, inputs are readable, outputs are writable and reached by nothing else; they share no bytes, except
    /// that an output may be the buffer of its input in [`Executable::updates`].
    pub(crate) unsafe fn run_at(
        &self,
        pool: &Pool,
        arena: &mut Arena,
        inputs: &[ClientBuffer],
        outputs: &[ClientBuffer],
        profile: Option<&mut dyn Profile>,
    ) -> Result<(), ExecError> {
        check(&self.inputs, "input", inputs.iter().map(|b| b.len))?;
        check(&self.outputs, "output", outputs.iter().map(|b| b.len))?;
        self.reserve(arena, pool.threads())?;
        // SAFETY: the caller's promise.
        let cx = unsafe { RunContext::new(self.isa, arena, self.value_bytes, inputs, outputs) };
        let failure = Failure { phase: AtomicUsize::new(usize::MAX), first: Mutex::new(None) };
        let times: Option<Vec<AtomicU64>> =
            profile.is_some().then(|| self.steps.iter().map(|_| AtomicU64::new(0)).collect());
        let began = times.as_ref().map(|_| Instant::now());
        pool.run_of(&self.team_size, &|worker| self.walk(&cx, worker, &failure, times.as_deref()));
        let last = self.steps.last().map_or(0, |last| last.phase);
        self.let_go(&self.steps[self.steps.partition_point(|scheduled| scheduled.phase < last)..]);
        if let (Some(began), Some([first @ .., last])) = (began, times.as_deref()) {
            // The last step ends when all threads are done, as the last of every phase does.
            let before: u64 = first.iter().map(|time| time.load(Ordering::Relaxed)).sum();
            last.store(nanoseconds(began.elapsed()).saturating_sub(before), Ordering::Relaxed);
        }
        if let Some((_, error)) = failure.first.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        if let (Some(profile), Some(times)) = (profile, times) {
            for (scheduled, time) in self.steps.iter().zip(times) {
                profile.step(&scheduled.name, scheduled.label, time.into_inner());
            }
        }
        Ok(())
    }

    /// What its steps are, in order; for tests.
    #[cfg(test)]
    pub(crate) fn labels(&self) -> Vec<&'static str> {
        self.steps.iter().map(|scheduled| scheduled.label).collect()
    }

    /// Stretches between barriers; for tests.
    #[cfg(test)]
    pub(crate) fn phases(&self) -> usize {
        self.steps.last().map_or(0, |scheduled| scheduled.phase + 1)
    }

    /// All steps, on one of the threads.
    fn walk(&self, cx: &RunContext<'_>, worker: Worker<'_>, failure: &Failure, times: Option<&[AtomicU64]>) {
        let times = times.filter(|_| worker.index() == 0);
        let mut since = times.map(|_| Instant::now());
        let mut phase_began = 0;
        for (index, scheduled) in self.steps.iter().enumerate() {
            if let Err(fault) = scheduled.step.run(cx, worker) {
                failure.report(scheduled, index, fault);
            }
            let next = self.steps.get(index + 1);
            if next.is_some_and(|next| next.phase != scheduled.phase) {
                worker.barrier();
                // A report of this phase or an earlier one was made before the barrier, so all threads leave here.
                if failure.phase.load(Ordering::Acquire) <= scheduled.phase {
                    return;
                }
                if worker.index() == 0 {
                    self.let_go(&self.steps[phase_began..=index]);
                }
                phase_began = index + 1;
            }
            if let (Some(times), Some(since)) = (times, &mut since) {
                let now = Instant::now();
                let elapsed = now.duration_since(std::mem::replace(since, now));
                times[index].store(nanoseconds(elapsed), Ordering::Relaxed);
            }
        }
    }
}

/// Pairs of input and output that may be one buffer: of the steps that go last, except for inputs that two of those read.
fn updates(net: &TypedGraph) -> Vec<(usize, usize)> {
    let last: Vec<_> = net.nodes.iter().filter(|node| !node.op.updates().is_empty()).collect();
    let reads = |node: &Node, input: usize| {
        let is_it = |id: &_| matches!(net.value(net.root(*id)).source, Source::Input(i) if i == input);
        node.inputs.iter().any(is_it)
    };
    let alone = |input: usize| last.iter().filter(|node| reads(node, input)).count() == 1;
    let all = last.iter().flat_map(|node| node.op.updates());
    all.filter(|update| alone(update.input)).map(|update| (update.input, update.output)).collect()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The first failure of a run.
struct Failure {
    /// First phase in which a step failed.
    phase: AtomicUsize,
    /// The step's place in the list, and its error.
    first: Mutex<Option<(usize, ExecError)>>,
}

impl Failure {
    fn report(&self, scheduled: &ScheduledStep, index: usize, fault: Fault) {
        let error = match fault {
            Fault::Index { index, limit } => ExecError::Index { node: scheduled.name.to_string(), index, limit },
            Fault::Package { code } => {
                let (node, op) = (scheduled.name.to_string(), scheduled.label.to_owned());
                ExecError::Package { node, op, call: "opImplFn", code }
            }
        };
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.as_ref().is_none_or(|&(earlier, _)| index < earlier) {
            *first = Some((index, error));
        }
        self.phase.fetch_min(scheduled.phase, Ordering::Release);
    }
}

fn check(
    ports: &[Port],
    direction: &'static str,
    sizes: impl ExactSizeIterator<Item = usize>,
) -> Result<(), ExecError> {
    if sizes.len() != ports.len() {
        return Err(ExecError::BufferCount { direction, expected: ports.len(), found: sizes.len() });
    }
    for (port, found) in ports.iter().zip(sizes) {
        let expected = port.n_elems * port.dtype.size_bytes();
        if found != expected {
            return Err(ExecError::BufferSize { tensor: port.name.to_string(), expected, found });
        }
    }
    Ok(())
}

impl fmt::Debug for Executable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<_> = self.steps.iter().map(|s| (s.phase, s.label, &*s.name)).collect();
        f.debug_struct("Executable")
            .field("value_bytes", &self.value_bytes)
            .field("steps", &steps)
            .finish_non_exhaustive()
    }
}
