//! Bundles on disk: one that the compiler made, and toys with graphs of any signature.

#![allow(dead_code)] // each test target uses a part

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family, Silent, compile};
use doctor::{Environment, Finding, Request, collect, examine};
use genie_types::{Dtype, GraphInfo, TensorInfo};
use qnn_api::{Backend, BackendOptions, Context, GraphOptions, Library, SystemLibrary, TensorKind};
use serde_json::Value;
use tempfile::TempDir;

#[path = "../../src/testing/toy.rs"]
pub mod toy;

/// The embedded backend.
pub fn host() -> std::sync::Arc<Backend> {
    let library = Library::linked(qnn_host::providers());
    Backend::new(&library.unwrap(), &BackendOptions::default()).unwrap()
}

/// Its system interface, as the program passes it to the collector.
pub fn readers() -> [(&'static str, SystemLibrary); 1] {
    [("embedded backend", SystemLibrary::linked(qnn_host::providers()).unwrap())]
}

/// A machine without any QNN library.
pub fn bare(cwd: &Path) -> Environment {
    Environment { arch: std::env::consts::ARCH.into(), cwd: Some(cwd.to_owned()), ..Environment::default() }
}

/// A temporary folder with a bundle.
pub struct Bundle {
    dir: TempDir,
    /// The request to examine it.
    pub request: Request,
    /// The environment to examine it in.
    pub environment: Environment,
}

impl Bundle {
    /// A copy of a bundle compiled from a small random Llama.
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
            // Golden files are read-only; copies must be writable.
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
        std::fs::write(bundle.at("genie_config.json"), toy::config(&names, VOCAB, 256, 257).to_string()).unwrap();
        bundle
    }

    /// The toy model with AR-1 and AR-8 in one binary.
    pub fn whole_toy(change: impl Fn(&mut GraphInfo)) -> Self {
        let mut graphs = vec![graph(1, 64), graph(8, 64)];
        graphs.iter_mut().for_each(change);
        Self::toy(&[("model.bin", graphs)])
    }

    fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let request = Request { subject: Some(dir.path().to_owned()), ..Request::default() };
        let environment = bare(Path::new("/"));
        Self { dir, request, environment }
    }

    /// A path in the bundle.
    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Sets a value of the config, or removes it with `null`.
    pub fn set(self, pointer: &str, value: Value) -> Self {
        let path = self.at("genie_config.json");
        let mut document: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        toy::set(&mut document, pointer, value);
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

    /// Removes a file.
    pub fn without(self, name: &str) -> Self {
        std::fs::remove_file(self.at(name)).unwrap();
        self
    }

    /// Changes the request or the environment.
    pub fn with(mut self, change: impl Fn(&mut Request, &mut Environment)) -> Self {
        change(&mut self.request, &mut self.environment);
        self
    }

    /// The findings.
    pub fn examine(&self) -> Vec<Finding> {
        examine(&collect(&self.request, &self.environment, &readers()).unwrap())
    }

    /// The report as text, without paths, sizes and builds.
    pub fn report(&self) -> String {
        let facts = collect(&self.request, &self.environment, &readers()).unwrap();
        let text = doctor::Report::new(&facts, &examine(&facts)).to_string();
        let text =
            text.replace(&self.dir.path().display().to_string(), "BUNDLE").replace(std::env::consts::ARCH, "ARCH");
        text.lines().map(without_size_and_build).collect::<Vec<_>>().join("\n")
    }
}

/// `model.bin: 0.1 MB, 2 graphs, by ..`: size and build change with the compiler.
fn without_size_and_build(line: &str) -> String {
    match (line.split_once(".bin: "), line.split_once(" MB, ")) {
        (Some((name, _)), Some((_, rest))) => {
            format!("{name}.bin: N MB, {}, by HOST", rest.split(", by").next().unwrap_or_default())
        }
        _ => line.to_owned(),
    }
}

/// Width of a toy's logits: the vocabulary of the small model, whose tokenizer it has.
pub const VOCAB: usize = 320;

/// The toy model for AR-n CL-m.
pub fn graph(n: usize, m: usize) -> GraphInfo {
    toy::graph(n, m, VOCAB)
}

/// Its two splits for AR-n CL-64.
pub fn decoder_and_head(n: usize) -> (GraphInfo, GraphInfo) {
    toy::splits(n, 64, VOCAB, Dtype::F32)
}

/// Writes a context binary of the embedded backend whose graphs have these signatures and output zeros.
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

/// The ids of findings, in order.
pub fn ids(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.rule.id).collect()
}
