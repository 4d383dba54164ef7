//! AdamW, with moments that can be saved: after a resume the next step is the one that would have followed.

use std::collections::BTreeMap;

use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};

use crate::error::Result;
use crate::parameters::Parameters;

const BETAS: [f64; 2] = [0.9, 0.95];
const EPSILON: f64 = 1e-8;
/// The norm of all gradients together is brought down to this.
const LARGEST_NORM: f64 = 1.0;

/// Both moments of each weight.
pub(crate) struct AdamW {
    pub(crate) moments: BTreeMap<String, [Var; 2]>,
}

impl AdamW {
    /// Before the first step.
    pub(crate) fn begin(parameters: &Parameters) -> Result<Self> {
        let zeros = |var: &Var| -> Result<[Var; 2]> {
            Ok([Var::from_tensor(&var.zeros_like()?)?, Var::from_tensor(&var.zeros_like()?)?])
        };
        let moments = parameters.iter().map(|(name, var)| Ok((name.to_owned(), zeros(var)?))).collect::<Result<_>>()?;
        Ok(Self { moments })
    }

    /// Step `step`, counted from 0. Weights of two dimensions decay.
    pub(crate) fn step(
        &self,
        parameters: &Parameters,
        gradients: &GradStore,
        step: usize,
        rate: f64,
        decay: f64,
    ) -> Result<()> {
        let clip = clip(parameters, gradients)?;
        let count = i32::try_from(step + 1).unwrap_or(i32::MAX);
        let [first, second] = BETAS.map(|beta| 1.0 - beta.powi(count));
        for (name, var) in parameters.iter() {
            let (Some(gradient), Some([m, v])) = (gradients.get(var.as_tensor()), self.moments.get(name)) else {
                continue;
            };
            let gradient = (gradient.detach() * clip)?;
            let mean = ((m.as_tensor() * BETAS[0])? + (&gradient * (1.0 - BETAS[0]))?)?;
            let square = ((v.as_tensor() * BETAS[1])? + (gradient.sqr()? * (1.0 - BETAS[1]))?)?;
            let change = ((&mean / first)? / ((&square / second)?.sqrt()? + EPSILON)?)?;
            let kept = if var.rank() >= 2 { 1.0 - rate * decay } else { 1.0 };
            var.set(&((var.as_tensor() * kept)? - (change * rate)?)?)?;
            m.set(&mean)?;
            v.set(&square)?;
        }
        Ok(())
    }
}

/// What gradients are multiplied by so that their norm is not above [`LARGEST_NORM`].
fn clip(parameters: &Parameters, gradients: &GradStore) -> Result<f64> {
    let square = |gradient: &Tensor| -> Result<f64> { Ok(f64::from(gradient.sqr()?.sum_all()?.to_scalar::<f32>()?)) };
    let all = parameters.iter().filter_map(|(_, var)| gradients.get(var.as_tensor()));
    let norm = all.map(square).sum::<Result<f64>>()?.sqrt();
    Ok(if norm > LARGEST_NORM { LARGEST_NORM / norm } else { 1.0 })
}
