//! Measures the memory of a compilation: `cargo run --release -p compiler --example 02_peak_memory [layers] [vocab]`.
//!
//! Writes a random f32 model, compiles it to f16 in six variants with the embedded backend, and prints sizes next to the
//! peak of anonymous memory (Linux only; sampled at every progress report).

use compiler::{Amount, CompileOptions, Family, Progress, Stage, compile, testmodel::TestModel};
use qnn_api::{Backend, BackendOptions, Library};
use std::error::Error;

/// Samples memory at every progress report.
#[derive(Default)]
struct Peak {
    anonymous_kib: u64,
}

impl Progress for Peak {
    fn begin(&mut self, stage: &Stage, total: Amount) {
        self.sample();
        println!("{:>9} KiB anonymous as `{stage}` begins ({} items)", self.anonymous_kib, total.items);
    }

    fn item(&mut self, _name: &str, _bytes: u64) {
        self.sample();
    }

    fn end(&mut self, _stage: &Stage) {
        self.sample();
    }

    fn note(&mut self, _text: &str) {}
}

impl Peak {
    fn sample(&mut self) {
        let now = status("RssAnon:");
        self.anonymous_kib = self.anonymous_kib.max(now);
    }
}

/// A line of `/proc/self/status`, in KiB; 0 where there is none.
fn status(key: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
    let layers = numbers.next().transpose()?.unwrap_or(8);
    let vocab = numbers.next().transpose()?.unwrap_or(32_000);
    run(layers, vocab)
}

/// Compiles a model of that size and prints what it took.
pub fn run(layers: usize, vocab: usize) -> Result<(), Box<dyn Error>> {
    let model =
        TestModel { layers, vocab, hidden: 512, heads: 8, head_dim: 64, ffn: 1536, ..TestModel::tiny(Family::Llama) };

    let dir = tempfile::tempdir()?;
    model.write(&dir.path().join("model"))?;
    let host = Library::linked(qnn_host::providers())?;
    let backend = Backend::new(&host, &BackendOptions::default())?;
    let options = CompileOptions::new(dir.path().join("model"), dir.path().join("bundle"));
    let mut peak = Peak::default();
    let before = status("RssAnon:");
    let manifest = compile(&options, &backend, &mut peak)?;
    let binaries: u64 = manifest.files.iter().filter(|f| f.path.ends_with(".bin")).map(|f| f.bytes >> 10).sum();
    println!("{binaries:>9} KiB of context binaries, {} graphs", manifest.graphs.len());
    println!("{before:>9} KiB anonymous before");
    println!("{:>9} KiB anonymous at the peak", peak.anonymous_kib);
    println!("{:>9} KiB peak of all resident pages, mapped files included", status("VmHWM:"));
    Ok(())
}
