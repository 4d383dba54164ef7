//! `--plot`: tokens/s of a run's tests as an SVG, against prompt length (top) and context fill (bottom).
//!
//! A point is the median run, its bar spans the slowest to the fastest. A chart without tests is left out.

use std::fmt::Display;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::measure::Test;
use super::record::Record;

/// In pixels.
const WIDTH: u32 = 800;
/// Of each chart, in pixels.
const HEIGHT: u32 = 380;
/// Of the title, in pixels.
const TITLE: u32 = 40;
/// Distinguishable with colour blindness.
const COLOURS: [RGBColor; 5] =
    [RGBColor(0, 90, 181), RGBColor(220, 50, 32), RGBColor(0, 130, 110), RGBColor(150, 90, 190), RGBColor(170, 120, 0)];

/// One test's rates.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    x: usize,
    tok_s: f64,
    min: f64,
    max: f64,
}

/// Points of one line.
type Line = (String, Vec<Point>);

/// The points to draw, collected while tests run.
#[derive(Default)]
pub struct Plot {
    prefill: Vec<Line>,
    decode: Vec<Line>,
}

impl Plot {
    /// Adds a test's result.
    pub fn add(&mut self, test: &Test, record: &Record<'_>) {
        let (lines, name, x) = match *test {
            Test::Prefill(n) => (&mut self.prefill, "prefill".to_owned(), n),
            Test::Decode { n, fill } => (&mut self.decode, format!("decode of {n}"), fill),
        };
        let point = Point { x, tok_s: record.tok_s, min: record.min, max: record.max };
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(point),
            None => lines.push((name, vec![point])),
        }
    }

    /// Draws the charts.
    pub fn svg(mut self, title: &str) -> Result<String> {
        for (_, points) in self.prefill.iter_mut().chain(&mut self.decode) {
            points.sort_by_key(|point| point.x);
        }
        let charts = [("prompt length, tokens", &self.prefill), ("context fill, tokens", &self.decode)];
        let charts: Vec<_> = charts.into_iter().filter(|(_, lines)| !lines.is_empty()).collect();
        let mut svg = String::new();
        {
            let size = (WIDTH, TITLE + HEIGHT * charts.len() as u32);
            let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            area.fill(&WHITE).map_err(undrawn)?;
            let (head, below) = area.split_vertically(TITLE);
            head.titled(title, ("sans-serif", 16)).map_err(undrawn)?;
            for (part, (axis, lines)) in below.split_evenly((charts.len().max(1), 1)).iter().zip(charts) {
                chart(part, axis, lines)?;
            }
            area.present().map_err(undrawn)?;
        }
        Ok(svg)
    }
}

fn chart(area: &DrawingArea<SVGBackend<'_>, Shift>, axis: &str, lines: &[Line]) -> Result<()> {
    let all = || lines.iter().flat_map(|(_, points)| points);
    let far = all().map(|p| p.x).max().unwrap_or(0).max(1);
    let top = all().map(|p| p.max).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..far as f64 * 1.05, 0.0..top * 1.1)
        .map_err(undrawn)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(axis)
        .y_desc("tokens per second")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()
        .map_err(undrawn)?;
    for ((name, points), colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let line = LineSeries::new(points.iter().map(|p| (p.x as f64, p.tok_s)), colour.stroke_width(2));
        let sample = |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2));
        chart.draw_series(line).map_err(undrawn)?.label(name.as_str()).legend(sample);
        let bars = points.iter().map(|p| PathElement::new([(p.x as f64, p.min), (p.x as f64, p.max)], *colour));
        chart.draw_series(bars).map_err(undrawn)?;
        let dots = points.iter().map(|p| Circle::new((p.x as f64, p.tok_s), 4, colour.filled()));
        chart.draw_series(dots).map_err(undrawn)?;
    }
    let legend =
        chart.configure_series_labels().position(SeriesLabelPosition::LowerRight).border_style(BLACK.mix(0.3)).draw();
    legend.map_err(undrawn)
}

/// Drawing into a string fails only if a chart is too small.
fn undrawn(why: impl Display) -> anyhow::Error {
    anyhow!("cannot draw the plot: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, xs: &[usize]) -> Line {
        let point = |&x: &usize| Point { x, tok_s: 100.0, min: 90.0, max: 120.0 };
        (name.to_owned(), xs.iter().map(point).collect())
    }

    #[test]
    fn every_test_is_a_point_and_every_line_has_a_name() {
        let plot = Plot {
            prefill: vec![line("prefill", &[512, 128, 2048])],
            decode: vec![line("decode of 64", &[0, 4000]), line("decode of 8", &[0])],
        };
        let svg = plot.svg("a < b & c").unwrap();
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 6, "{svg}");
        for text in
            ["prompt length, tokens", "context fill, tokens", "tokens per second", "decode of 8", "a &lt; b &amp; c"]
        {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }

    #[test]
    fn a_side_without_tests_is_left_out() {
        let svg = Plot { decode: vec![line("decode of 64", &[0])], ..Plot::default() }.svg("").unwrap();
        assert!(svg.contains("context fill") && !svg.contains("prompt length"), "{svg}");
        assert!(Plot::default().svg("nothing").unwrap().contains("nothing"));
    }
}
