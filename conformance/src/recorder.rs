//! An executor that notes what it feeds, in the form of the recordings of libGenie's dialogs (`dialogs/*.json`): the graph, the
//! ids, the attended columns of each row and its position.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use engine::{Binding, Engine, EngineConfig, ExecuteError, Executor, LutDtype, QnnExecutor};
use genie_types::GraphInfo;
use half::f16;
use nsp_graph::{BinaryGraphs, Options, analyze};
use qnn_api::{Backend, Context, ContextOptions};
use serde_json::Value;

/// One execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// The graph's name.
    pub graph: String,
    /// The ids, padding included; found by their embeddings where a graph takes those.
    pub ids: Vec<u32>,
    /// For each row the ranges of columns that it attends, as `0-5 127`.
    pub mask: Vec<String>,
    /// For each row the position that its cosines and sines are of.
    pub positions: Vec<usize>,
}

impl Execution {
    /// As a recording has it.
    ///
    /// # Panics
    /// It is not understood.
    pub fn recorded(json: &Value) -> Self {
        let numbers = |key: &str| -> Vec<u64> {
            json[key].as_array().map_or(Vec::new(), |list| list.iter().map(|n| n.as_u64().expect("a number")).collect())
        };
        let graph = json["graph"].as_str().expect("a graph's name");
        let mask = json["mask"].as_array().expect("a mask").iter().map(|row| row.as_str().expect("a row").to_owned());
        Self {
            graph: graph.split_once(':').map_or(graph, |(_, name)| name).to_owned(),
            ids: numbers("ids").iter().map(|&n| n as u32).collect(),
            mask: mask.collect(),
            positions: numbers("pos").iter().map(|&n| n as usize).collect(),
        }
    }
}

/// What was fed so far; clones see the same.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<Execution>>>);

impl Log {
    /// Takes out what came since the last look.
    ///
    /// # Panics
    /// A thread has failed while it noted an execution.
    pub fn take(&self) -> Vec<Execution> {
        std::mem::take(&mut self.0.lock().expect("no thread fails here"))
    }
}

/// Notes executions and passes them on.
#[derive(Debug)]
pub struct Recorder {
    inner: QnnExecutor,
    /// By split and graph.
    graphs: Vec<Vec<GraphInfo>>,
    /// The angle of the last pair at position 1.
    slowest: f64,
    /// Ids by their rows of embeddings in float16.
    ids: HashMap<Vec<u8>, u32>,
    log: Log,
}

/// Opens an engine whose executions are noted.
///
/// # Panics
/// The binaries do not load, or are no model.
pub fn open(config: &EngineConfig, backend: &Arc<Backend>) -> (Engine<Recorder>, Log) {
    let log = Log::default();
    (open_into(config, backend, log.clone()), log)
}

/// The same, with the executions noted beside those of another engine.
///
/// # Panics
/// As [`open`]; the table of embeddings cannot be read.
pub fn open_into(config: &EngineConfig, backend: &Arc<Backend>, log: Log) -> Engine<Recorder> {
    let contexts: Vec<Context> = config
        .ctx_bins
        .iter()
        .map(|path| Context::from_file(backend, path, &ContextOptions::default()).expect("the binary loads"))
        .collect();
    let binaries: Vec<_> = contexts
        .iter()
        .map(|context| BinaryGraphs { source: "model.bin".into(), graphs: context.graphs().cloned().collect() })
        .collect();
    let (groups, select) = (config.cache_groups.clone(), config.select_graphs.clone());
    let options = Options { groups, select, ..Options::default() };
    let layout = analyze(&binaries, &options).expect("the graphs are a model");
    let inner = QnnExecutor::new(&layout, &contexts).expect("the backend has the graphs");
    let graphs = layout.splits.iter().map(|s| s.graphs.iter().map(|g| g.info.clone()).collect()).collect();
    let frequencies = config.rope.as_ref().map(|rope| rope.angles(config.context_size.unwrap_or(0)).frequencies);
    let slowest = frequencies.and_then(|list| list.last().copied()).unwrap_or(0.0);
    let recorder = Recorder { inner, graphs, slowest, ids: ids_of_rows(config), log };
    Engine::with_executor(layout, recorder, config).expect("the engine opens")
}

/// The rows of a float32 table as graphs get them; none without one.
fn ids_of_rows(config: &EngineConfig) -> HashMap<Vec<u8>, u32> {
    let Some(table) = config.embedding.as_ref().filter(|table| table.dtype == LutDtype::Float32) else {
        return HashMap::new();
    };
    let bytes = std::fs::read(&table.path).expect("the table of embeddings");
    let number = |b: &[u8]| f16::from_f32(f32::from_le_bytes([b[0], b[1], b[2], b[3]])).to_le_bytes();
    let row = |row: &[u8]| row.chunks_exact(4).flat_map(number).collect();
    bytes.chunks_exact(table.size * 4).map(row).zip(0..).collect()
}

impl Executor for Recorder {
    fn execute<'io>(
        &mut self,
        split: usize,
        graph: usize,
        io: &mut dyn Iterator<Item = Binding<'io>>,
    ) -> Result<(), ExecuteError> {
        let info = &self.graphs[split][graph];
        let mut noted =
            Execution { graph: info.name.clone(), ids: Vec::new(), mask: Vec::new(), positions: Vec::new() };
        let (slowest, ids) = (self.slowest, &self.ids);
        let mut seen = io.inspect(|binding| {
            let Binding::Input(i, bytes) = binding else { return };
            let tensor = &info.inputs[*i];
            let width = tensor.dims.last().copied().unwrap_or(1);
            let floats =
                || bytes.chunks_exact(2).map(|b| f64::from(f16::from_le_bytes([b[0], b[1]]))).collect::<Vec<_>>();
            match tensor.name.as_str() {
                "input_ids" => {
                    let ids = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                    noted.ids = ids.collect();
                }
                "inputs_embeds" => {
                    let rows = bytes.chunks_exact(width * 2);
                    noted.ids = rows.map_while(|row| ids.get(row).copied()).collect();
                }
                "attention_mask" => noted.mask = floats().chunks_exact(width).map(columns).collect(),
                "position_ids_sin" => {
                    let position = |row: &[f64]| (row[width - 1].asin() / slowest).round() as usize;
                    noted.positions = floats().chunks_exact(width).map(position).collect();
                }
                _ => {}
            }
        });
        let done = self.inner.execute(split, graph, &mut seen);
        self.log.0.lock().expect("no thread fails here").push(noted);
        done
    }
}

/// The visible columns as ranges.
fn columns(row: &[f64]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for column in (0..row.len()).filter(|&column| row[column] == 0.0) {
        match ranges.last_mut() {
            Some(range) if range.1 + 1 == column => range.1 = column,
            _ => ranges.push((column, column)),
        }
    }
    let text = |(a, b): &(usize, usize)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    ranges.iter().map(text).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_as_the_recordings_write_them() {
        let row = [0.0, 0.0, -1000.0, 0.0, -1000.0, 0.0, 0.0];
        assert_eq!(columns(&row), "0-1 3 5-6");
        assert_eq!(columns(&[-1000.0]), "");
    }
}
