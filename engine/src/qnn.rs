//! The executor over a QNN backend: one finalised graph for each graph of the layout.

use std::time::Instant;

use nsp_graph::ModelLayout;
use qnn_api::{Context, Graph};

use crate::profile::GraphRun;
use crate::{Binding, EngineError, ExecuteError, Executor, GraphProfile};

/// Graphs of loaded context binaries, by split and then by graph. Each keeps its context alive.
#[derive(Debug)]
pub struct QnnExecutor {
    graphs: Vec<Vec<Graph>>,
    profile: Option<GraphProfile>,
}

impl QnnExecutor {
    /// Finds every graph of the layout once. `contexts` are parallel to the binaries that the layout was made from.
    ///
    /// # Errors
    ///
    /// [`EngineError::FindGraph`] if the backend does not know a graph that the binary's description has.
    pub fn new(layout: &ModelLayout, contexts: &[Context]) -> Result<Self, EngineError> {
        let find = |g: &nsp_graph::GraphLayout| {
            let found = contexts[g.binary].graph(&g.info.name);
            found.map_err(|source| EngineError::FindGraph { graph: g.info.name.clone(), source })
        };
        let split = |s: &nsp_graph::Split| s.graphs.iter().map(find).collect::<Result<Vec<_>, _>>();
        Ok(Self { graphs: layout.splits.iter().map(split).collect::<Result<_, _>>()?, profile: None })
    }

    /// Collects the backend's profile events of every run from now on; costs time.
    pub fn set_profile(&mut self, profile: Option<GraphProfile>) {
        self.profile = profile;
    }
}

impl Executor for QnnExecutor {
    fn execute<'io>(
        &mut self,
        split: usize,
        graph: usize,
        io: &mut dyn Iterator<Item = Binding<'io>>,
    ) -> Result<(), ExecuteError> {
        let graph = &mut self.graphs[split][graph];
        let events = match &self.profile {
            Some(profile) => {
                let began = Instant::now();
                Some((profile, profile.begin(graph.backend())?, began.elapsed()))
            }
            None => None,
        };
        let mut session = graph.session();
        for binding in io {
            match binding {
                Binding::Input(tensor, bytes) => session.input(tensor, bytes)?,
                Binding::Output(tensor, bytes) => session.output(tensor, bytes)?,
            };
        }
        match &events {
            None => Ok(session.run()?),
            Some((profile, events, made)) => {
                let began = Instant::now();
                session.run_profiled(events)?;
                let took = began.elapsed();
                let (graph, events) = (session.info().name.clone(), events.events()?);
                let overhead = *made + began.elapsed() - took;
                profile.add(GraphRun { graph, began, took, overhead, events });
                Ok(())
            }
        }
    }
}
