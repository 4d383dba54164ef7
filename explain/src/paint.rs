//! What all pictures share: size, colours, the error of drawing.

use plotters::prelude::RGBColor;
use std::fmt::Display;

/// In pixels.
pub(crate) const WIDTH: u32 = 860;
/// In pixels.
pub(crate) const HEIGHT: u32 = 420;
/// Of titles, in pixels.
pub(crate) const TITLE: u32 = 18;
/// Distinguishable with colour blindness.
pub(crate) const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 90, 181),
    RGBColor(220, 50, 32),
    RGBColor(0, 130, 110),
    RGBColor(150, 90, 190),
    RGBColor(170, 120, 0),
    RGBColor(90, 90, 90),
];

/// A picture could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the picture `{title}`: {why}")]
pub struct DrawError {
    /// Its title.
    pub title: String,
    /// What the drawing library says.
    pub why: String,
}

/// Drawing into a string fails only if a picture has no room.
pub(crate) fn undrawn<E: Display>(title: &str) -> impl Fn(E) -> DrawError {
    let title = title.to_owned();
    move |why| DrawError { title: title.clone(), why: why.to_string() }
}

/// A number as axes show it: 1.5 k, 20 M.
pub(crate) fn short(x: f64) -> String {
    let (scaled, unit) = match x.abs() {
        a if a >= 1e12 => (x / 1e12, " T"),
        a if a >= 1e9 => (x / 1e9, " G"),
        a if a >= 1e6 => (x / 1e6, " M"),
        a if a >= 1e4 => (x / 1e3, " k"),
        _ => (x, ""),
    };
    let digits = if scaled == 0.0 || scaled.abs() >= 100.0 || scaled.fract() == 0.0 {
        0
    } else if scaled.abs() >= 1.0 {
        1
    } else {
        3
    };
    format!("{scaled:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn numbers_on_axes_are_short() {
        let cases = [(0.0, "0"), (512.0, "512"), (163_968.0, "164 k"), (2.5e9, "2.5 G"), (0.25, "0.250")];
        for (x, text) in cases {
            assert_eq!(short(x), text);
        }
    }
}
