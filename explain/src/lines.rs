//! Line charts: some series over one axis, with spreads and named heights; either axis may be logarithmic.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::paint::{COLOURS, DrawError, HEIGHT, TITLE, WIDTH, short, undrawn};

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Points, left to right.
    pub points: Vec<(f64, f64)>,
    /// Lowest and highest value at each point; empty for none.
    pub spread: Vec<(f64, f64)>,
}

impl Series {
    /// A line without spreads.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, spread: Vec::new() }
    }
}

/// A chart of lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineChart {
    /// Above it.
    pub title: String,
    /// Names of the axes.
    pub axes: [String; 2],
    /// Whether the axes are logarithmic.
    pub log: [bool; 2],
    /// The lines.
    pub series: Vec<Series>,
    /// Heights with a name, such as the memory of a device.
    pub marks: Vec<(String, f64)>,
}

impl LineChart {
    /// The picture as SVG.
    ///
    /// # Errors
    /// There is no point to draw.
    pub fn svg(&self) -> Result<String, DrawError> {
        let all = || self.series.iter().flat_map(|s| s.points.iter().copied());
        let ends = |values: &mut dyn Iterator<Item = f64>, log: bool| -> Option<(f64, f64)> {
            let usable: Vec<f64> = values.filter(|v| v.is_finite() && (!log || *v > 0.0)).collect();
            let low = usable.iter().copied().reduce(f64::min)?;
            let high = usable.iter().copied().reduce(f64::max)?;
            Some(if log { (low / 1.3, high * 1.6) } else { (0.0, if high > 0.0 { high * 1.1 } else { 1.0 }) })
        };
        let spreads = || self.series.iter().flat_map(|s| s.spread.iter().flat_map(|&(a, b)| [a, b]));
        let xs = ends(&mut all().map(|p| p.0), self.log[0]);
        let heights = self.marks.iter().map(|m| m.1);
        let ys = ends(&mut all().map(|p| p.1).chain(spreads()).chain(heights), self.log[1]);
        let (Some(xs), Some(ys)) = (xs, ys) else {
            return Err(DrawError { title: self.title.clone(), why: "it has no points".into() });
        };
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
            area.fill(&WHITE).map_err(undrawn(&self.title))?;
            let (x, y) = (xs.0..xs.1, ys.0..ys.1);
            match self.log {
                [false, false] => self.draw(&area, x, y, xs)?,
                [true, false] => self.draw(&area, x.log_scale(), y, xs)?,
                [false, true] => self.draw(&area, x, y.log_scale(), xs)?,
                [true, true] => self.draw(&area, x.log_scale(), y.log_scale(), xs)?,
            }
            area.present().map_err(undrawn(&self.title))?;
        }
        Ok(svg)
    }

    fn draw<X, Y>(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        x: X,
        y: Y,
        (left, right): (f64, f64),
    ) -> Result<(), DrawError>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let undrawn = || undrawn(&self.title);
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", TITLE))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(x, y)
            .map_err(|e| undrawn()(e))?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc(&self.axes[0])
            .y_desc(&self.axes[1])
            .x_label_formatter(&|x| short(*x))
            .y_label_formatter(&|y| short(*y))
            .draw()
            .map_err(|e| undrawn()(e))?;
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let line = LineSeries::new(series.points.iter().copied(), colour.stroke_width(2));
            let sample = |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2));
            chart.draw_series(line).map_err(|e| undrawn()(e))?.label(series.name.as_str()).legend(sample);
            let spreads = series.points.iter().zip(&series.spread);
            let spreads = spreads.map(|(p, s)| PathElement::new([(p.0, s.0), (p.0, s.1)], *colour));
            chart.draw_series(spreads).map_err(|e| undrawn()(e))?;
            let dots = series.points.iter().map(|p| Circle::new(*p, 3, colour.filled()));
            chart.draw_series(dots).map_err(|e| undrawn()(e))?;
        }
        for (name, height) in &self.marks {
            let grey = RGBColor(110, 110, 110);
            let line = PathElement::new([(left, *height), (right, *height)], grey);
            chart.draw_series([line]).map_err(|e| undrawn()(e))?;
            // At the right, above its line: the legend is at the left.
            let style = ("sans-serif", 12).into_font().color(&grey).pos(Pos::new(HPos::Right, VPos::Bottom));
            let text = Text::new(name.clone(), (right, *height), style);
            chart.draw_series([text]).map_err(|e| undrawn()(e))?;
        }
        let mut legend = chart.configure_series_labels();
        let legend = legend.position(SeriesLabelPosition::UpperLeft).background_style(WHITE.mix(0.8));
        legend.border_style(BLACK.mix(0.3)).draw().map_err(|e| undrawn()(e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_a_dot_and_every_line_has_a_name() {
        let line = |name: &str, factor: f64| {
            Series::new(name, (1..=4).map(|x| (f64::from(x), factor * f64::from(x))).collect())
        };
        for log in [[false, false], [true, false], [false, true], [true, true]] {
            let mut chart = LineChart {
                title: "a < b".into(),
                axes: ["tokens".into(), "seconds".into()],
                log,
                series: vec![line("without", 3.0), line("with", 1.0)],
                marks: vec![("8 GB".into(), 8.0)],
            };
            chart.series[0].spread = vec![(1.0, 9.0); 4];
            let svg = chart.svg().unwrap();
            assert_eq!(svg.matches("<circle").count(), 8, "{svg}");
            for text in ["a &lt; b", "tokens", "seconds", "without", "8 GB"] {
                assert!(svg.contains(text), "{text}: {svg}");
            }
        }
    }

    #[test]
    fn nothing_is_not_drawn() {
        let chart = LineChart { title: "empty".into(), ..LineChart::default() };
        assert_eq!(chart.svg().unwrap_err().to_string(), "cannot draw the picture `empty`: it has no points");
    }
}
