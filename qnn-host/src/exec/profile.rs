//! Times of the steps of a run, on request.

/// Receives the time of each step, in execution order, after the run.
pub trait Profile {
    /// Called once a step: the name of the node (of the last one, for fused steps), what ran, and for how long.
    fn step(&mut self, name: &str, op: &str, elapsed_ns: u64);
}

/// A [`Profile`] that keeps everything.
#[derive(Clone, Debug, Default)]
pub struct StepTimes {
    /// `(name, op, nanoseconds)` in execution order.
    pub steps: Vec<(String, String, u64)>,
}

impl Profile for StepTimes {
    fn step(&mut self, name: &str, op: &str, elapsed_ns: u64) {
        self.steps.push((name.to_owned(), op.to_owned(), elapsed_ns));
    }
}
