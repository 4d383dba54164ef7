//! Weights that an LM head takes as inputs: read from the bundle's files once, into the buffers that the head is bound to.
//!
//! *Layout*: `TENSOR.raw` beside the context binary that has the head, or in [`EngineConfig::weight_folder`]: the bytes of
//! the tensor as the graph takes it, row-major, in its own element type, without a header.
//! *Source*: libGenie 1.21 has a setting `lmhead-weight-dir` and names files of it `.raw`; no key of its configs sets it.
//! *Trap*: names come out of context binaries; what could leave the folder is replaced, as for dumped tensors.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use nsp_graph::{InputRole, ModelLayout, WeightInput};

use crate::dump::file_name;
use crate::io::{BufferRole, IoBuffers};
use crate::{EngineConfig, EngineError, load};

const WHAT: &str = "weight of the LM head";

/// Fills the buffers of all weights.
pub(crate) fn load(layout: &ModelLayout, io: &mut IoBuffers, config: &EngineConfig) -> Result<(), EngineError> {
    for (index, weight) in layout.weights.iter().enumerate() {
        let path = path_of(weight, config);
        load::must_exist(WHAT, &path)?;
        let read = |source| EngineError::ReadFile { what: WHAT, path: path.clone(), source };
        let mut file = File::open(&path).map_err(read)?;
        let found = file.metadata().map_err(read)?.len();
        let expected = weight.info.size_bytes() as u64;
        if found != expected {
            let (tensor, dims, dtype) = (weight.info.name.clone(), weight.info.dims.clone(), weight.info.dtype);
            return Err(EngineError::WeightFile { path, tensor, dims, dtype, expected, found });
        }
        let is_it = |role: &BufferRole| matches!(role, BufferRole::Input(InputRole::Weight(i), ..) if *i == index);
        let buffer = io.roles().iter().position(is_it).expect("every input of a graph has a buffer");
        file.read_exact(&mut io.buffers[buffer].bytes_mut()[..expected as usize]).map_err(read)?;
        tracing::debug!(path = %path.display(), tensor = weight.info.name, "weight loaded");
    }
    Ok(())
}

/// Where a weight's file is.
fn path_of(weight: &WeightInput, config: &EngineConfig) -> PathBuf {
    let beside = || config.ctx_bins.get(weight.binary).and_then(|path| path.parent()).unwrap_or(Path::new(""));
    let folder = config.weight_folder.as_deref().unwrap_or_else(beside);
    folder.join(format!("{}.raw", file_name(&weight.info.name)))
}
