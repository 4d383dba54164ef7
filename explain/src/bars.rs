//! Bar charts on a logarithmic axis: groups of bars side by side.

use plotters::prelude::*;

use crate::paint::{COLOURS, DrawError, HEIGHT, TITLE, WIDTH, short, undrawn};

/// A chart of groups of bars.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BarChart {
    /// Above it.
    pub title: String,
    /// Names of the axes.
    pub axes: [String; 2],
    /// What the bars of a group are, in order.
    pub names: Vec<String>,
    /// Groups: a label, and the height of each bar.
    pub groups: Vec<(String, Vec<f64>)>,
}

impl BarChart {
    /// The picture as SVG.
    ///
    /// # Errors
    /// There is no bar to draw.
    pub fn svg(&self) -> Result<String, DrawError> {
        let heights = || self.groups.iter().flat_map(|(_, bars)| bars.iter().copied()).filter(|h| *h > 0.0);
        let (Some(low), Some(high)) = (heights().reduce(f64::min), heights().reduce(f64::max)) else {
            return Err(DrawError { title: self.title.clone(), why: "it has no bars".into() });
        };
        let floor = low / 4.0;
        let labels: Vec<&str> = self.groups.iter().map(|(label, _)| label.as_str()).collect();
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
                .build_cartesian_2d(0.0..self.groups.len() as f64, (floor..high * 6.0).log_scale())
                .map_err(|e| undrawn()(e))?;
            // A label stands in the middle of its group.
            let label = |x: &f64| {
                let is_middle = (x.fract() - 0.5).abs() < 1e-6;
                if is_middle {
                    labels.get(*x as usize).map_or(String::new(), |l| (*l).to_owned())
                } else {
                    String::new()
                }
            };
            chart
                .configure_mesh()
                .disable_x_mesh()
                .light_line_style(TRANSPARENT)
                .x_labels(2 * self.groups.len() + 1)
                .x_desc(&self.axes[0])
                .y_desc(&self.axes[1])
                .x_label_formatter(&label)
                .y_label_formatter(&|y| short(*y))
                .draw()
                .map_err(|e| undrawn()(e))?;
            let width = 0.8 / self.names.len().max(1) as f64;
            for (i, (name, colour)) in self.names.iter().zip(COLOURS.iter().cycle()).enumerate() {
                let bars = self.groups.iter().enumerate().filter_map(|(group, (_, bars))| {
                    let height = bars.get(i).copied().filter(|height| *height > 0.0)?;
                    let left = group as f64 + 0.1 + i as f64 * width;
                    Some(Rectangle::new([(left, floor), (left + width * 0.92, height)], colour.filled()))
                });
                let sample = |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled());
                chart.draw_series(bars).map_err(|e| undrawn()(e))?.label(name.as_str()).legend(sample);
            }
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
    use super::BarChart;

    #[test]
    fn every_bar_is_there_and_every_group_has_its_label() {
        let chart = BarChart {
            title: "operations".into(),
            axes: ["prompt".into(), "operations".into()],
            names: vec!["without".into(), "with".into()],
            groups: vec![("32".into(), vec![100.0, 10.0]), ("64".into(), vec![1000.0, 20.0])],
        };
        let svg = chart.svg().unwrap();
        for text in ["operations", "without", "with", ">\n32\n<", ">\n64\n<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(BarChart::default().svg().is_err());
    }
}
