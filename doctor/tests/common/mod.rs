//! Real bundles on disk: one that the compiler made, and toys whose graphs have any signature one likes.

#![allow(dead_code)] // each test target uses a part

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family, Silent, compile};
use doctor::{Finding, Request, Surroundings, collect, examine};
use genie_types::{Dtype, GraphInfo, Quant, TensorInfo};
use qnn_api::{Backend, BackendOptions, Context, GraphOptions, Library, SystemLibrary, TensorKind};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The embedded backend.
pub fn host() -> std::sync::Arc<Backend> {
    let library = Library::linked(qnn_host::providers());
    Backend::new(&library.unwrap(), &BackendOptions::default()).unwrap()
}

/// Its system interface, as the program gives it to the collector.
pub fn readers() -> [(&'static str, SystemLibrary); 1] {
    [("embedded backend", SystemLibrary::linked(qnn_host::providers()).unwrap())]
}

/// A machine without any QNN library.
pub fn bare(cwd: &Path) -> Surroundings {
    Surroundings { arch: std::env::consts::ARCH.into(), cwd: Some(cwd.to_owned()), ..Surroundings::default() }
}

/// A folder of one's own with a bundle.
pub struct Bundle {
    dir: TempDir,
    /// What is asked about it.
    pub request: Request,
    /// The machine it is asked on.
    pub surroundings: Surroundings,
}

impl Bundle {
    /// A copy of the bundle that the compiler made of a small random Llama.
    pub fn compiled() -> Self {
        static GOOD: OnceLock<TempDir> = OnceLock::new();
        let good = GOOD.get_or_init(|| {
            let dir = tempfile::tempdir().unwrap();
            TestModel::tiny(Family::Llama).write(&dir.path().join("model")).unwrap();
            let mut options = CompileOptions::new(dir.path().join("model"), dir.path().join("bundle"));
            (options.ars, options.cls) = (vec![1, 8], vec![32]);
            compile(&options, &host(), &mut Silent).unwrap();
            dir
        });
        Self::copy_of(&good.path().join("bundle"))
    }

    /// A copy of a folder's files.
    pub fn copy_of(folder: &Path) -> Self {
        let bundle = Self::empty();
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            // Golden files are read-only; a copy is there to be broken.
            std::fs::write(bundle.at(&entry.file_name().to_string_lossy()), std::fs::read(entry.path()).unwrap())
                .unwrap();
        }
        bundle
    }

    /// Toy graphs, one binary for each list, with config and tokenizer.
    pub fn toy(binaries: &[(&str, Vec<GraphInfo>)]) -> Self {
        let bundle = Self::empty();
        std::fs::copy(Self::compiled().at("tokenizer.json"), bundle.at("tokenizer.json")).unwrap();
        for (name, graphs) in binaries {
            compose(&bundle.at(name), graphs);
        }
        let names: Vec<&str> = binaries.iter().map(|(name, _)| *name).collect();
        std::fs::write(bundle.at("genie_config.json"), toy_config(&names).to_string()).unwrap();
        bundle
    }

    /// The sound toy: AR-1 and AR-8 in one binary.
    pub fn whole_toy(change: impl Fn(&mut GraphInfo)) -> Self {
        let mut graphs = vec![graph(1, 64), graph(8, 64)];
        graphs.iter_mut().for_each(change);
        Self::toy(&[("model.bin", graphs)])
    }

    fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let request = Request { subject: Some(dir.path().to_owned()), ..Request::default() };
        let surroundings = bare(Path::new("/"));
        Self { dir, request, surroundings }
    }

    /// A path in the bundle.
    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Sets a value of the config, or takes it out with `null`.
    pub fn set(self, pointer: &str, value: Value) -> Self {
        let path = self.at("genie_config.json");
        let mut document: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let (block, key) = pointer.rsplit_once('/').unwrap();
        let block = document.pointer_mut(block).and_then(Value::as_object_mut).unwrap();
        match value {
            Value::Null => drop(block.remove(key)),
            value => drop(block.insert(key.to_owned(), value)),
        }
        std::fs::write(&path, document.to_string()).unwrap();
        self
    }

    /// Changes a file's bytes.
    pub fn edit(self, name: &str, change: impl Fn(&mut Vec<u8>)) -> Self {
        let mut bytes = std::fs::read(self.at(name)).unwrap_or_default();
        change(&mut bytes);
        std::fs::write(self.at(name), bytes).unwrap();
        self
    }

    /// Takes a file away.
    pub fn without(self, name: &str) -> Self {
        std::fs::remove_file(self.at(name)).unwrap();
        self
    }

    /// Changes what is asked, or where.
    pub fn with(mut self, change: impl Fn(&mut Request, &mut Surroundings)) -> Self {
        change(&mut self.request, &mut self.surroundings);
        self
    }

    /// All that is found.
    pub fn examine(&self) -> Vec<Finding> {
        examine(&collect(&self.request, &self.surroundings, &readers()).unwrap())
    }

    /// The report as text, without what differs from run to run.
    pub fn report(&self) -> String {
        let case = collect(&self.request, &self.surroundings, &readers()).unwrap();
        let findings = examine(&case);
        let text = doctor::Report { case: &case, findings: &findings }.to_string();
        let text =
            text.replace(&self.dir.path().display().to_string(), "BUNDLE").replace(std::env::consts::ARCH, "ARCH");
        text.lines().map(without_size_and_build).collect::<Vec<_>>().join("\n")
    }
}

/// `model.bin: 0.1 MB, 2 graphs, by ..`: length and build change with the compiler.
fn without_size_and_build(line: &str) -> String {
    match (line.split_once(".bin: "), line.split_once(" MB, ")) {
        (Some((name, _)), Some((_, rest))) => {
            format!("{name}.bin: N MB, {}, by HOST", rest.split(", by").next().unwrap_or_default())
        }
        _ => line.to_owned(),
    }
}

/// Width of a toy's head.
pub const HEAD_DIM: usize = 8;
/// Width of a toy's logits: that of the small model, whose tokenizer it has.
pub const VOCAB: usize = 320;

/// A tensor with an encoding.
pub fn fixed(name: &str, dims: &[usize], dtype: Dtype, scale: f32, offset: i32) -> TensorInfo {
    TensorInfo::new(name, dims, dtype).with_quant(Quant::PerTensor { scale, offset })
}

/// The signature of a quantised model of one layer for AR-n CL-m.
pub fn graph(n: usize, m: usize) -> GraphInfo {
    let kv = |name: &str, dims: &[usize]| fixed(name, dims, Dtype::UFixed8, 0.5, -128);
    let rope = |name: &str| fixed(name, &[1, 1, n, HEAD_DIM / 2], Dtype::UFixed16, 2.0 / 65535.0, -32768);
    GraphInfo {
        name: format!("ar{n}_cl{m}_1_of_1"),
        inputs: vec![
            TensorInfo::new("input_ids", [1, n], Dtype::I32),
            fixed("attention_mask", &[1, 1, n, m], Dtype::UFixed16, 0.001, -65535),
            rope("position_ids_cos"),
            rope("position_ids_sin"),
            kv("past_key_0_in", &[2, 1, HEAD_DIM, m - n]),
            kv("past_value_0_in", &[2, 1, m - n, HEAD_DIM]),
        ],
        outputs: vec![
            kv("past_key_0_out", &[2, 1, HEAD_DIM, n]),
            kv("past_value_0_out", &[2, 1, n, HEAD_DIM]),
            fixed("logits", &[1, n, VOCAB], Dtype::UFixed16, 0.01, -32768),
        ],
    }
}

/// The toy cut in two, for the widths that are given.
pub fn decoder_and_head(n: usize) -> (GraphInfo, GraphInfo) {
    let hidden = TensorInfo::new("hidden", [1, n, 16], Dtype::F32);
    let mut decoder = graph(n, 64);
    let logits = decoder.outputs.pop().unwrap();
    decoder.name = format!("ar{n}_cl64_1_of_2");
    decoder.outputs.push(hidden.clone());
    let head = GraphInfo { name: format!("ar{n}_cl64_2_of_2"), inputs: vec![hidden], outputs: vec![logits] };
    (decoder, head)
}

/// A tensor of a graph, by name.
pub fn tensor<'g>(graph: &'g mut GraphInfo, name: &str) -> Option<&'g mut TensorInfo> {
    graph.inputs.iter_mut().chain(&mut graph.outputs).find(|t| t.name == name)
}

/// A context binary of the embedded backend whose graphs have these signatures and say nothing but zeros.
pub fn compose(path: &Path, graphs: &[GraphInfo]) {
    let context = Context::create(&host(), &qnn_api::ContextOptions::default()).unwrap();
    for info in graphs {
        let mut graph = context.compose(&info.name, &GraphOptions::default()).unwrap();
        for t in &info.inputs {
            graph.tensor(t, TensorKind::Input).unwrap();
        }
        for t in &info.outputs {
            let zeros = TensorInfo { name: format!("{}_zeros", t.name), ..t.clone() };
            let zeros = graph.constant(&zeros, &vec![0; t.size_bytes()]).unwrap();
            let out = graph.tensor(t, TensorKind::Output).unwrap();
            graph.node(&format!("make_{}", t.name), "Reshape", &[], &[zeros], &[out]).unwrap();
        }
        graph.finalize().unwrap();
    }
    context.save(path).unwrap();
}

fn toy_config(binaries: &[&str]) -> Value {
    json!({"dialog": {
        "version": 1, "type": "basic",
        "context": {"version": 1, "size": 64, "n-vocab": VOCAB, "bos-token": 256, "eos-token": 257},
        "sampler": {"version": 1, "temp": 0.8},
        "tokenizer": {"version": 1, "path": "tokenizer.json"},
        "engine": {
            "version": 1, "n-threads": 0,
            "backend": {"version": 1, "type": "QnnHtp", "QnnHtp": {
                "version": 1, "use-mmap": true, "spill-fill-bufsize": 0, "mmap-budget": 0, "poll": false,
                "cpu-mask": "0xe0", "kv-dim": HEAD_DIM, "allow-async-init": false,
            }},
            "model": {
                "version": 1, "type": "binary", "binary": {"version": 1, "ctx-bins": binaries},
                "positional-encoding": {"type": "rope", "rope-dim": HEAD_DIM / 2, "rope-theta": 10000},
            },
        },
    }})
}

/// The ids of findings, in order.
pub fn ids(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.rule.id).collect()
}
