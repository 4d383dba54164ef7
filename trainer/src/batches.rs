//! Windows of the text: which a step takes, and what the held-out part is measured on.

use candle_core::{Device, Tensor};

use crate::error::Result;
use crate::random::Random;

/// Tokens in, and the tokens that follow them; both `[n, context]`.
pub(crate) struct Batch {
    pub(crate) inputs: Tensor,
    pub(crate) targets: Tensor,
}

impl Batch {
    fn of(ids: &[u32], starts: &[usize], context: usize) -> Result<Self> {
        let part = |shift: usize| -> Vec<u32> {
            starts.iter().flat_map(|&start| ids[start + shift..start + shift + context].iter().copied()).collect()
        };
        let shape = (starts.len(), context);
        Ok(Self {
            inputs: Tensor::from_vec(part(0), shape, &Device::Cpu)?,
            targets: Tensor::from_vec(part(1), shape, &Device::Cpu)?,
        })
    }

    /// The windows of step `step`, by the seed. There are more ids than the context.
    pub(crate) fn of_step(ids: &[u32], context: usize, n: usize, seed: u64, step: usize) -> Result<Self> {
        let mut random = Random::at(seed, 1 + step as u64);
        let starts: Vec<usize> = (0..n).map(|_| random.below(ids.len() - context)).collect();
        Self::of(ids, &starts, context)
    }

    /// Windows of a text side by side, at most `limit`; the rest of its end is left out.
    pub(crate) fn side_by_side(ids: &[u32], context: usize, limit: usize) -> Result<Self> {
        let n = ((ids.len() - 1) / context).clamp(1, limit);
        let starts: Vec<usize> = (0..n).map(|i| i * context).collect();
        Self::of(ids, &starts, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_follow_inputs_and_steps_differ() {
        let ids: Vec<u32> = (0..50).collect();
        let rows = |step| {
            let batch = Batch::of_step(&ids, 8, 4, 3, step).unwrap();
            (batch.inputs.to_vec2::<u32>().unwrap(), batch.targets.to_vec2::<u32>().unwrap())
        };
        let (inputs, targets) = rows(0);
        assert!(inputs.iter().zip(&targets).all(|(i, t)| i[1..] == t[..7] && t[7] == i[7] + 1));
        assert_eq!(rows(0), (inputs.clone(), targets));
        assert_ne!(rows(1).0, inputs);
        // The shortest text that fits has one window.
        let shortest = Batch::of_step(&ids[..9], 8, 2, 3, 0).unwrap().inputs.to_vec2::<u32>().unwrap();
        assert_eq!(shortest, [ids[..8].to_vec(), ids[..8].to_vec()]);
        let side = Batch::side_by_side(&ids, 8, 4).unwrap().inputs.to_vec2::<u32>().unwrap();
        assert_eq!((side.len(), side[3][0]), (4, 24));
    }
}
