//! Moving a key to another position: rotating it by the difference.
//!
//! A key is cached after rotary embedding, so a shift by `delta` positions turns each of its pairs by
//! `delta * frequency`. Quantised keys are decoded, turned and encoded again; what that loses is measured as it
//! happens ([`ShiftLoss`]).
//!
//! *Loss* of one turn: at most half a step (`scale / 2`) of new rounding in each of the pair's old and new elements, 0.4
//! steps in the mean square together with the cache's own rounding, and clipping where a pair turns out of the
//! encoding's range. Shifts add up lazily and rows turn once, so ten shifts before a step lose as much as one.
//!
//! *Trap*: ten turns by one position lose four times as much as one by ten. A pair of low frequency turns by less than
//! half a step and is rounded back to where it was, each time; so shift by large pieces. Measured by the test below, the
//! table is in `docs/kv-cache.md`.

use crate::codec::{decode, encode};
use crate::geometry::KvTensor;
use crate::mode::RowLayout;
use genie_types::RopeConfig;
use std::ops::Range;

/// Which dimensions form a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RopePairs {
    /// `(j, j + rope_dim)`, as the graph contract has it.
    #[default]
    HalfSplit,
    /// `(2 j, 2 j + 1)`.
    Interleaved,
}

/// The rotary embedding of the keys.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// Radians per position for each pair; dimensions beyond the pairs do not turn.
    pub frequencies: Vec<f64>,
    /// Which dimensions form a pair.
    pub pairs: RopePairs,
}

impl RopeSpec {
    /// The plain embedding: `theta^(-j / rope_dim)` for pair `j`.
    pub fn new(theta: f64, rope_dim: usize) -> Self {
        Self { frequencies: RopeConfig::new(rope_dim, theta).angles(0).frequencies, pairs: RopePairs::HalfSplit }
    }

    /// Dimensions that turn.
    pub fn dims(&self) -> usize {
        2 * self.frequencies.len()
    }

    fn pair(&self, j: usize) -> (usize, usize) {
        match self.pairs {
            RopePairs::HalfSplit => (j, j + self.frequencies.len()),
            RopePairs::Interleaved => (2 * j, 2 * j + 1),
        }
    }
}

/// What turning keys has cost so far, in the keys' own units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShiftLoss {
    /// Largest difference between a stored element and the exact one.
    pub max_abs: f32,
    /// Sum of the squared differences.
    pub sum_sq: f64,
    /// Elements turned.
    pub n_elems: u64,
}

impl ShiftLoss {
    /// Root of the mean squared difference; 0 when nothing has turned.
    pub fn rms(&self) -> f64 {
        if self.n_elems == 0 { 0.0 } else { (self.sum_sq / self.n_elems as f64).sqrt() }
    }

    /// Both losses together.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            max_abs: self.max_abs.max(other.max_abs),
            sum_sq: self.sum_sq + other.sum_sq,
            n_elems: self.n_elems + other.n_elems,
        }
    }

    fn add(&mut self, stored: f32, exact: f32) {
        let diff = (stored - exact).abs();
        self.max_abs = self.max_abs.max(diff);
        self.sum_sq += f64::from(diff) * f64::from(diff);
        self.n_elems += 1;
    }
}

/// Rows whose keys are rotated by the same number of positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    pub(crate) rows: Range<usize>,
    pub(crate) delta: i64,
}

/// Rotates some rows of a key tensor.
pub(crate) fn rotate(
    tensor: &KvTensor,
    bytes: &mut [u8],
    place: RowLayout,
    rotation: &Rotation,
    rope: &RopeSpec,
    loss: &mut ShiftLoss,
) {
    let size = tensor.dtype.size_bytes();
    for (j, frequency) in rope.frequencies.iter().enumerate() {
        let (sin, cos) = (rotation.delta as f64 * frequency).sin_cos();
        let (sin, cos) = (sin as f32, cos as f32);
        let (dim_a, dim_b) = rope.pair(j);
        for head in 0..tensor.n_heads {
            for row in rotation.rows.clone() {
                let at_a = place.element(tensor, head, dim_a, row) * size;
                let at_b = place.element(tensor, head, dim_b, row) * size;
                let a = decode(tensor, &bytes[at_a..at_a + size]);
                let b = decode(tensor, &bytes[at_b..at_b + size]);
                for (at, exact) in [(at_a, a * cos - b * sin), (at_b, a * sin + b * cos)] {
                    let element = &mut bytes[at..at + size];
                    encode(tensor, exact, element);
                    loss.add(decode(tensor, element), exact);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{KvDtype, KvKind};

    /// Embeds a key at a position, exactly.
    fn embed(key: &[f64], pos: f64, rope: &RopeSpec) -> Vec<f64> {
        let mut out = key.to_vec();
        for (j, f) in rope.frequencies.iter().enumerate() {
            let ((a, b), (sin, cos)) = (rope.pair(j), (pos * f).sin_cos());
            out[a] = key[a] * cos - key[b] * sin;
            out[b] = key[a] * sin + key[b] * cos;
        }
        out
    }

    #[test]
    fn a_shifted_key_is_the_key_of_the_new_position() {
        struct Case {
            dtype: KvDtype,
            scale: f32,
            offset: i32,
            bound: f64,
        }
        // Two roundings: the key as it was cached, and the key as it was turned.
        let cases = [
            Case { dtype: KvDtype::F32, scale: 0.0, offset: 0, bound: 1e-6 },
            Case { dtype: KvDtype::F16, scale: 0.0, offset: 0, bound: 2e-3 },
            Case { dtype: KvDtype::U16, scale: 4.0 / 65_535.0, offset: -32_768, bound: 1e-4 },
            Case { dtype: KvDtype::U8, scale: 4.0 / 255.0, offset: -128, bound: 0.022 },
        ];
        let ways =
            [RopePairs::HalfSplit, RopePairs::Interleaved].map(|pairs| [false, true].map(|by_row| (pairs, by_row)));
        for (pairs, by_row) in ways.concat() {
            let rope = RopeSpec { pairs, ..RopeSpec::new(10_000.0, 8) };
            for Case { dtype, scale, offset, bound } in &cases {
                let tensor = KvTensor::new(KvKind::Key, 0, 1, 16, *dtype).with_quant(*scale, *offset);
                let tensor = if by_row { tensor.by_row() } else { tensor };
                let key: Vec<f64> = (0..16).map(|d| (d as f64 * 1.7 + 0.3).sin() * 1.2).collect();
                let (place, size) = (RowLayout::dense(4), dtype.size_bytes());
                let mut bytes = vec![0; tensor.rows_bytes(4)];
                for (dim, x) in embed(&key, 37.0, &rope).iter().enumerate() {
                    let at = place.element(&tensor, 0, dim, 2) * size;
                    encode(&tensor, *x as f32, &mut bytes[at..at + size]);
                }
                let mut loss = ShiftLoss::default();
                rotate(&tensor, &mut bytes, place, &Rotation { rows: 2..3, delta: -20 }, &rope, &mut loss);
                for (dim, x) in embed(&key, 17.0, &rope).iter().enumerate() {
                    let at = place.element(&tensor, 0, dim, 2) * size;
                    let got = f64::from(decode(&tensor, &bytes[at..at + size]));
                    assert!((got - x).abs() <= *bound, "{dtype:?} dim {dim}: {got} is not {x}");
                }
                assert!(f64::from(loss.max_abs) <= *bound && loss.n_elems == 16 && loss.rms() <= *bound, "{loss:?}");
            }
        }
    }

    /// Root mean square of the difference between keys turned `turns` times by `delta` and those embedded there at once,
    /// in steps of the encoding (float16: of 2^-11, its step just below 1), and the largest.
    fn loss(dtype: KvDtype, turns: usize, delta: i64) -> (f64, f64) {
        let steps = if dtype == KvDtype::U16 { 65_535.0 } else { 255.0 };
        // Values reach +-1, the range a little further, as calibration leaves it.
        let scale = if dtype == KvDtype::F16 { 2f64.powi(-11) } else { 2.9 / steps };
        let zero = if dtype == KvDtype::U16 { -32_768 } else { -128 };
        let (dim, n) = (64, if cfg!(miri) { 4 } else { 256 });
        let tensor = KvTensor::new(KvKind::Key, 0, 1, dim, dtype).with_quant(scale as f32, zero);
        let (rope, place, size) = (RopeSpec::new(10_000.0, dim / 2), RowLayout::dense(n), dtype.size_bytes());
        let mut random = 0x9E37_79B9_u64;
        let mut uniform = move || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        };
        let keys: Vec<Vec<f64>> = (0..n).map(|_| (0..dim).map(|_| uniform()).collect()).collect();
        let mut bytes = vec![0; tensor.rows_bytes(n)];
        for (row, key) in keys.iter().enumerate() {
            for (d, x) in embed(key, (100 + row) as f64, &rope).iter().enumerate() {
                let at = place.element(&tensor, 0, d, row) * size;
                encode(&tensor, *x as f32, &mut bytes[at..at + size]);
            }
        }
        for _ in 0..turns {
            rotate(&tensor, &mut bytes, place, &Rotation { rows: 0..n, delta }, &rope, &mut ShiftLoss::default());
        }
        let (mut sum_sq, mut largest) = (0.0, 0.0f64);
        for (row, key) in keys.iter().enumerate() {
            for (d, x) in embed(key, (100 + row) as f64 + (turns as i64 * delta) as f64, &rope).iter().enumerate() {
                let at = place.element(&tensor, 0, d, row) * size;
                let diff = (f64::from(decode(&tensor, &bytes[at..at + size])) - x).abs() / scale;
                (sum_sq, largest) = (sum_sq + diff * diff, largest.max(diff));
            }
        }
        ((sum_sq / (n * dim) as f64).sqrt(), largest)
    }

    #[test]
    fn what_shifting_costs_is_what_the_book_says() {
        struct Case {
            dtype: KvDtype,
            turns: usize,
            delta: i64,
            rms: f64,
            largest: f64,
        }
        let case = |dtype, turns, delta, rms, largest| Case { dtype, turns, delta, rms, largest };
        // No turn at all is the rounding of the cache itself.
        let cases = [
            case(KvDtype::U8, 0, 0, 0.29, 0.51),
            case(KvDtype::U8, 1, -1, 0.37, 1.2),
            case(KvDtype::U8, 1, -10, 0.4, 1.2),
            case(KvDtype::U8, 10, -1, 1.49, 5.4),
            case(KvDtype::U16, 1, -1, 0.41, 1.2),
            case(KvDtype::U16, 1, -10, 0.41, 1.2),
            case(KvDtype::U16, 10, -1, 1.74, 5.4),
            case(KvDtype::F16, 1, -1, 0.34, 2.0),
            case(KvDtype::F16, 1, -10, 0.34, 2.0),
            case(KvDtype::F16, 10, -1, 1.56, 10.1),
        ];
        let found = cases.each_ref().map(|c| loss(c.dtype, c.turns, c.delta));
        for (Case { dtype, turns, delta, .. }, (rms, largest)) in cases.iter().zip(found) {
            println!("{} {turns} turns by {delta}: {rms:.3} steps rms, {largest:.2} at most", dtype.name());
        }
        for (Case { dtype, turns, rms, largest, .. }, found) in cases.into_iter().zip(found) {
            assert!(cfg!(miri) || (found.0 - rms).abs() < 0.1 * rms, "{dtype:?} {turns}: {found:?}");
            assert!(found.1 <= largest, "{dtype:?} {turns}: {found:?}");
        }
    }
}
