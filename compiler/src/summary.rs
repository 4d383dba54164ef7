//! What a model is and how large, from its small files and headers: no weight is read.

use std::path::{Path, PathBuf};

use crate::family::ModelSpec;
use crate::model::Model;
use crate::{Precision, Result, fs};

/// A checkpoint or GGUF file, before it is compiled.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModelSummary {
    /// Its shape.
    pub spec: ModelSpec,
    /// The files that hold its weights.
    pub weight_files: Vec<PathBuf>,
    /// Their length, in bytes.
    pub weight_bytes: u64,
}

impl ModelSummary {
    /// Reads a Hugging Face directory or a GGUF file.
    ///
    /// # Errors
    /// Those of [`crate::compile()`] that need no weights.
    pub fn read(path: &Path) -> Result<Self> {
        let Model { spec, checkpoint, .. } = Model::open(path)?;
        let weight_files = checkpoint.shards().to_vec();
        let lengths = weight_files.iter().map(|file| fs::length(file)).collect::<Result<Vec<u64>>>()?;
        Ok(Self { spec, weight_files, weight_bytes: lengths.iter().sum() })
    }

    /// Bytes of keys and values of one token, in all layers.
    pub fn cache_bytes_per_token(&self, precision: Precision) -> u64 {
        let spec = &self.spec;
        let elems = 2 * spec.n_layers * spec.n_kv_heads * spec.head_dim;
        elems as u64 * precision.dtype().size_bytes() as u64
    }
}

#[cfg(test)]
mod tests {
    use crate::testmodel::TestModel;
    use crate::{Family, ModelSummary, Precision};

    #[test]
    fn a_token_takes_a_key_and_a_value_in_each_head_and_layer() {
        let dir = tempfile::tempdir().unwrap();
        TestModel::tiny(Family::Llama).write(dir.path()).unwrap();
        let summary = ModelSummary::read(dir.path()).unwrap();
        let spec = &summary.spec;
        let rows = (spec.n_layers * spec.n_kv_heads * spec.head_dim) as u64;
        assert_eq!(summary.cache_bytes_per_token(Precision::F16), 2 * 2 * rows);
        assert_eq!(summary.cache_bytes_per_token(Precision::F32), 2 * 4 * rows);
        let file = dir.path().join("model.safetensors");
        assert_eq!(summary.weight_bytes, file.metadata().unwrap().len());
        assert_eq!(summary.weight_files, [file]);
    }
}
