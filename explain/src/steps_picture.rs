//! The graphs that ran, as a picture: a column for each step, as high as the graph is wide; filled rows are tokens, pale ones padding.

use plotters::prelude::*;

use crate::paint::{COLOURS, DrawError, HEIGHT, TITLE, WIDTH, undrawn};
use serde::Serialize;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepColumn {
    /// Width of the graph: tokens that it takes, padding included.
    pub ar: u64,
    /// Columns that its attention has.
    pub cl: u64,
    /// Tokens that it took.
    pub tokens: u64,
    /// Rows in the cache before it.
    pub past: u64,
}

/// Steps in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepsPicture {
    /// Above it.
    pub title: String,
    /// The steps.
    pub steps: Vec<StepColumn>,
}

impl StepsPicture {
    /// The picture as SVG.
    ///
    /// # Errors
    /// There is no step to draw.
    pub fn svg(&self) -> Result<String, DrawError> {
        let Some(tallest) = self.steps.iter().map(|step| step.ar.max(step.past + step.tokens)).max() else {
            return Err(DrawError { title: self.title.clone(), why: "it has no steps".into() });
        };
        let mut svg = String::new();
        {
            let undrawn = || undrawn(&self.title);
            let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
            area.fill(&WHITE).map_err(|e| undrawn()(e))?;
            let mut chart = ChartBuilder::on(&area)
                .caption(&self.title, ("sans-serif", TITLE))
                .margin(12)
                .x_label_area_size(44)
                .y_label_area_size(76)
                .build_cartesian_2d(0.0..self.steps.len() as f64, 0.0..tallest as f64 * 1.3)
                .map_err(|e| undrawn()(e))?;
            chart
                .configure_mesh()
                .disable_x_mesh()
                .light_line_style(TRANSPARENT)
                .x_desc("step")
                .y_desc("tokens")
                .x_label_formatter(&|x| format!("{x:.0}"))
                .y_label_formatter(&|y| format!("{y:.0}"))
                .draw()
                .map_err(|e| undrawn()(e))?;
            type Rows = fn(&StepColumn) -> (u64, u64);
            let layers: [(&str, ShapeStyle, Rows); 2] = [
                ("padding: rows that no token has", COLOURS[1].mix(0.25).filled(), |step| (step.tokens, step.ar)),
                ("tokens of the step", COLOURS[0].filled(), |step| (0, step.tokens)),
            ];
            for (name, style, rows) in layers {
                let columns = self.steps.iter().enumerate().map(|(i, step)| {
                    let (from, to) = rows(step);
                    Rectangle::new([(i as f64 + 0.1, from as f64), (i as f64 + 0.9, to as f64)], style)
                });
                let sample = move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], style);
                chart.draw_series(columns).map_err(|e| undrawn()(e))?.label(name).legend(sample);
            }
            let filled = |step: &StepColumn| (step.past + step.tokens) as f64;
            let line = self.steps.iter().enumerate().map(|(i, step)| (i as f64 + 0.5, filled(step)));
            let green = COLOURS[2].stroke_width(2);
            let sample = move |(x, y)| PathElement::new([(x, y), (x + 12, y)], green);
            let drawn = chart.draw_series(LineSeries::new(line, green)).map_err(|e| undrawn()(e))?;
            drawn.label("rows in the cache behind the step").legend(sample);
            let mut legend = chart.configure_series_labels();
            let legend = legend.position(SeriesLabelPosition::UpperLeft).background_style(WHITE.mix(0.8));
            legend.border_style(BLACK.mix(0.3)).draw().map_err(|e| undrawn()(e))?;
            area.present().map_err(|e| undrawn()(e))?;
        }
        Ok(svg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_has_a_column_of_tokens_and_one_of_padding() {
        let step = |ar, tokens, past| StepColumn { ar, cl: 64, tokens, past };
        let picture = StepsPicture { title: "steps".into(), steps: vec![step(8, 8, 0), step(8, 3, 8), step(1, 1, 11)] };
        let svg = picture.svg().unwrap();
        for text in ["padding", "tokens of the step", "rows in the cache"] {
            assert!(svg.contains(text), "{svg}");
        }
        assert!(StepsPicture::default().svg().is_err());
    }
}
