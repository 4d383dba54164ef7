//! The saved state of a run: weights, moments, losses, in one file that is replaced whole.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor, Var};
use file_io::FileError;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};

use crate::adamw::AdamW;
use crate::error::{Result, TrainError};
use crate::parameters::Parameters;

/// The folder of the state, inside of the output.
pub(crate) const FOLDER: &str = "training";
const FILE: &str = "state.safetensors";
/// The entry of the file's metadata that holds a [`Record`].
const KEY: &str = "training";
/// Names of what AdamW keeps, before a weight's.
const MOMENTS: [&str; 2] = ["first.", "second."];

/// Losses at a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Loss {
    pub(crate) step: usize,
    pub(crate) train: f32,
    pub(crate) held_out: Option<f32>,
    pub(crate) rate: f32,
}

/// What is known of a run besides its tensors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Options by name.
    pub(crate) options: Vec<(String, String)>,
    /// Steps done.
    pub(crate) steps: usize,
    pub(crate) losses: Vec<Loss>,
}

/// Where a run's state is.
pub(crate) fn path(output: &Path) -> PathBuf {
    output.join(FOLDER).join(FILE)
}

/// Saves the state.
pub(crate) fn save(output: &Path, parameters: &Parameters, adamw: &AdamW, record: &Record) -> Result<()> {
    let mut tensors = Vec::new();
    for (name, var) in parameters.iter() {
        tensors.push((name.to_owned(), bytes(var)?));
        let moments = adamw.moments.get(name).into_iter().flatten();
        for (prefix, moment) in MOMENTS.into_iter().zip(moments) {
            tensors.push((format!("{prefix}{name}"), bytes(moment)?));
        }
    }
    let record = serde_json::to_string(record).map_err(|e| damaged(output, e))?;
    let file = serialize(&tensors, HashMap::from([(KEY.to_owned(), record)])).map_err(|e| damaged(output, e))?;
    Ok(file_io::write_bytes(&path(output), &file)?)
}

/// Reads the state into weights and moments.
pub(crate) fn load(output: &Path, parameters: &Parameters, adamw: &AdamW) -> Result<()> {
    let bytes = read(output)?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|e| damaged(output, e))?;
    let set = |name: &str, var: &Var| -> Result<()> {
        let view = tensors.tensor(name).map_err(|e| damaged(output, e))?;
        if view.shape() != var.dims() || view.dtype() != Dtype::F32 {
            let found = format!("`{name}`: expected f32 {:?}, found {:?} {:?}", var.dims(), view.dtype(), view.shape());
            return Err(TrainError::State { path: path(output), detail: found });
        }
        let values: Vec<f32> = view.data().as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        Ok(var.set(&Tensor::from_vec(values, view.shape(), &Device::Cpu)?)?)
    };
    for (name, var) in parameters.iter() {
        set(name, var)?;
        for (prefix, moment) in MOMENTS.into_iter().zip(adamw.moments.get(name).into_iter().flatten()) {
            set(&format!("{prefix}{name}"), moment)?;
        }
    }
    Ok(())
}

/// Reads what is known of the run.
pub(crate) fn record(output: &Path) -> Result<Record> {
    let bytes = read(output)?;
    let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(|e| damaged(output, e))?;
    let text = metadata.metadata().as_ref().and_then(|entries| entries.get(KEY));
    let text = text.ok_or_else(|| damaged(output, format!("expected metadata `{KEY}`, found none")))?;
    serde_json::from_str(text).map_err(|e| damaged(output, e))
}

/// Weights alone, as `model.safetensors`.
pub(crate) fn weights_file(output: &Path, parameters: &Parameters) -> Result<Vec<u8>> {
    let tensors: Vec<_> =
        parameters.iter().map(|(name, var)| Ok((name.to_owned(), bytes(var)?))).collect::<Result<_>>()?;
    serialize(&tensors, HashMap::from([("format".to_owned(), "pt".to_owned())])).map_err(|e| damaged(output, e))
}

fn read(output: &Path) -> Result<Vec<u8>> {
    let file = path(output);
    if !file.exists() {
        return Err(TrainError::NoState(output.to_owned()));
    }
    Ok(file_io::read_file(&file).map_err(FileError::io("read", &file))?)
}

fn damaged(output: &Path, detail: impl ToString) -> TrainError {
    TrainError::State { path: path(output), detail: detail.to_string() }
}

/// Extents and bytes, little-endian.
type Stored = (Vec<usize>, Vec<u8>);

fn bytes(var: &Var) -> Result<Stored> {
    let values = var.flatten_all()?.to_vec1::<f32>()?;
    Ok((var.dims().to_vec(), values.iter().flat_map(|v| v.to_le_bytes()).collect()))
}

fn serialize(
    tensors: &[(String, Stored)],
    metadata: HashMap<String, String>,
) -> Result<Vec<u8>, safetensors::SafeTensorError> {
    let views: Vec<_> = tensors
        .iter()
        .map(|(name, (dims, bytes))| Ok((name.as_str(), TensorView::new(Dtype::F32, dims.clone(), bytes)?)))
        .collect::<Result<_, safetensors::SafeTensorError>>()?;
    safetensors::serialize(views, Some(metadata))
}
