//! Prints what `--serve` found: lines of JSON, or a table.

use anyhow::Result;
use open_genie::serving::{StepTime, StepTimes};

use super::metrics::Summary;
use crate::printer::Printer;

/// Prints the times of a step of each width.
pub fn print_times(times: &StepTimes, json: bool, printer: &Printer) -> Result<()> {
    for &StepTime { width, us, us_empty } in times.all() {
        let (ms, ms_empty) = (us / 1e3, us_empty / 1e3);
        if json {
            printer.data_line(serde_json::json!({"test": "step", "width": width, "ms": ms, "ms_empty": ms_empty}))?;
        } else {
            printer.data_line(format_args!(
                "step of {width:>4} rows: {ms:>8.1} ms with a full cache, {ms_empty:>8.1} ms with an empty one"
            ))?;
        }
    }
    Ok(())
}

/// Prints what came of a policy; `header` says whether the head was printed.
pub fn print(s: &Summary, json: bool, header: &mut bool, printer: &Printer) -> Result<()> {
    if json {
        return printer.data_line(serde_json::to_string(s)?);
    }
    if !std::mem::replace(header, true) {
        printer.data_line(format_args!(
            "{:<22} {:>4} {:>8} {:>17} {:>29} {:>9} {:>9} {:>8} {:>7} {:>6}",
            "policy",
            "seed",
            "seconds",
            "ttft p50/p99 ms",
            "itl p50/p95/p99/max ms",
            "in tok/s",
            "out tok/s",
            "goodput",
            "padding",
            "same"
        ))?;
    }
    let ttft = format!("{:.0} / {:.0}", s.ttft_ms.p50, s.ttft_ms.p99);
    let itl = &s.itl_ms;
    let itl = format!("{:.0} / {:.0} / {:.0} / {:.0}", itl.p50, itl.p95, itl.p99, itl.max);
    let same = format!("{}/{}", s.same_replies, s.requests);
    printer.data_line(format_args!(
        "{:<22} {:>4} {:>8.2} {ttft:>17} {itl:>29} {:>9.1} {:>9.1} {:>8.2} {:>6.0}% {same:>6}",
        s.policy,
        s.seed,
        s.seconds,
        s.in_tok_s,
        s.out_tok_s,
        s.goodput,
        s.padding * 100.0
    ))
}
