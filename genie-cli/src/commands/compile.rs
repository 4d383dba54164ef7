//! `genie compile`: a Hugging Face folder becomes a bundle.

use anyhow::Result;
use compiler::{Amount, CompileOptions, Manifest, Precision, Progress, Splits, Stage};
use indicatif::ProgressBar;

use super::ExitStatus;
use crate::backend;
use crate::cli::{BackendArgs, CompileArgs, PrecisionArg, SplitsArg};
use crate::printer::Printer;

/// Compiles and says where the config is.
pub fn run(args: &CompileArgs, printer: &Printer) -> Result<ExitStatus> {
    let options = CompileOptions {
        ars: args.ar.clone(),
        cls: args.cl.clone(),
        splits: match args.splits {
            SplitsArg::Mono => Splits::Mono,
            SplitsArg::DecoderLmhead => Splits::DecoderLmhead,
            SplitsArg::LutDecoderLmhead => Splits::LutDecoderLmhead,
        },
        layers_per_split: args.layers_per_split,
        precision: match args.precision {
            PrecisionArg::F32 => Precision::F32,
            PrecisionArg::F16 => Precision::F16,
        },
        force: args.force,
        ..CompileOptions::new(&args.model, &args.output)
    };
    into_bundle(&options, &args.backend, printer)?;
    printer.line(args.output.join(compiler::CONFIG_FILE).display())?;
    Ok(ExitStatus::Done)
}

/// Compiles with bars.
pub fn into_bundle(options: &CompileOptions, backend: &BackendArgs, printer: &Printer) -> Result<Manifest> {
    options.check()?;
    let backend = backend::open(backend, None)?;
    let mut bars = Bars { printer, bar: None };
    Ok(compiler::compile(options, &backend, &mut bars)?)
}

/// One bar a stage; it counts bytes where they say something, else items.
struct Bars<'a> {
    printer: &'a Printer,
    bar: Option<(ProgressBar, bool)>,
}

impl Progress for Bars<'_> {
    fn begin(&mut self, stage: &Stage, total: Amount) {
        let by_bytes = total.bytes > 0;
        let length = if by_bytes { total.bytes } else { total.items };
        self.bar = Some((self.printer.bar(length, &stage.to_string(), by_bytes), by_bytes));
    }

    fn item(&mut self, _name: &str, bytes: u64) {
        if let Some((bar, by_bytes)) = &self.bar {
            bar.inc(if *by_bytes { bytes } else { 1 });
        }
    }

    fn end(&mut self, _stage: &Stage) {
        if let Some((bar, _)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn note(&mut self, text: &str) {
        self.printer.say(format_args!("note: {text}"));
    }
}
