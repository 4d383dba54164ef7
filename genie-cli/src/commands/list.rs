//! `genie list`: the models that can be named by one word.

use std::path::Path;

use anyhow::Result;
use indicatif::DecimalBytes;
use open_genie::demo;
use open_genie::models::{CompiledModels, ModelState, listed, models_folder};
use serde::Serialize;
use serde_json::json;

use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Flags of `genie list`.
#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// A line of the list.
#[derive(Serialize)]
struct Row {
    name: String,
    /// What it is: `demo`, `bundle`, `checkpoint`.
    kind: &'static str,
    /// `ready`, `not-compiled`, or why what is compiled would not be used.
    state: &'static str,
    /// Of the bundle, in bytes.
    bytes: u64,
    /// Longest context, in tokens.
    context: Option<usize>,
    /// As text: JSON holds no other.
    path: String,
}

/// Prints the models: the demo, those of the folder of models, and those that were compiled from elsewhere.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    let rows = rows()?;
    let folder = models_folder();
    if args.json {
        let folder = folder.map(|folder| folder.display().to_string());
        printer.data_line(json!({"folder": folder, "models": rows}))?;
        return Ok(ExitStatus::Done);
    }
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max("NAME".len());
    printer.data_line(format_args!(
        "{:width$}  {:10}  {:14}  {:>9}  {:>7}  PATH",
        "NAME", "KIND", "STATE", "SIZE", "CONTEXT"
    ))?;
    for row in &rows {
        let size = if row.bytes > 0 { DecimalBytes(row.bytes).to_string() } else { "-".into() };
        let context = row.context.map_or_else(|| "-".into(), |context| context.to_string());
        let path = &row.path;
        printer.data_line(format_args!(
            "{:width$}  {:10}  {:14}  {size:>9}  {context:>7}  {path}",
            row.name, row.kind, row.state
        ))?;
    }
    if let Some(folder) = folder {
        printer.info(format_args!("models put into {} are listed by name", folder.display()));
    }
    Ok(ExitStatus::Done)
}

fn rows() -> Result<Vec<Row>> {
    let demo = demo::folder()?;
    let is_compiled = demo::is_compiled(&demo);
    let mut rows = vec![Row {
        name: "demo".into(),
        kind: "demo",
        state: if is_compiled { ModelState::Ready.name() } else { "not-compiled" },
        bytes: super::cache::bytes_below(&demo),
        context: None,
        path: demo.display().to_string(),
    }];
    let compiled = CompiledModels::open().and_then(|store| store.list()).map_err(open_genie::Error::from)?;
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut from_folder = Vec::new();
    for model in listed().map_err(open_genie::Error::from)? {
        let source = canonical(&model.path);
        let own = compiled.iter().find(|compiled| compiled.source == source);
        from_folder.push(source);
        rows.push(Row {
            kind: if model.is_bundle { "bundle" } else { "checkpoint" },
            state: match own {
                _ if model.is_bundle => ModelState::Ready.name(),
                Some(own) => own.state.name(),
                None => "not-compiled",
            },
            bytes: if model.is_bundle {
                super::cache::bytes_below(&model.path)
            } else {
                own.map_or(0, |own| own.bytes())
            },
            context: own.map(|own| own.context),
            name: model.name,
            path: model.path.display().to_string(),
        });
    }
    for model in compiled.into_iter().filter(|model| !from_folder.contains(&model.source)) {
        rows.push(Row {
            kind: "checkpoint",
            state: model.state.name(),
            bytes: model.bytes(),
            context: Some(model.context),
            name: model.name,
            path: model.source.display().to_string(),
        });
    }
    Ok(rows)
}
