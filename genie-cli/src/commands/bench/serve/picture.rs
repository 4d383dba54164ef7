//! Steps as an SVG: for each policy a lane a request, a strip of how full steps are, and a strip of tokens/s.
//!
//! All policies share one scale of time, so that a shorter panel is a faster policy.

use std::fmt::Write;

use super::metrics::{Ran, Seen, Summary};

/// In pixels.
const WIDTH: f64 = 900.0;
const LEFT: f64 = 90.0;
const LANE: f64 = 12.0;
const STRIP: f64 = 36.0;
const TITLE: f64 = 30.0;
const GAP: f64 = 18.0;
/// Distinguishable with colour blindness.
const PROMPT: &str = "#005ab5";
const REPLY: &str = "#dc3220";
const PADDING: &str = "#cccccc";
/// Lanes of one panel; later requests are left out.
const MOST_LANES: usize = 24;

/// The document.
pub fn svg(runs: &[(Summary, Vec<Seen>, Vec<Ran>)]) -> String {
    let end = runs.iter().flat_map(|(_, _, steps)| steps.last()).map(|step| step.at + step.ms).fold(1.0, f64::max);
    let x = |ms: f64| LEFT + ms / end * (WIDTH - LEFT - 10.0);
    let mut body = String::new();
    let mut y = 40.0;
    for (summary, seen, steps) in runs {
        y = panel(&mut body, y, &x, summary, seen, steps);
    }
    axis(&mut body, y, end, &x);
    let height = y + 40.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}{body}</svg>\n",
        legend()
    )
}

fn legend() -> String {
    let mut out = String::new();
    for (i, (colour, text)) in
        [(PROMPT, "rows of prompts"), (REPLY, "rows of replies"), (PADDING, "padding")].iter().enumerate()
    {
        let x = LEFT + 150.0 * i as f64;
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"12\" width=\"10\" height=\"10\" fill=\"{colour}\"/><text x=\"{}\" y=\"21\">{text}</text>",
            x + 15.0
        );
    }
    out
}

/// Draws a panel from `y` on; returns where the next one begins.
fn panel(out: &mut String, y: f64, x: &impl Fn(f64) -> f64, s: &Summary, seen: &[Seen], steps: &[Ran]) -> f64 {
    let lanes = seen.len().min(MOST_LANES);
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{:.0}\" font-weight=\"bold\">{}: {:.2} s, {:.0} tokens/s out, time between tokens p50 {:.0} ms, longest {:.0} ms</text>",
        y + 12.0,
        s.policy,
        s.seconds,
        s.out_tok_s,
        s.itl_ms.p50,
        s.itl_ms.max
    );
    let top = y + TITLE - 10.0;
    for lane in 0..lanes {
        let _ = writeln!(
            out,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">request {lane}</text>",
            LEFT - 6.0,
            top + LANE * lane as f64 + 9.0
        );
    }
    for step in steps {
        for &(id, _, prefill) in step.rows.iter().filter(|(id, ..)| (*id as usize) < lanes) {
            let colour = if prefill { PROMPT } else { REPLY };
            bar(out, x(step.at), x(step.at + step.ms), top + LANE * id as f64, LANE - 2.0, colour);
        }
    }
    let below = top + LANE * lanes as f64 + 6.0;
    let widest = steps.iter().map(|step| step.width).max().unwrap_or(1) as f64;
    for step in steps {
        let count =
            |prefill: bool| step.rows.iter().filter(|rows| rows.2 == prefill).map(|rows| rows.1).sum::<usize>() as f64;
        let (from, to, mut base) = (x(step.at), x(step.at + step.ms), below + STRIP);
        let padding = (step.width as f64 - count(true) - count(false)).max(0.0);
        for (n, colour) in [(count(false), REPLY), (count(true), PROMPT), (padding, PADDING)] {
            let height = n / widest * STRIP;
            base -= height;
            bar(out, from, to, base, height, colour);
        }
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{widest:.0} rows</text>",
        LEFT - 6.0,
        below + 10.0
    );
    rate(out, below + STRIP + 6.0, x, seen, steps);
    below + 2.0 * STRIP + 6.0 + GAP
}

/// Tokens/s of replies, in windows of a fortieth of the run.
fn rate(out: &mut String, y: f64, x: &impl Fn(f64) -> f64, seen: &[Seen], steps: &[Ran]) {
    let end = steps.last().map_or(1.0, |step| step.at + step.ms);
    let window = (end / 40.0).max(1e-3);
    let mut counts = vec![0_usize; 41];
    for at in seen.iter().flat_map(|seen| &seen.tokens_at) {
        counts[((at / window) as usize).min(40)] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(1).max(1) as f64;
    let point = |(i, n): (usize, &usize)| {
        format!("{:.1},{:.1}", x((i as f64 + 0.5) * window), y + STRIP - *n as f64 / most * STRIP)
    };
    let points: Vec<_> = counts[..40].iter().enumerate().map(point).collect();
    let _ = writeln!(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"black\"/>", points.join(" "));
    let per_second = most / window * 1e3;
    let _ = writeln!(
        out,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{per_second:.0} tok/s</text>",
        LEFT - 6.0,
        y + 10.0
    );
}

fn axis(out: &mut String, y: f64, end: f64, x: &impl Fn(f64) -> f64) {
    for i in 0..=8 {
        let ms = end * f64::from(i) / 8.0;
        let _ = writeln!(
            out,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{:.1} s</text>",
            x(ms),
            y + 12.0,
            ms / 1e3
        );
    }
}

fn bar(out: &mut String, from: f64, to: f64, y: f64, height: f64, colour: &str) {
    if height > 0.0 {
        let width = (to - from).max(0.3);
        let _ = writeln!(
            out,
            "<rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_a_bar_for_each_row_of_a_step() {
        let steps = vec![
            Ran { at: 0.0, ms: 10.0, width: 8, rows: vec![(0, 5, true)] },
            Ran { at: 10.0, ms: 10.0, width: 8, rows: vec![(0, 1, false), (1, 7, true)] },
        ];
        let seen = vec![Seen { tokens_at: vec![10.0, 20.0], ..Seen::default() }; 2];
        let summary = Summary::new("fused", 1, &seen, &steps, &[], 150.0);
        let svg = svg(&[(summary, seen, steps)]);
        let bars = |colour: &str| svg.matches(&format!("fill=\"{colour}\"/>")).count();
        // In the lanes, in the strip, in the legend.
        assert_eq!((bars(PROMPT), bars(REPLY), bars(PADDING)), (2 + 2 + 1, 1 + 1 + 1, 1 + 1));
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>") && svg.contains("fused: 0.02 s"));
    }
}
