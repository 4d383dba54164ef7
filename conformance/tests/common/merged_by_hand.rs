//! A checkpoint with LoRA adapters added to its weights, in double precision and without the compiler's own code.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};

/// Extents and numbers by name.
type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

fn read(path: &Path) -> Tensors {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let values = |t: &TensorView<'_>| {
        assert_eq!(t.dtype(), Dtype::F32);
        t.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    };
    file.tensors().into_iter().map(|(name, t)| (name, (t.shape().to_vec(), values(&t)))).collect()
}

/// Writes the model of a folder with `factor * B A` added for each adapter.
pub fn merged(model: &Path, adapters: &[(PathBuf, f64)], to: &Path) {
    let mut weights = read(&model.join("model.safetensors"));
    for (dir, factor) in adapters {
        let matrices = read(&dir.join("adapter_model.safetensors"));
        for (name, (dims, a)) in matrices.iter().filter(|(name, _)| name.contains(".lora_A.")) {
            let (rank, inner) = (dims[0], dims[1]);
            let (_, b) = &matrices[&name.replace(".lora_A.", ".lora_B.")];
            let target = name.strip_prefix("base_model.model.").unwrap().replace(".lora_A.", ".");
            // GPT-2 stores `[in, out]`.
            let turned = target.starts_with("transformer.");
            let (shape, w) = weights.get_mut(&target).unwrap_or_else(|| panic!("no weight {target}"));
            for (i, value) in w.iter_mut().enumerate() {
                let out = shape[1];
                let (row, column) = if turned { (i % out, i / out) } else { (i / inner, i % inner) };
                let sum: f64 = (0..rank).map(|k| f64::from(b[row * rank + k]) * f64::from(a[k * inner + column])).sum();
                *value = (f64::from(*value) + factor * sum) as f32;
            }
        }
    }
    std::fs::create_dir_all(to).unwrap();
    for name in ["config.json", "generation_config.json", "tokenizer.json"] {
        std::fs::copy(model.join(name), to.join(name)).unwrap();
    }
    let bytes: BTreeMap<&String, (Vec<usize>, Vec<u8>)> = weights
        .iter()
        .map(|(name, (dims, values))| (name, (dims.clone(), values.iter().flat_map(|v| v.to_le_bytes()).collect())))
        .collect();
    let views = bytes.iter().map(|(name, (dims, b))| (*name, TensorView::new(Dtype::F32, dims.clone(), b).unwrap()));
    std::fs::write(to.join("model.safetensors"), serialize(views, None).unwrap()).unwrap();
}
