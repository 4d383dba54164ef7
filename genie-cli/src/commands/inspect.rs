//! `genie inspect`: lists the graphs and tensors of a context binary or a bundle.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use engine::{LoraAdapter, PairRunner};
use file_io::FileKind;
use genie_types::{GraphInfo, Quant, TensorInfo};
use open_genie::{Model, Opened, Perf};
use qnn_api::{BinaryInfo, Library, binary_info};
use serde_json::{Value, json};

use super::explain;
use crate::args::{BackendArgs, read_path};
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Flags of `genie inspect`.
#[derive(clap::Args)]
pub struct Args {
    /// A context binary, or a model: a bundle, a GGUF file, a Hugging Face folder, or a name that `genie list` shows.
    pub path: PathBuf,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
    /// List every tensor, not only the counts.
    #[arg(long)]
    pub tensors: bool,
    #[command(flatten)]
    pub backend: BackendArgs,
}

/// Prints what a binary or a bundle holds; a folder or a `.json` file is a bundle.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    let options = args.backend.options()?;
    let kind = FileKind::of(&args.path);
    if kind.is_context_binary() || matches!(kind, FileKind::Unknown { .. }) {
        let library = open_genie::load_library(&options.for_binaries(&[&args.path])?)?;
        let (info, size) = read(&library, &args.path)?;
        if args.json {
            let mut document = binary_json(&args.path, &info, size);
            document["backend"] = backend_json(&library);
            printer.data_line(document)?;
        } else {
            print_backend(&library, printer)?;
            print_binary(&args.path, &info, size, args.tensors, printer)?;
        }
        return Ok(ExitStatus::Done);
    }

    let opened = read_path(&args.path, &args.backend, printer)?.open_either(&options.perf(Perf::LeaveAlone))?;
    let library = opened.backend().library();
    let config = opened.bundle().config();
    let shape = Shape::of(&opened);
    let mut binaries = Vec::new();
    for path in &config.engine().ctx_bins {
        binaries.push((path, read(library, path)?));
    }
    if args.json {
        let binaries: Vec<Value> = binaries.iter().map(|(path, (info, size))| binary_json(path, info, *size)).collect();
        let splits: Vec<Value> =
            shape.splits.iter().map(|(kind, graphs)| json!({"kind": kind, "graphs": graphs})).collect();
        let mut document = json!({
            "context_size": config.context().size,
            "vocab_size": shape.vocab_size,
            "variants": shape.variants,
            "splits": splits,
            "adapters": config.engine().lora.adapters.iter().map(adapter_json).collect::<Vec<_>>(),
            "binaries": binaries,
            "backend": backend_json(library),
        });
        match &opened {
            Opened::Fused(model) => document["fused"] = fused_json(model.runner()),
            Opened::Plain(model) => {
                let cl = model.engine().layout().variants.iter().map(|v| v.cl().get()).max().unwrap_or(0);
                let (bytes, each) =
                    (explain::facts::cache_bytes(model.engine(), cl), explain::facts::cache_bytes(model.engine(), 1));
                document["kv_cache"] = json!({ "cl": cl, "bytes": bytes, "bytes_per_token": each });
            }
        }
        printer.data_line(document)?;
        return Ok(ExitStatus::Done);
    }
    printer.data_line(format_args!("bundle {}", config.base().display()))?;
    printer.data_line(format_args!("  context size {}, vocabulary {}", config.context().size, shape.vocab_size))?;
    match &opened {
        Opened::Plain(model) => {
            printer.data_line(format_args!("  variants {}", shape.variants.join(", ")))?;
            print_cache(model, printer)?;
        }
        Opened::Fused(model) => print_fused(model.runner(), printer)?,
    }
    for (i, (kind, graphs)) in shape.splits.iter().enumerate() {
        printer.data_line(format_args!(
            "  split {} of {}: {kind}, {} graphs",
            i + 1,
            shape.splits.len(),
            graphs.len()
        ))?;
    }
    for adapter in &config.engine().lora.adapters {
        printer.data_line(format_args!("  adapter {}: {}", adapter.name, adapter_words(adapter)))?;
    }
    for (path, (info, size)) in &binaries {
        print_binary(path, info, *size, args.tensors, printer)?;
    }
    print_backend(library, printer)?;
    Ok(ExitStatus::Done)
}

/// What plain and fused graphs have in common.
struct Shape<'a> {
    vocab_size: usize,
    variants: Vec<String>,
    /// Kinds, and the graphs of each.
    splits: Vec<(String, Vec<&'a str>)>,
}

impl<'a> Shape<'a> {
    fn of(opened: &'a Opened) -> Self {
        match opened {
            Opened::Plain(model) => {
                let layout = model.engine().layout();
                let splits = layout.splits.iter().map(|split| {
                    (format!("{:?}", split.kind), split.graphs.iter().map(|g| g.info.name.as_str()).collect())
                });
                Self {
                    vocab_size: layout.vocab_size,
                    variants: layout.variants.iter().map(ToString::to_string).collect(),
                    splits: splits.collect(),
                }
            }
            Opened::Fused(model) => {
                let layout = model.runner().layout();
                let names = layout.graphs().map(|g| g.info.name.as_str()).collect();
                Self { vocab_size: layout.vocab_size, variants: Vec::new(), splits: vec![("Fused".into(), names)] }
            }
        }
    }
}

/// Rows of each fused graph, and who writes new rows into the caches.
fn print_fused(runner: &PairRunner, printer: &Printer) -> Result<()> {
    let layout = runner.layout();
    printer.data_line(format_args!(
        "  fused graphs, context {}, the cache is updated by the {}",
        layout.context,
        match (layout.updates, runner.bytes_written_aside()) {
            (false, _) => "client".to_owned(),
            (true, 0) => "graphs in place".to_owned(),
            (true, aside) => {
                let megabytes = aside as f64 / 1e6;
                format!(
                    "graphs, which write up to {megabytes:.1} MB of caches aside in each step: `pd_fusion.in_place` is false"
                )
            }
        }
    ))?;
    for graph in layout.graphs() {
        let (rows, past) = (graph.rows, layout.past_of(graph.rows));
        let what = match rows {
            1 => "a decode row".to_owned(),
            rows => format!("up to {} rows of a prompt and a decode row", rows - 1),
        };
        printer.data_line(format_args!("    {}: {what}, past {past}", graph.info.name))?;
    }
    Ok(())
}

fn fused_json(runner: &PairRunner) -> Value {
    let layout = runner.layout();
    let graphs: Vec<Value> = layout
        .graphs()
        .map(|g| json!({"graph": g.info.name, "rows": g.rows, "past": layout.past_of(g.rows)}))
        .collect();
    let aside = runner.bytes_written_aside();
    json!({"context": layout.context, "updates": layout.updates, "bytes_written_aside": aside, "graphs": graphs})
}

/// Bytes of the cache at each context length.
fn print_cache(model: &Model, printer: &Printer) -> Result<()> {
    let mut cls: Vec<usize> = model.engine().layout().variants.iter().map(|v| v.cl().get()).collect();
    cls.dedup();
    for cl in cls {
        let megabytes = explain::facts::cache_bytes(model.engine(), cl) as f64 / 1e6;
        let each = explain::facts::cache_bytes(model.engine(), 1);
        printer.data_line(format_args!("  KV cache: {megabytes:.1} MB at CL {cl}, {each} bytes per token"))?;
    }
    Ok(())
}

/// How a LoRA adapter is in the bundle.
fn adapter_words(adapter: &LoraAdapter) -> String {
    let alphas: Vec<String> = adapter.alphas.iter().map(|name| format!("`{name}`")).collect();
    let mut words = Vec::new();
    if !alphas.is_empty() {
        words.push(format!("strength {}", alphas.join(", ")));
    }
    if !adapter.bin_sections.is_empty() {
        words.push(format!("{} section files", adapter.bin_sections.len()));
    }
    words.join(", ")
}

fn adapter_json(adapter: &LoraAdapter) -> Value {
    let sections: Vec<String> = adapter.bin_sections.iter().map(|path| path.display().to_string()).collect();
    json!({"name": adapter.name, "alphas": adapter.alphas, "bin_sections": sections})
}

/// The library that read the binaries, and the files it was loaded from; nothing for the embedded backend.
fn print_backend(library: &Library, printer: &Printer) -> Result<()> {
    if library.path().is_none() {
        return Ok(());
    }
    printer.data_line(format_args!(
        "read by {}, core API {}, build {}",
        library.provider(),
        library.core_version(),
        library.build_id().unwrap_or_else(|_| "unknown".to_owned())
    ))?;
    for file in library.files() {
        printer.data_line(format_args!("  loaded {}", file.display()))?;
    }
    Ok(())
}

fn backend_json(library: &Library) -> Value {
    json!({
        "provider": library.provider(),
        "core_api": library.core_version().to_string(),
        "backend_api": library.backend_version().to_string(),
        "build_id": library.build_id().ok(),
        "file": library.path().map(|path| path.display().to_string()),
        "system": library.system().map(|(file, version)| json!({"file": file, "api": version.to_string()})),
        "loaded": library.files().iter().map(|file| file.display().to_string()).collect::<Vec<_>>(),
    })
}

fn read(library: &Arc<Library>, path: &Path) -> Result<(BinaryInfo, u64)> {
    let shown = path.display();
    let mut file = File::open(path).with_context(|| format!("cannot read `{shown}`"))?;
    let size = file.metadata().with_context(|| format!("cannot read `{shown}`"))?.len();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut file, &mut bytes).with_context(|| format!("cannot read `{shown}`"))?;
    Ok((binary_info(library, &bytes).with_context(|| format!("cannot inspect `{shown}`"))?, size))
}

/// `1 input`, `2 inputs`.
fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

fn print_binary(path: &Path, info: &BinaryInfo, size: u64, tensors: bool, printer: &Printer) -> Result<()> {
    printer.data_line(format_args!(
        "{}: {:.1} MB, {} graphs, compiled by {}",
        path.display(),
        size as f64 / 1e6,
        info.graphs.len(),
        info.build_id
    ))?;
    if let Some(soc) = info.soc {
        printer.data_line(format_args!("  SoC {soc}"))?;
    }
    for graph in &info.graphs {
        printer.data_line(format_args!(
            "  {}: {} ({:.1} MB), {} ({:.1} MB)",
            graph.name,
            counted(graph.inputs.len(), "input"),
            megabytes(&graph.inputs),
            counted(graph.outputs.len(), "output"),
            megabytes(&graph.outputs)
        ))?;
        if tensors {
            for (way, list) in [("in", &graph.inputs), ("out", &graph.outputs)] {
                for t in list {
                    printer.data_line(format_args!(
                        "    {way:>3} {:<32} {:<10} {:?}{}",
                        t.name,
                        t.dtype,
                        t.dims,
                        encoding(&t.quant)
                    ))?;
                }
            }
        }
    }
    Ok(())
}

fn megabytes(tensors: &[TensorInfo]) -> f64 {
    tensors.iter().map(TensorInfo::size_bytes).sum::<usize>() as f64 / 1e6
}

fn encoding(quant: &Quant) -> String {
    match quant {
        Quant::None => String::new(),
        Quant::PerTensor { scale, offset } => format!(" scale {scale:e} offset {offset}"),
        Quant::PerAxis { axis, scale_offsets, .. } => format!(" {} scales on axis {axis}", scale_offsets.len()),
        Quant::Block { block_dims, .. } => format!(" blocks of {block_dims:?}"),
        Quant::Other(n) => format!(" encoding {n}"),
    }
}

fn binary_json(path: &Path, info: &BinaryInfo, size: u64) -> Value {
    let tensor = |t: &TensorInfo| json!({"name": t.name, "dtype": t.dtype.name(), "dims": t.dims, "encoding": encoding(&t.quant).trim()});
    let graph = |g: &GraphInfo| {
        json!({
            "name": g.name,
            "inputs": g.inputs.iter().map(tensor).collect::<Vec<_>>(),
            "outputs": g.outputs.iter().map(tensor).collect::<Vec<_>>(),
        })
    };
    json!({
        "file": path.display().to_string(),
        "bytes": size,
        "build_id": info.build_id,
        "soc": info.soc,
        "graphs": info.graphs.iter().map(graph).collect::<Vec<_>>(),
    })
}
