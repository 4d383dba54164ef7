//! The executor over a QNN backend: one finalised graph for each graph of the layout, all loaded or one binary at a time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use nsp_graph::ModelLayout;
use qnn_api::{Backend, Context, Graph, SharedMemory};

use crate::load::Reading;
use crate::profile::GraphRun;
use crate::weights_to_memory::WeightsToMemory;
use crate::{Binding, EngineError, ExecuteError, Executor, GraphProfile};

/// Graphs of context binaries, by split and then by graph. Each keeps its context alive.
#[derive(Debug)]
pub struct QnnExecutor {
    graphs: Graphs,
    /// By split and graph: its binary.
    binaries: Vec<Vec<usize>>,
    profile: Option<GraphProfile>,
    /// Behind the graphs, so that they are gone when it is dropped.
    to_memory: WeightsToMemory,
}

#[derive(Debug)]
enum Graphs {
    All(Vec<Vec<Graph>>),
    OnDemand(Box<OnDemand>),
}

/// Binaries of which at most one is loaded.
#[derive(Debug)]
struct OnDemand {
    backend: Arc<Backend>,
    paths: Vec<PathBuf>,
    reading: Reading,
    /// By split and graph: its binary and name.
    places: Vec<Vec<(usize, String)>>,
    loaded: Option<Loaded>,
    shared: Option<Arc<SharedMemory>>,
}

#[derive(Debug)]
struct Loaded {
    binary: usize,
    /// By split and graph: those that have run since. They keep the context.
    graphs: Vec<Vec<Option<Graph>>>,
    context: Context,
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
        let graphs = layout.splits.iter().map(split).collect::<Result<_, _>>()?;
        Ok(Self::with(Graphs::All(graphs), binaries(layout)))
    }

    /// Graphs of one split, in the order of their numbers.
    pub fn of_graphs(graphs: Vec<Graph>) -> Self {
        Self::with(Graphs::All(vec![graphs]), Vec::new())
    }

    /// Loads a binary when one of its graphs is to run, and frees it when another's is. `paths` are those of the binaries
    /// that the layout was made from.
    pub fn on_demand(layout: &ModelLayout, backend: &Arc<Backend>, paths: &[PathBuf], reading: Reading) -> Self {
        let place = |g: &nsp_graph::GraphLayout| (g.binary, g.info.name.clone());
        let places = layout.splits.iter().map(|s| s.graphs.iter().map(place).collect()).collect();
        let on_demand =
            OnDemand { backend: backend.clone(), paths: paths.to_vec(), reading, places, loaded: None, shared: None };
        Self::with(Graphs::OnDemand(Box::new(on_demand)), binaries(layout))
    }

    fn with(graphs: Graphs, binaries: Vec<Vec<usize>>) -> Self {
        Self { graphs, binaries, profile: None, to_memory: WeightsToMemory::default() }
    }

    /// Moves weights that the backend reads from mapped files into memory, behind the first steps.
    pub(crate) fn move_weights_to_memory(&mut self, contexts: &[Context]) {
        self.to_memory = WeightsToMemory::of(contexts, self.binaries.len().max(1));
    }

    /// Binds buffers that lie in that memory by handle from now on.
    pub fn share(&mut self, memory: &Arc<SharedMemory>) {
        match &mut self.graphs {
            Graphs::All(graphs) => graphs.iter_mut().flatten().for_each(|graph| graph.share(memory)),
            Graphs::OnDemand(on_demand) => on_demand.shared = Some(memory.clone()),
        }
    }

    /// The binary that is loaded now, by its place in the list, where one is at a time.
    pub fn loaded(&self) -> Option<usize> {
        match &self.graphs {
            Graphs::All(_) => None,
            Graphs::OnDemand(on_demand) => on_demand.loaded.as_ref().map(|loaded| loaded.binary),
        }
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
        let graph = match &mut self.graphs {
            Graphs::All(graphs) => &mut graphs[split][graph],
            Graphs::OnDemand(on_demand) => on_demand.graph(split, graph)?,
        };
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
                Binding::InPlace(input, output, bytes) => session.in_place(input, output, bytes)?,
            };
        }
        self.to_memory.count();
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

    fn finish_loading(&mut self) {
        self.to_memory.finish();
    }

    fn apply_sections(&mut self, binary: usize, section: &[u8]) -> Result<(), ExecuteError> {
        let Graphs::All(graphs) = &mut self.graphs else {
            return Err("binaries are loaded on demand, where what replaces their parts would be lost".into());
        };
        let all = graphs.iter_mut().zip(&self.binaries).flat_map(|(split, binaries)| split.iter_mut().zip(binaries));
        for (graph, _) in all.filter(|(_, of)| **of == binary) {
            graph.apply_binary_section(section)?;
        }
        Ok(())
    }
}

fn binaries(layout: &ModelLayout) -> Vec<Vec<usize>> {
    layout.splits.iter().map(|split| split.graphs.iter().map(|graph| graph.binary).collect()).collect()
}

impl OnDemand {
    /// The graph, of a binary that is loaded now.
    fn graph(&mut self, split: usize, graph: usize) -> Result<&mut Graph, EngineError> {
        let (binary, name) = &self.places[split][graph];
        if self.loaded.as_ref().is_none_or(|loaded| loaded.binary != *binary) {
            // Freed first: there is to be memory for one.
            self.loaded = None;
            let path = &self.paths[*binary];
            let (context, _) = self.reading.context(&self.backend, path, None)?;
            tracing::debug!(path = %path.display(), "context binary loaded on demand");
            let graphs = self.places.iter().map(|split| split.iter().map(|_| None).collect()).collect();
            self.loaded = Some(Loaded { binary: *binary, graphs, context });
        }
        let loaded = self.loaded.as_mut().expect("just loaded");
        let slot = &mut loaded.graphs[split][graph];
        if slot.is_none() {
            let found = loaded.context.graph(name);
            let mut found = found.map_err(|source| EngineError::FindGraph { graph: name.clone(), source })?;
            if let Some(memory) = &self.shared {
                found.share(memory);
            }
            *slot = Some(found);
        }
        Ok(slot.as_mut().expect("just found"))
    }
}
