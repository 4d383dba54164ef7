//! Prints results as JSON lines, as tables with a header before the first row, or as rows for other programs: `--output`.

use anyhow::Result;

use super::profile::OpTime;
use super::record::{Record, beside};
use super::roofline::Limit;
use super::rows::{Format, Rows};
use super::speculation::SpecRecord;
use crate::printer::Printer;

/// Prints results one by one.
pub struct Output<'a> {
    printer: &'a Printer,
    json: bool,
    rows: Option<Rows>,
    /// The current table.
    under: Table,
}

#[derive(Clone, PartialEq, Eq)]
enum Table {
    None,
    Limits,
    Measures,
    Speculation,
    /// Ops of a test.
    Ops(String),
}

impl<'a> Output<'a> {
    /// Prints nothing yet.
    pub fn new(printer: &'a Printer, json: bool) -> Self {
        Self { printer, json, rows: None, under: Table::None }
    }

    /// Prints measures in a form for other programs.
    pub fn in_format(mut self, format: Option<Format>) -> Self {
        self.json |= format == Some(Format::Jsonl);
        self.rows = format.filter(|format| *format != Format::Jsonl).map(Rows::new);
        self
    }

    /// Prints what comes behind the last row.
    pub fn finish(&mut self) -> Result<()> {
        match self.rows.as_ref().and_then(Rows::end) {
            Some(end) => self.printer.data_line(end),
            None => Ok(()),
        }
    }

    /// Prints a limit of the machine; fails after a signal, since nothing else ends its measurement.
    pub fn limit(&mut self, limit: &Limit<'_>) -> Result<()> {
        self.printer.interrupt().check()?;
        if self.json {
            return self.printer.data_line(serde_json::to_string(limit)?);
        }
        let range = "min .. max";
        self.header(Table::Limits, || format!("{:<16} {:>7} {:>10} {range:>22}", "limit", "threads", "median"))?;
        let (median, unit) = match limit.gb_s {
            Some(gb_s) => (gb_s, "GB/s"),
            None => (limit.gop_s.unwrap_or_default(), "Gop/s"),
        };
        let range = format!("{:.1} .. {:.1}", limit.min, limit.max);
        self.printer
            .data_line(format_args!("{:<16} {:>7} {median:>10.1} {range:>22} {unit}", limit.test, limit.threads))
    }

    /// Prints a test's result.
    pub fn measure(&mut self, r: &Record<'_>) -> Result<()> {
        if let Some(rows) = &mut self.rows {
            let text = rows.row(&serde_json::to_value(r)?);
            return self.printer.data_line(text);
        }
        if self.json {
            return self.printer.data_line(serde_json::to_string(r)?);
        }
        let range = "min .. max";
        self.header(Table::Measures, || {
            format!(
                "{}\n{:<12} {:>12} {:>12} {range:>22} {:>8} {:>8} {:>7}",
                r.metadata.line(r.disturb),
                "test",
                "ms",
                "tokens/s",
                "GB/s",
                "Gop/s",
                "share"
            )
        })?;
        let number = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| format!("{n:.2}"));
        let range = format!("{:.1} .. {:.1}", r.min, r.max);
        let share = r.share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0));
        let (gb_s, gop_s) = (number(r.gb_s), number(r.gop_s));
        self.printer.data_line(format_args!(
            "{:<12} {:>12.2} {:>12.1} {range:>22} {gb_s:>8} {gop_s:>8} {share:>7}",
            r.test, r.ms, r.tok_s
        ))
    }

    /// Prints what drafts have gained.
    pub fn speculation(&mut self, r: &SpecRecord<'_>) -> Result<()> {
        if self.json {
            return self.printer.data_line(serde_json::to_string(r)?);
        }
        let range = "min .. max";
        self.header(Table::Speculation, || {
            format!(
                "{:<20} {:>10} {range:>18} {:>9} {:>7} {:>8} {:>9}",
                "test", "tokens/s", "of basic", "rounds", "drafted", "accepted"
            )
        })?;
        let range = format!("{:.1} .. {:.1}", r.min, r.max);
        self.printer.data_line(format_args!(
            "{:<20} {:>10.1} {range:>18} {:>9.3} {:>7} {:>8} {:>9}",
            r.test, r.tok_s, r.of_basic, r.rounds, r.drafted, r.accepted
        ))
    }

    /// Prints an op type's time.
    pub fn op(&mut self, r: &OpTime) -> Result<()> {
        if self.json {
            return self.printer.data_line(serde_json::to_string(r)?);
        }
        let of = format!("a step of {}{}", r.of, beside(r.disturb));
        let header = || format!("{of:<26} {:>9} {:>12} {:>7}", "count", "us", "share");
        self.header(Table::Ops(r.of.clone()), header)?;
        let (op, share) = (&r.op, r.share * 100.0);
        self.printer.data_line(format_args!("{op:<26} {:>9.1} {:>12.1} {share:>5.1} %", r.count, r.us))
    }

    fn header(&mut self, table: Table, header: impl FnOnce() -> String) -> Result<()> {
        if self.under == table {
            return Ok(());
        }
        if self.under != Table::None {
            self.printer.data_line("")?;
        }
        self.under = table;
        self.printer.data_line(header())
    }
}
