//! The finished model's files.

use std::fs;
use std::path::Path;

use file_io::{FileError, FileSet};
use serde_json::json;

use crate::curve;
use crate::error::Result;
use crate::families::Extents;
use crate::parameters::Parameters;
use crate::state::{self, Record};
use crate::text::{END, Text};

/// Writes the model, and removes the state that led to it.
pub(crate) fn write(
    output: &Path,
    extents: &Extents,
    text: &Text,
    parameters: &Parameters,
    record: &Record,
) -> Result<()> {
    let mut files = FileSet::new(output);
    files.add_bytes("model.safetensors", &state::weights_file(output, parameters)?)?;
    files.add_bytes("tokenizer.json", text.tokenizer.as_bytes())?;
    let end = json!({ "bos_token": END, "eos_token": END, "add_bos_token": true });
    files.add_bytes("tokenizer_config.json", format!("{end:#}\n").as_bytes())?;
    files.add_bytes("loss.csv", curve::csv(&record.losses).as_bytes())?;
    files.add_bytes("loss.svg", curve::svg(&record.losses)?.as_bytes())?;
    files.add_bytes("config.json", format!("{:#}\n", extents.config()).as_bytes())?;
    files.set_mark("config.json");
    files.publish()?;
    let folder = output.join(state::FOLDER);
    fs::remove_dir_all(&folder).map_err(FileError::io("remove", &folder))?;
    Ok(())
}
