//! The weights of a model: names as in Hugging Face's files, first values, and what AdamW keeps beside them.

use std::collections::BTreeMap;

use candle_core::{Device, Tensor, Var};

use crate::error::Result;
use crate::random::Random;

/// How a weight begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Begin {
    Zeros,
    Ones,
    /// Of the normal distribution with this deviation.
    Normal(f32),
}

/// A weight: name, extents, how it begins.
pub(crate) type Weight = (String, Vec<usize>, Begin);

/// Weights by name. The order of names decides what a seed gives each.
pub(crate) struct Parameters(BTreeMap<String, Var>);

impl Parameters {
    /// The first values of a seed.
    pub(crate) fn begin(weights: &[Weight], seed: u64) -> Result<Self> {
        let mut random = Random::at(seed, 0);
        let mut vars = BTreeMap::new();
        for (name, dims, begin) in weights {
            let n: usize = dims.iter().product();
            let values: Vec<f32> = match begin {
                Begin::Zeros => vec![0.0; n],
                Begin::Ones => vec![1.0; n],
                Begin::Normal(deviation) => (0..n).map(|_| deviation * random.normal()).collect(),
            };
            let var = Var::from_tensor(&Tensor::from_vec(values, dims.as_slice(), &Device::Cpu)?)?;
            vars.insert(name.clone(), var);
        }
        Ok(Self(vars))
    }

    /// A weight.
    ///
    /// # Errors
    /// There is none of that name.
    pub(crate) fn get(&self, name: &str) -> Result<&Tensor> {
        let var = self.0.get(name).ok_or_else(|| candle_core::Error::Msg(format!("no weight `{name}`")))?;
        Ok(var.as_tensor())
    }

    /// All of them, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Var)> {
        self.0.iter().map(|(name, var)| (name.as_str(), var))
    }

    /// How many numbers they are.
    pub(crate) fn n_elems(&self) -> usize {
        self.0.values().map(|var| var.elem_count()).sum()
    }
}
