//! `genie rm`: removes what was compiled of models; their own files stay.

use anyhow::Result;
use indicatif::DecimalBytes;
use open_genie::models::{CompiledModel, CompiledModels, ModelSource};
use serde_json::json;

use crate::exit::ExitStatus;
use crate::failure::UserError;
use crate::printer::Printer;

/// Flags of `genie rm`.
#[derive(clap::Args)]
pub struct Args {
    /// The models, by name or by the path of the checkpoint. Their own files stay.
    #[arg(required = true, value_name = "MODEL")]
    pub models: Vec<String>,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Removes all that are named, or none.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    let store = CompiledModels::open().map_err(open_genie::Error::from)?;
    let all = store.list().map_err(open_genie::Error::from)?;
    let mut chosen: Vec<&CompiledModel> = Vec::new();
    for word in &args.models {
        let model = the_one(word, &all)?;
        if !chosen.contains(&model) {
            chosen.push(model);
        }
    }
    let mut records = Vec::new();
    for model in chosen {
        let bytes = model.bytes();
        store.remove(model).map_err(open_genie::Error::from)?;
        printer.info(format_args!(
            "removed what was compiled of `{}`, {}; `{}` stays",
            model.name,
            DecimalBytes(bytes),
            model.source.display()
        ));
        records.push(json!({"name": model.name, "source": model.source.display().to_string(), "bytes": bytes}));
    }
    if args.json {
        printer.data_line(json!({"removed": records}))?;
    }
    Ok(ExitStatus::Done)
}

/// The compiled model of a name, or of a path.
fn the_one<'a>(word: &str, all: &'a [CompiledModel]) -> Result<&'a CompiledModel> {
    let source = ModelSource::of(word.as_ref()).ok();
    let named: Vec<&CompiledModel> = match &source {
        Some(source) => all.iter().filter(|model| model.source == source.path()).collect(),
        None => all.iter().filter(|model| model.name == word).collect(),
    };
    match named[..] {
        [model] => Ok(model),
        [] => Err(UserError::error(
            format!("nothing is compiled of a model `{word}`"),
            "`genie list` shows the names; `genie cache --clear` removes the demo's bundle, too",
        )),
        _ => {
            let places: Vec<String> = named.iter().map(|model| format!("`{}`", model.source.display())).collect();
            Err(UserError::error(
                format!("{} models are called `{word}`: {}", named.len(), places.join(", ")),
                "give the path of one of them",
            ))
        }
    }
}
