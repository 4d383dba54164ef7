//! `genie compile`: a Hugging Face folder becomes a bundle.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use compiler::{Amount, CompileOptions, HtpOptions, Manifest, Precision, Progress, Splits, Stage, Weights};
use indicatif::ProgressBar;
use qnn_api::library::runtime;
use qnn_api::{Backend, PerfPolicy};

use super::ExitStatus;
use crate::backend;
use crate::cli::{BackendArgs, CompileArgs, PrecisionArg, SplitsArg, WeightsArg};
use crate::failure::UserError;
use crate::printer::Printer;
use crate::threads::Threads;

/// Compiles and says where the config is.
pub fn run(args: &CompileArgs, printer: &Printer) -> Result<ExitStatus> {
    let options = CompileOptions {
        ars: args.ar.clone(),
        cls: args.cl.clone(),
        splits: match args.splits {
            SplitsArg::Auto if args.target.target.is_none() => Splits::DecoderLmhead,
            SplitsArg::Auto | SplitsArg::Mono => Splits::Mono,
            SplitsArg::DecoderLmhead => Splits::DecoderLmhead,
            SplitsArg::LutDecoderLmhead => Splits::LutDecoderLmhead,
        },
        one_file: matches!(args.splits, SplitsArg::Auto) && args.target.target.is_none(),
        layers_per_split: args.layers_per_split,
        precision: match args.precision {
            PrecisionArg::F32 => Precision::F32,
            PrecisionArg::F16 => Precision::F16,
        },
        weights: match args.weights {
            WeightsArg::Float => Weights::Float,
            WeightsArg::W8 => Weights::W8,
            WeightsArg::W4 => Weights::W4,
            WeightsArg::Q8 => Weights::Q8_0,
            WeightsArg::Q4 => Weights::Q4_0,
        },
        htp: htp_options(args)?,
        force: args.force,
        ..CompileOptions::new(&args.model, &args.output)
    };
    let manifest = into_bundle(&options, &args.backend, printer)?;
    printer.data_line(args.output.join(genie_bundle::CONFIG_FILE).display())?;
    if let Some(target) = &manifest.options.target {
        let binaries = manifest.files.iter().filter(|f| f.path.ends_with(".bin"));
        let (n, bytes) = binaries.fold((0, 0), |(n, bytes), f| (n + 1, bytes + f.bytes));
        let (n_graphs, build) = (manifest.graphs.len(), &manifest.backend.build_id);
        let shown = indicatif::DecimalBytes(bytes);
        let files = if n == 1 { "file" } else { "files" };
        printer.info(format_args!("{n_graphs} graphs in {n} {files} for {target}, {shown}, made by {build}"));
    }
    Ok(ExitStatus::Done)
}

fn htp_options(args: &CompileArgs) -> Result<Option<HtpOptions>> {
    let Some(target) = &args.target.target else { return Ok(None) };
    let name = &args.target.perf;
    let performance = PerfPolicy::from_name(name).ok_or_else(|| {
        let known = PerfPolicy::ALL.map(PerfPolicy::name).join("`, `");
        UserError::error(format!("unknown performance policy `{name}`"), format!("use one of `{known}`"))
    })?;
    Ok(Some(HtpOptions {
        performance,
        share_weights: args.target.share_weights,
        cut_to_fit: matches!(args.splits, SplitsArg::Auto),
        ..HtpOptions::for_target(target)?
    }))
}

/// Compiles with bars.
pub fn into_bundle(options: &CompileOptions, backend: &BackendArgs, printer: &Printer) -> Result<Manifest> {
    options.check()?;
    let backend = match &options.htp {
        Some(htp) => htp_backend(htp, backend)?,
        None => backend::open(backend, &Threads::default())?,
    };
    let mut bars = Bars { printer, bar: None, times: options.htp.is_some() };
    Ok(compiler::compile(options, &backend, &mut bars)?)
}

/// Qualcomm's library: that which `--backend-lib` or `--backend` names, else the one on this machine.
fn htp_backend(htp: &HtpOptions, args: &BackendArgs) -> Result<Arc<Backend>> {
    let path =
        Some(PathBuf::from(&args.backend)).filter(|path| path.components().count() > 1 || path.extension().is_some());
    let named = args.backend_lib.clone().or(path);
    let library = named.or_else(|| runtime::find(runtime::HTP)).ok_or_else(|| {
        UserError::error(
            format!(
                "no `{}` on this machine: it is Qualcomm's library that compiles for target `{}`",
                runtime::HTP,
                htp.target()
            ),
            format!(
                "`cargo xtask qnn-runtime` fetches it; or set {} to its folder, or give its path as `--backend-lib`",
                runtime::DIR_VARIABLE
            ),
        )
    })?;
    htp.open(&library).with_context(|| format!("cannot compile with `{}`", library.display()))
}

/// One bar a stage; it counts bytes where they say something, else items.
struct Bars<'a> {
    printer: &'a Printer,
    bar: Option<(ProgressBar, bool)>,
    /// Tell how long each graph took: the host needs next to nothing, an HTP library may need minutes.
    times: bool,
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

    fn working(&mut self, name: &str) {
        if let Some((bar, _)) = &self.bar {
            bar.set_message(format!("finalize {name}"));
        }
    }

    fn timed(&mut self, graph: &str, took: Duration) {
        if let Some((bar, _)) = self.bar.as_ref().filter(|_| self.times) {
            bar.suspend(|| self.printer.info(format_args!("finalized {graph} in {:.2} s", took.as_secs_f64())));
        }
    }

    fn end(&mut self, _stage: &Stage) {
        if let Some((bar, _)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn note(&mut self, text: &str) {
        self.printer.info(format_args!("note: {text}"));
    }
}
