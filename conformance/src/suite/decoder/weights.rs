//! The tensors of a random checkpoint, as the graph holds them and as the reference sees them.

use std::collections::BTreeMap;

use compiler::Family;
use compiler::testmodel::TestModel;
use safetensors::SafeTensors;

use crate::suite::codec::{F16, Ty, decode, encode};
use crate::suite::values::Values;

/// Tensors by the checkpoint's names, rounded to the types that graphs hold them in. The attention's `1 / sqrt(d)` is in
/// the query weights, or in the query norm where there is one.
#[derive(Clone, Debug)]
pub struct Weights {
    tensors: BTreeMap<String, (Ty, Values)>,
}

impl Weights {
    /// Writes the checkpoint, and reads it back through the `safetensors` crate.
    ///
    /// # Panics
    /// Either fails.
    pub fn random(model: &TestModel, int8: bool) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        model.write(folder.path()).expect("the random checkpoint is written");
        let bytes = std::fs::read(folder.path().join("model.safetensors")).expect("the checkpoint is one file");
        let file = SafeTensors::deserialize(&bytes).expect("the checkpoint is valid");
        let mut tensors = BTreeMap::new();
        for (name, view) in file.tensors() {
            let floats = view.data().as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b)));
            let scaled = match model.family {
                Family::Qwen3 => name.ends_with("q_norm.weight"),
                _ => name.contains("q_proj"),
            };
            let scale = if scaled { (model.head_dim as f64).sqrt().recip() } else { 1.0 };
            let values = Values::new(view.shape(), floats.map(|x| x * scale).collect());
            let linear = name.contains("proj.weight");
            let ty = if int8 && linear { Ty::s8_by(0) } else { F16 };
            let quant = ty.encoding(&values, &[]);
            let held = decode(&encode(&values, ty.dtype, &quant), &values.dims, ty.dtype, &quant);
            tensors.insert(name, (ty.with(crate::suite::codec::Fit::Given(quant)), held));
        }
        Self { tensors }
    }

    /// A tensor with the type that the graph holds it in.
    ///
    /// # Panics
    /// The model has none of that name.
    pub fn get(&self, name: &str) -> &(Ty, Values) {
        self.find(name).unwrap_or_else(|| panic!("the checkpoint has `{name}`"))
    }

    /// A tensor, where the model has one of that name.
    pub fn find(&self, name: &str) -> Option<&(Ty, Values)> {
        self.tensors.get(name)
    }
}
