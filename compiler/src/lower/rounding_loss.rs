//! How far rounding moved the weights, as a root mean square over that of the weights.

/// Sums of squares: of what rounding moved, and of the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RoundingLoss {
    moved: f64,
    whole: f64,
}

impl RoundingLoss {
    /// Adds one weight and its rounded value.
    pub(super) fn add(&mut self, weight: f32, rounded: f32) {
        self.moved += f64::from(weight - rounded).powi(2);
        self.whole += f64::from(weight).powi(2);
    }

    /// Adds another tensor's.
    pub(crate) fn join(&mut self, other: Self) {
        self.moved += other.moved;
        self.whole += other.whole;
    }

    /// Root mean square of the moves over that of the weights; `None` when nothing was rounded.
    pub(crate) fn relative(self) -> Option<f64> {
        (self.whole > 0.0).then(|| (self.moved / self.whole).sqrt())
    }
}
