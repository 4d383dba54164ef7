//! `genie inspect`: what is in a context binary or a bundle.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use genie_types::{GraphInfo, Quant, TensorInfo};
use qnn_api::{BinaryInfo, Library, binary_info};
use serde_json::{Value, json};

use super::ExitStatus;
use crate::cli::{InspectArgs, PolicyArg};
use crate::printer::Printer;
use crate::{backend, bundle};

/// Tells a binary from a bundle by its name, and prints what it holds.
pub fn run(args: &InspectArgs, printer: &Printer) -> Result<ExitStatus> {
    let is_bundle = args.path.is_dir() || args.path.extension().is_some_and(|e| e == "json");
    let library = backend::library(&args.backend)?;
    if !is_bundle {
        let (info, size) = read(&library, &args.path)?;
        if args.json {
            printer.line(binary_json(&args.path, &info, size))?;
        } else {
            print_binary(&args.path, &info, size, args.tensors, printer)?;
        }
        return Ok(ExitStatus::Done);
    }

    let config = bundle::config(&args.path, printer)?;
    let backend = backend::open(&args.backend, None)?;
    let engine = bundle::engine(config.engine(), &backend, PolicyArg::Genie)?;
    let layout = engine.layout();
    let mut binaries = Vec::new();
    for path in &config.engine().ctx_bins {
        binaries.push((path, read(&library, path)?));
    }
    let variants: Vec<String> = layout.variants.iter().map(ToString::to_string).collect();
    if args.json {
        let binaries: Vec<Value> = binaries.iter().map(|(path, (info, size))| binary_json(path, info, *size)).collect();
        let splits: Vec<Value> = layout
            .splits
            .iter()
            .map(|s| json!({"kind": format!("{:?}", s.kind), "graphs": s.graphs.iter().map(|g| &g.info.name).collect::<Vec<_>>()}))
            .collect();
        printer.line(json!({
            "context_size": config.context().size,
            "vocab_size": layout.vocab_size,
            "variants": variants,
            "splits": splits,
            "binaries": binaries,
        }))?;
        return Ok(ExitStatus::Done);
    }
    printer.line(format_args!("bundle {}", config.base().display()))?;
    printer.line(format_args!("  context size {}, vocabulary {}", config.context().size, layout.vocab_size))?;
    printer.line(format_args!("  variants {}", variants.join(", ")))?;
    for (i, split) in layout.splits.iter().enumerate() {
        printer.line(format_args!(
            "  split {} of {}: {:?}, {} graphs",
            i + 1,
            layout.splits.len(),
            split.kind,
            split.graphs.len()
        ))?;
    }
    for (path, (info, size)) in &binaries {
        print_binary(path, info, *size, args.tensors, printer)?;
    }
    Ok(ExitStatus::Done)
}

fn read(library: &Arc<Library>, path: &Path) -> Result<(BinaryInfo, u64)> {
    let shown = path.display();
    let mut file = File::open(path).with_context(|| format!("cannot read `{shown}`"))?;
    let size = file.metadata().with_context(|| format!("cannot read `{shown}`"))?.len();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut file, &mut bytes).with_context(|| format!("cannot read `{shown}`"))?;
    Ok((binary_info(library, &bytes).with_context(|| format!("cannot inspect `{shown}`"))?, size))
}

fn print_binary(path: &Path, info: &BinaryInfo, size: u64, tensors: bool, printer: &Printer) -> Result<()> {
    printer.line(format_args!(
        "{}: {:.1} MB, {} graphs, made by {}",
        path.display(),
        size as f64 / 1e6,
        info.graphs.len(),
        info.build_id
    ))?;
    if let Some(soc) = info.soc {
        printer.line(format_args!("  SoC {soc}"))?;
    }
    for graph in &info.graphs {
        printer.line(format_args!(
            "  {}: {} inputs ({:.1} MB), {} outputs ({:.1} MB)",
            graph.name,
            graph.inputs.len(),
            megabytes(&graph.inputs),
            graph.outputs.len(),
            megabytes(&graph.outputs)
        ))?;
        if tensors {
            for (way, list) in [("in", &graph.inputs), ("out", &graph.outputs)] {
                for t in list {
                    printer.line(format_args!(
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
