//! How large the keys and values of each layer become: what the scales of an 8-bit cache are made of.
//!
//! They are measured by who can run graphs; here they are numbers.

use crate::{CompileError, Result};
use genie_types::{KvKind, Quant};

/// The code that stands for zero.
const ZERO: i32 = 128;
/// The largest distance of a code from it, up and down alike.
const LARGEST: f32 = 127.0;
/// The smallest scale, so that a layer whose rows were all zero has one.
const LEAST_SCALE: f32 = 1e-6;

/// Largest magnitudes of cache rows, for keys and values of each layer.
///
/// *Invariant*: all are finite and not below 0.
#[derive(Clone, Debug, PartialEq)]
pub struct KvPeaks(Vec<[f32; 2]>);

// Sound by the invariant: none of them is NaN.
impl Eq for KvPeaks {}

impl KvPeaks {
    /// Those of keys and values, by layer.
    ///
    /// # Errors
    /// [`CompileError::BadKvPeak`].
    pub fn new(by_layer: Vec<[f32; 2]>) -> Result<Self> {
        for (layer, peaks) in by_layer.iter().enumerate() {
            for (kind, &value) in ["key", "value"].into_iter().zip(peaks) {
                if !value.is_finite() || value < 0.0 {
                    return Err(CompileError::BadKvPeak { kind, layer, value });
                }
            }
        }
        Ok(Self(by_layer))
    }

    /// There is one pair for each layer.
    pub(crate) fn check(&self, n_layers: usize) -> Result<()> {
        match self.0.len() {
            found if found == n_layers => Ok(()),
            found => Err(CompileError::KvPeaksOfOtherModel { found, expected: n_layers }),
        }
    }

    /// The encoding in which the largest number has the largest code: `(code - 128) * scale`.
    pub(crate) fn encoding(&self, kind: KvKind, layer: usize) -> Quant {
        let [key, value] = self.0[layer];
        let peak = if matches!(kind, KvKind::Key | KvKind::KeyScale) { key } else { value };
        Quant::PerTensor { scale: (peak / LARGEST).max(LEAST_SCALE), offset: -ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_has_the_largest_code() {
        let peaks = KvPeaks::new(vec![[254.0, 1.27], [0.0, 127.0]]).unwrap();
        let scale = |kind, layer| peaks.encoding(kind, layer).per_tensor().unwrap();
        assert_eq!(scale(KvKind::Key, 0), (2.0, -128));
        assert_eq!(scale(KvKind::Value, 1), (1.0, -128));
        assert_eq!(scale(KvKind::Key, 1), (LEAST_SCALE, -128));
    }

    #[test]
    fn peaks_that_are_none_are_refused() {
        for (value, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (-1.0, "-1")] {
            let error = KvPeaks::new(vec![[1.0, 1.0], [1.0, value]]).unwrap_err().to_string();
            assert_eq!(error, format!("the largest value of layer 1 is {shown}: expected a finite number from 0 on"));
        }
        let error = KvPeaks::new(vec![[1.0, 1.0]]).unwrap().check(2).unwrap_err().to_string();
        assert_eq!(error, "the largest keys and values of 1 layers are given, but the model has 2");
    }
}
