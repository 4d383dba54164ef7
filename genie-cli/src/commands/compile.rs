//! `genie compile`: compiles a Hugging Face folder or a GGUF file into a bundle.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use compiler::{
    AdapterSource, Amount, CompileOptions, HtpOptions, KvCacheType, Manifest, ModelSummary, Precision, Progress,
    Splits, Stage, Weights,
};
use indicatif::ProgressBar;
use open_genie::Proof;
use qnn_api::library::runtime;
use qnn_api::{Backend, PerfPolicy};
use serde_json::{Value, json};

use crate::args::{BackendArgs, GraphKindArgs, VariantArgs};
use crate::exit::ExitStatus;
use crate::failure::UserError;
use crate::printer::Printer;
use crate::prompt_text::{self, Role};

/// Flags of `genie compile`.
#[derive(clap::Args)]
pub struct Args {
    /// Folder with `config.json`, safetensors and `tokenizer.json`; or a GGUF file.
    pub model: PathBuf,
    /// Folder of the bundle.
    #[arg(long, short, value_name = "BUNDLE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub variants: VariantArgs,
    /// Where to cut the model into context binaries.
    #[arg(long, value_enum, default_value = "auto")]
    pub splits: SplitsArg,
    /// Decoder layers per split [default: all, or as many as the file limit allows].
    #[arg(long, value_name = "LAYERS", value_parser = crate::args::number::count)]
    pub layers_per_split: Option<usize>,
    /// Type of activations, and of weights that have no format of their own (see `--weights`).
    #[arg(long, value_enum, default_value = "f16")]
    pub precision: PrecisionArg,
    /// How the weights of linear layers are stored [default: as the model has them: bfloat16 stays bf16, other floats are
    /// float, a quantised GGUF file stays quantised].
    #[arg(long, value_enum)]
    pub weights: Option<WeightsArg>,
    /// Put a LoRA adapter into the bundle, to be applied by name at run time: a folder of PEFT's, by the folder's name or
    /// another. Again for more.
    #[arg(long, value_name = "[NAME=]DIR")]
    pub lora: Vec<String>,
    /// Add a LoRA adapter to the weights for good. Again for more.
    #[arg(long, value_name = "DIR")]
    pub lora_merge: Vec<PathBuf>,
    /// The model is an EAGLE head that drafts for this one, a folder or a GGUF file: the bundle is a draft for `--spec eaglet:BUNDLE`.
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["lora", "lora_merge"])]
    pub eagle_of: Option<PathBuf>,
    #[command(flatten)]
    pub kinds: GraphKindArgs,
    #[command(flatten)]
    pub htp: HtpArgs,
    /// Replace the bundle in that folder. What its manifest does not list stays; a folder without a bundle is never replaced.
    #[arg(long)]
    pub force: bool,
    /// Print one JSON document: the config, the graphs, the files with their lengths and hashes.
    #[arg(long)]
    pub json: bool,
    /// Do not try the bundle before it is put in its place: its files, its tokenizer, a step of one token and a wider one.
    #[arg(long)]
    pub skip_check: bool,
    #[command(flatten)]
    pub backend: BackendArgs,
}

/// Compiling for a Hexagon SoC with Qualcomm's `libQnnHtp.so`.
#[derive(clap::Args)]
pub struct HtpArgs {
    /// Compile for this SoC instead of this machine: sm8550, sm8650, sm8750, sm8850, x-elite and others. Needs
    /// `libQnnHtp.so`, from `genie runtime fetch` or `--backend-lib`.
    #[arg(long, alias = "target", value_name = "SOC")]
    pub soc: Option<String>,
    /// Performance policy that the bundle requests on the SoC.
    #[arg(long, value_name = "POLICY", default_value = "burst", requires = "soc")]
    pub perf: String,
    /// Store one copy of the weights for all graphs of a file. Devices load such files, the x86 emulator does not.
    #[arg(long, requires = "soc")]
    pub share_weights: bool,
}

/// How the decoder is cut into context binaries.
#[derive(Clone, Copy, ValueEnum)]
pub enum SplitsArg {
    /// Decoder and LM head as two splits in one file; with `--soc`, uncut if it fits the limit of 2 GiB per file, else in
    /// as few splits as fit.
    Auto,
    /// Uncut: each graph holds the whole model.
    Mono,
    /// The decoder, then the LM head.
    DecoderLmhead,
    /// The embedding table, the decoder, the LM head.
    LutDecoderLmhead,
}

/// Type of weights and activations.
#[derive(Clone, Copy, ValueEnum)]
pub enum PrecisionArg {
    /// float32.
    F32,
    /// float16, with float32 sums.
    F16,
}

/// How the weights of linear layers are stored.
#[derive(Clone, Copy, ValueEnum)]
pub enum WeightsArg {
    /// In the type of the activations.
    Float,
    /// bfloat16, embeddings too; embedded backend only.
    Bf16,
    /// int8 with one scale per output channel.
    W8,
    /// 4 bits with one scale per output channel.
    W4,
    /// int8 in blocks of 32 inputs, as GGUF's Q8_0; embedded backend only.
    #[value(name = "q8_0")]
    Q8,
    /// 4 bits in blocks of 32 inputs, as GGUF's Q4_0, embeddings as q8_0; embedded backend only.
    #[value(name = "q4_0")]
    Q4,
}

/// Compiles, then prints the path of the config.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    // A model that cannot be read is refused below.
    let positions = ModelSummary::read(&args.model)
        .ok()
        .and_then(|summary| summary.spec.learned_positions.or(summary.spec.max_positions));
    let (ars, cls) = args.variants.widths(positions);
    if args.kinds.pd_only && args.variants.names_ars() {
        printer.info("note: `--pd-only` makes no graphs of `--ar`, only those of `--pd-total-lens`");
    }
    if args.kinds.pd_only && !matches!(args.splits, SplitsArg::Auto | SplitsArg::Mono) {
        printer.info("note: `--pd-only` makes no splits: fused graphs hold the whole model");
    }
    let options = CompileOptions {
        ars,
        cls,
        splits: match args.splits {
            // Hidden states come out of graphs that hold the whole model.
            SplitsArg::Auto if args.kinds.hidden_states || args.eagle_of.is_some() => Splits::Mono,
            SplitsArg::Auto if args.htp.soc.is_none() => Splits::DecoderLmhead,
            SplitsArg::Auto | SplitsArg::Mono => Splits::Mono,
            SplitsArg::DecoderLmhead => Splits::DecoderLmhead,
            SplitsArg::LutDecoderLmhead => Splits::LutDecoderLmhead,
        },
        one_file: matches!(args.splits, SplitsArg::Auto) && args.htp.soc.is_none(),
        layers_per_split: args.layers_per_split,
        precision: match args.precision {
            PrecisionArg::F32 => Precision::F32,
            PrecisionArg::F16 => Precision::F16,
        },
        weights: args.weights.map(|weights| match weights {
            WeightsArg::Float => Weights::Float,
            WeightsArg::Bf16 => Weights::Bf16,
            WeightsArg::W8 => Weights::W8,
            WeightsArg::W4 => Weights::W4,
            WeightsArg::Q8 => Weights::Q8_0,
            WeightsArg::Q4 => Weights::Q4_0,
        }),
        kinds: args.kinds.kinds(),
        lora: args.lora.iter().map(|text| AdapterSource::parse(text)).collect(),
        lora_merge: args.lora_merge.clone(),
        eagle_of: args.eagle_of.clone(),
        htp: htp_options(args)?,
        force: args.force,
        ..CompileOptions::new(&args.model, &args.output)
    };
    let Compiled { manifest, proof } = into_bundle(options, args, printer)?;
    let config = args.output.join(genie_bundle::CONFIG_FILE);
    match args.json {
        true => printer.data_line(record(&config, &manifest)?)?,
        false => printer.data_line(config.display())?,
    }
    summary(&args.output, &manifest, proof.as_ref(), printer);
    Ok(ExitStatus::Done)
}

/// The document of `--json`: where the config is, and the manifest.
fn record(config: &Path, manifest: &Manifest) -> Result<Value> {
    let mut record = json!({"config": config.display().to_string()});
    record["manifest"] = serde_json::to_value(manifest).context("cannot print the manifest")?;
    Ok(record)
}

/// What was compiled, how far it was tried, and how to run it.
fn summary(bundle: &Path, manifest: &Manifest, proof: Option<&Proof>, printer: &Printer) {
    let binaries = manifest.files.iter().filter(|f| f.path.ends_with(".bin"));
    let (n, bytes) = binaries.fold((0, 0), |(n, bytes), f| (n + 1, bytes + f.bytes));
    let (n_graphs, build) = (manifest.graphs.len(), &manifest.backend.build_id);
    let shown = indicatif::DecimalBytes(bytes);
    let files = if n == 1 { "file" } else { "files" };
    let tried = match proof {
        None => "not tried".to_owned(),
        Some(proof) if proof.steps.is_empty() => "tokenizer and config tried, graphs not run here".to_owned(),
        Some(proof) => {
            let steps: Vec<String> = proof.steps.iter().map(ToString::to_string).collect();
            let tokens = if proof.steps == [1] { "token" } else { "tokens" };
            format!("tried with steps of {} {tokens}", steps.join(" and "))
        }
    };
    let place = bundle.display();
    match &manifest.options.target {
        Some(target) => {
            printer.info(format_args!(
                "{n_graphs} graphs in {n} {files} for {target}, {shown}, compiled by {build}; {tried}"
            ));
            printer.info(format_args!(
                "next: `genie doctor {place} --soc {target}` checks it, then copy it to the device"
            ));
        }
        None if manifest.options.drafts_for.is_some() => {
            printer.info(format_args!("{n_graphs} graphs in {n} {files}, {shown}; {tried}"));
            printer.info(format_args!("next: `genie run -c TARGET --spec eaglet:{place} -p \"Once upon a time\"`"));
        }
        None => {
            printer.info(format_args!("{n_graphs} graphs in {n} {files}, {shown}; {tried}"));
            printer.info(format_args!("next: `genie run -c {place} -p \"Once upon a time\"`"));
        }
    }
}

fn htp_options(args: &Args) -> Result<Option<HtpOptions>> {
    let Some(soc) = &args.htp.soc else { return Ok(None) };
    let name = &args.htp.perf;
    let performance = PerfPolicy::from_name(name).ok_or_else(|| {
        let known = PerfPolicy::ALL.map(PerfPolicy::name).join("`, `");
        UserError::error(format!("unknown performance policy `{name}`"), format!("use one of `{known}`"))
    })?;
    Ok(Some(HtpOptions {
        performance,
        share_weights: args.htp.share_weights,
        cut_to_fit: matches!(args.splits, SplitsArg::Auto) && !args.kinds.hidden_states && args.eagle_of.is_none(),
        ..HtpOptions::for_target(soc)?
    }))
}

/// A bundle, and its proof if it was asked for.
struct Compiled {
    manifest: Manifest,
    proof: Option<Proof>,
}

/// Compiles with progress bars.
fn into_bundle(mut options: CompileOptions, args: &Args, printer: &Printer) -> Result<Compiled> {
    // A signal cancels, so that nothing half written is left.
    let _deferred = printer.interrupt().defer();
    if options.kinds.kv_cache == KvCacheType::U8 {
        let text =
            args.kinds.kv_text.as_deref().map(|path| prompt_text::read(path, Role::Text, printer)).transpose()?;
        if text.as_ref().is_some_and(|text| text.trim().is_empty()) {
            return Err(UserError::error(
                "the file of `--kv-text` has no text",
                "give a page of what the model will read, or omit it",
            ));
        }
        let mut bars = Bars::new(printer, false);
        options.kv_peaks = Some(open_genie::kv_peaks(&options, text.as_deref(), &mut bars)?);
    } else if args.kinds.kv_text.is_some() {
        let hint = "omit it, or compile with `--kv-cache u8`";
        return Err(UserError::error("`--kv-text` is for `--kv-cache u8`", hint));
    }
    let options = &options;
    options.check()?;
    let open = args.backend.options()?;
    let backend = match &options.htp {
        Some(htp) => {
            let backend = htp_backend(htp, &args.backend)?;
            open_genie::register_op_packages(&backend, &open)?;
            backend
        }
        None => open_genie::open_backend(&open)?,
    };
    let mut bars = Bars::new(printer, options.htp.is_some());
    if args.skip_check {
        let manifest = compiler::compile(options, &backend, &mut bars)?;
        return Ok(Compiled { manifest, proof: None });
    }
    let open_genie::Compiled { manifest, proof, .. } = open_genie::compile(options, &backend, &open, &mut bars)?;
    Ok(Compiled { manifest, proof: Some(proof) })
}

/// Qualcomm's library: from `--backend-lib` or `--backend`, else the one found on this machine.
fn htp_backend(htp: &HtpOptions, args: &BackendArgs) -> Result<Arc<Backend>> {
    if args.backend.as_deref() == Some("host") {
        let what = format!(
            "`--backend host`: SoC `{}` is compiled for by Qualcomm's library, found the embedded one",
            htp.target()
        );
        return Err(UserError::error(what, "leave out `--backend host`, or `--soc` to compile for this machine's CPU"));
    }
    let path = args.backend.as_ref().map(PathBuf::from);
    let path = path.filter(|path| path.components().count() > 1 || path.extension().is_some());
    let named = args.backend_lib.clone().or(path);
    let library = named.or_else(|| runtime::find(runtime::HTP)).ok_or_else(|| {
        UserError::error(
            format!("no `{}` on this machine; compiling for SoC `{}` needs it", runtime::HTP, htp.target()),
            format!(
                "`genie runtime fetch` gets it; or set {} to its folder, or pass its path as `--backend-lib`",
                runtime::DIR_VARIABLE
            ),
        )
    })?;
    htp.open(&library).with_context(|| format!("cannot compile with `{}`", library.display()))
}

/// One progress bar per stage; counts bytes where the stage has them, else items.
pub struct Bars<'a> {
    printer: &'a Printer,
    open: Option<OpenBar>,
    /// Print each graph's time: negligible on the host, perhaps minutes with an HTP library.
    times: bool,
}

impl<'a> Bars<'a> {
    /// None yet; `times` prints each graph's time.
    pub fn new(printer: &'a Printer, times: bool) -> Self {
        Self { printer, open: None, times }
    }
}

/// The bar of a stage.
struct OpenBar {
    bar: ProgressBar,
    by_bytes: bool,
    /// What is done with an item that takes long.
    verb: &'static str,
    /// Bytes or items that are done, of whole items.
    done: u64,
    /// Bytes of the item that comes next.
    within: u64,
}

impl Progress for Bars<'_> {
    fn begin(&mut self, stage: &Stage, total: Amount) {
        let by_bytes = total.bytes > 0;
        let length = if by_bytes { total.bytes } else { total.items };
        let bar = self.printer.bar(length, &stage.to_string(), by_bytes);
        let verb = if *stage == Stage::Try { "run" } else { "finalize" };
        self.open = Some(OpenBar { bar, by_bytes, verb, done: 0, within: 0 });
    }

    fn advanced(&mut self, bytes: u64) {
        if let Some(open) = self.open.as_mut().filter(|open| open.by_bytes) {
            open.within += bytes;
            open.bar.set_position(open.done + open.within);
        }
    }

    fn item(&mut self, _name: &str, bytes: u64) {
        if let Some(open) = &mut self.open {
            open.done += if open.by_bytes { bytes } else { 1 };
            open.within = 0;
            open.bar.set_position(open.done);
        }
    }

    fn working(&mut self, name: &str) {
        if let Some(open) = &self.open {
            open.bar.set_message(format!("{} {name}", open.verb));
        }
    }

    fn timed(&mut self, graph: &str, took: Duration) {
        if let Some(open) = self.open.as_ref().filter(|_| self.times) {
            open.bar.suspend(|| self.printer.info(format_args!("finalized {graph} in {:.2} s", took.as_secs_f64())));
        }
    }

    fn end(&mut self, _stage: &Stage) {
        if let Some(open) = self.open.take() {
            open.bar.finish_and_clear();
        }
    }

    fn note(&mut self, text: &str) {
        self.printer.info(format_args!("note: {text}"));
    }

    fn cancelled(&self) -> bool {
        self.printer.interrupt().received().is_some()
    }
}
