//! The losses as a table and a picture.

use std::fmt::Write;

use explain::{LineChart, Series};

use crate::error::Result;
use crate::state::Loss;

/// Points of the picture; more are averaged.
const POINTS: usize = 400;

/// `loss.csv`.
pub(crate) fn csv(losses: &[Loss]) -> String {
    let mut text = "step,loss,held_out_loss,learning_rate\n".to_owned();
    for loss in losses {
        let held_out = loss.held_out.map(|x| x.to_string()).unwrap_or_default();
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{},{},{held_out},{}", loss.step, loss.train, loss.rate);
    }
    text
}

/// `loss.svg`.
pub(crate) fn svg(losses: &[Loss]) -> Result<String> {
    let per_point = losses.len().div_ceil(POINTS).max(1);
    let mean = |part: &[Loss]| part.iter().map(|l| f64::from(l.train)).sum::<f64>() / part.len() as f64;
    let train = losses.chunks(per_point).map(|part| (part[part.len() - 1].step as f64, mean(part))).collect();
    let held_out: Vec<_> = losses.iter().filter_map(|l| Some((l.step as f64, f64::from(l.held_out?)))).collect();
    let mut series = vec![Series::new("trained on", train)];
    if !held_out.is_empty() {
        series.push(Series::new("held out", held_out));
    }
    let chart = LineChart {
        title: "Loss while training".to_owned(),
        axes: ["step".to_owned(), "nats per token".to_owned()],
        series,
        ..LineChart::default()
    };
    Ok(chart.svg()?)
}
