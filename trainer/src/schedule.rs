//! The learning rate: up in a line, down in half a cosine.

/// Lowest rate at the end, as a part of the highest.
const FLOOR: f64 = 0.1;

/// The rate of step `step` of `steps`, of which the part `warm_up` rises to `highest`.
pub(crate) fn rate(step: usize, steps: usize, warm_up: f64, highest: f64) -> f64 {
    let rising = (steps as f64 * warm_up).ceil();
    let at = step as f64 + 1.0;
    if at <= rising {
        return highest * at / rising;
    }
    let done = (at - rising) / (steps as f64 - rising).max(1.0);
    let cosine = 0.5 * (1.0 + (std::f64::consts::PI * done.min(1.0)).cos());
    highest * (FLOOR + (1.0 - FLOOR) * cosine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rises_and_falls() {
        let rates: Vec<f64> = (0..100).map(|step| rate(step, 100, 0.1, 2.0)).collect();
        assert!((rates[9] - 2.0).abs() < 1e-9 && (rates[0] - 0.2).abs() < 1e-9);
        assert!(rates[9..].windows(2).all(|w| w[1] < w[0]));
        assert!((rates[99] - 0.2).abs() < 1e-9);
        assert!((rate(0, 1, 0.0, 2.0) - 0.2).abs() < 1e-9);
    }
}
