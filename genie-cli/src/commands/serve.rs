//! `genie serve`: an HTTP server on one model, for OpenAI's, Anthropic's and llama.cpp's clients.

mod folder;
mod recording;
pub mod scheduling;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use open_genie::{Bundle, PrefixCacheOptions};
use server::{HttpServer, LineSink, Models, ServedModel, ServerOptions, TlsFiles};

use crate::args::{
    BackendArgs, BundleArgs, ChatArgs, ContextSizeArg, SocArgs, SpeculationArgs, ThreadArgs, Words,
    number::{self, Limit},
};
use crate::exit::ExitStatus;
use crate::failure::UserError;
use crate::outfile;
use crate::printer::Printer;
use folder::Limits;
use scheduling::SchedulingArgs;

/// At the end of its help.
pub const EXAMPLES: &str = "Examples:
  genie serve
  genie serve model.gguf --port 9000 --slots 4
  genie serve --models ~/models --models-memory 16000
  genie serve bundle --host 0.0.0.0 --api-key-file keys.txt";

/// Flags of `genie serve`.
#[derive(clap::Args, Clone)]
pub struct Args {
    /// The model, as for `--model`.
    #[arg(value_name = "MODEL", num_args = 0..=1)]
    pub words: Vec<String>,
    /// Serve the models of this folder: each is loaded when a request names it.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["words", "named", "config", "alias", "record"])]
    pub models: Option<PathBuf>,
    /// Most memory of loaded models, in MiB, counted by the size of their files: others are unloaded, the one that was not asked for longest
    /// first [default: three quarters of this machine's].
    #[arg(long, value_name = "MIB", value_parser = number::mebibytes, requires = "models")]
    pub models_memory: Option<u64>,
    /// Most models that are loaded at a time [default: as many as fit].
    #[arg(long, value_name = "N", value_parser = number::at_least_one, requires = "models")]
    pub models_max: Option<usize>,
    /// Address to listen on; others than loopback ones need `--api-key`.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port to listen on; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub port: u16,
    /// Key that requests have to carry; several are parted by commas.
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub api_key: Vec<String>,
    /// File with keys, one a line.
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Certificate in PEM, for HTTPS; needs a build with the feature `tls`.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of `--tls-cert`, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Name of the model in replies [default: the bundle's].
    #[arg(long, value_name = "NAME")]
    pub alias: Option<String>,
    /// Name that requests may give as `Host`, beside addresses and `localhost`; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub allow_host: Vec<String>,
    /// Origin of pages that may ask, beside those of this machine; `*` for all; may be repeated.
    #[arg(long, value_name = "ORIGIN")]
    pub allow_origin: Vec<String>,
    /// Keep the caches of prompts in this folder, and start from the longest stored prefix of a prompt.
    #[arg(long, value_name = "DIR")]
    pub prefix_cache: Option<PathBuf>,
    /// Size limit of the prefix cache, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = number::mebibytes, requires = "prefix_cache")]
    pub prefix_cache_mib: u64,
    /// Shortest prompt to store, in tokens.
    #[arg(long, value_name = "TOKENS", default_value_t = 128, value_parser = number::count, requires = "prefix_cache")]
    pub prefix_min_tokens: usize,
    /// Folder of saved slots [default: slots cannot be saved].
    #[arg(long, value_name = "DIR")]
    pub slot_save_path: Option<PathBuf>,
    /// Write the slots into `--slot-save-path` at the end, and read them at the next start.
    #[arg(long, requires = "slot_save_path")]
    pub keep_slots: bool,
    /// Largest number of tokens of a reply, where neither request nor bundle says; -1 is as many as fit [default: -1].
    #[arg(long, short = 'n', value_name = "TOKENS", value_parser = number::limit, allow_negative_numbers = true)]
    pub max_tokens: Option<Limit>,
    /// Seconds that a reply may take, waiting included.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = number::some_seconds)]
    pub timeout: u64,
    /// Seconds that replies may go on after SIGTERM or Ctrl-C.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = number::seconds)]
    pub drain: u64,
    /// Most bytes of a request's body.
    #[arg(long, value_name = "BYTES", default_value_t = 8 << 20, value_parser = number::at_least_one)]
    pub body_limit: usize,
    /// Write each step of the model to this file, a line of JSON each, for the engine view; a file that is there is replaced.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Write no line for each request.
    #[arg(long)]
    pub no_access_log: bool,
    #[command(flatten)]
    pub scheduling: SchedulingArgs,
    #[command(flatten)]
    pub context: ContextSizeArg,
    #[command(flatten)]
    pub bundle: BundleArgs,
    #[command(flatten)]
    pub chat: ChatArgs,
    #[command(flatten)]
    pub backend: BackendArgs,
    #[command(flatten)]
    pub soc: SocArgs,
    #[command(flatten)]
    pub speculation: SpeculationArgs,
    #[command(flatten)]
    pub threads: ThreadArgs,
}

/// Serves until a signal.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    if let Some(path) = &args.record {
        outfile::must_be_writable("--record", path)?;
    }
    let models: Models = match &args.models {
        Some(folder) => {
            let limits = Limits { memory: args.models_memory, most: args.models_max };
            let (own, sink) = (args.clone(), printer.clone());
            let start = Box::new(move |bundle| own.start(bundle, &sink));
            folder::models(folder, &limits, args.context.context_size, &args.backend, printer, start)?
        }
        None => {
            let words = Words::of(&args.words, &args.bundle)?;
            let (model, context) = (words.model.or(words.prompt), args.context.context_size);
            let bundle = args.bundle.read_word(model, context, &args.backend, printer)?;
            args.start(bundle, printer)?.into()
        }
    };
    let server = HttpServer::bind(models, args.options(printer)?)?;
    let scheme = if args.tls_cert.is_some() { "https" } else { "http" };
    printer.info(format_args!("serving on {scheme}://{}", server.address()));
    let deferred = printer.interrupt().defer();
    let shutdown = server.shutdown();
    deferred.stop_with(move || shutdown.begin());
    server.run()?;
    drop(deferred);
    printer.interrupt().check()?;
    Ok(ExitStatus::Done)
}

impl Args {
    /// Opens a bundle as the flags say.
    fn start(&self, bundle: Bundle, printer: &Printer) -> Result<ServedModel> {
        let template = self.chat.template(&bundle)?;
        if template.is_none() {
            printer.info(
                "note: the bundle has no chat template: messages are written as lines; `--chat-template` sets one",
            );
        }
        let mut options = self.context.apply(self.threads.apply(self.soc.apply(self.backend.options()?)));
        if let Some(folder) = &self.prefix_cache {
            let (max_bytes, min_tokens) = (self.prefix_cache_mib << 20, self.prefix_min_tokens);
            options = options.prefix_cache(PrefixCacheOptions { folder: folder.clone(), max_bytes, min_tokens });
        }
        let model = bundle.open_either(&self.speculation.apply(options)?)?;
        let mut serve = self.scheduling.options(model.bundle());
        if serve.target.is_some() {
            serve.step_times = model.step_times()?;
        }
        let times_steps = serve.target.is_some() && serve.step_times.is_none();
        let mut serving = model.into_serving(serve)?;
        if times_steps {
            let times = serving.scheduler().step_times().all();
            let each = times
                .iter()
                .map(|time| format!("{} rows {:.1} to {:.1}", time.width, time.us_empty / 1e3, time.us / 1e3));
            printer.info(format_args!(
                "timed a step of each width with an empty and a full cache, in ms: {}",
                each.collect::<Vec<_>>().join(", ")
            ));
        }
        if let Some(note) = serving.note() {
            printer.info(format_args!("note: {note}"));
        }
        Ok(ServedModel::start(serving, template)?)
    }

    fn access_log(&self, printer: &Printer) -> Option<LineSink> {
        let printer = printer.clone();
        (!self.no_access_log).then(|| LineSink::new(move |line| printer.info(line)))
    }

    fn options(&self, printer: &Printer) -> Result<ServerOptions> {
        let mut api_keys = self.api_key.clone();
        if let Some(file) = &self.api_key_file {
            let text = std::fs::read_to_string(file).with_context(|| format!("cannot read `{}`", file.display()))?;
            let before = api_keys.len();
            api_keys.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
            if api_keys.len() == before {
                let what = format!("`--api-key-file {}`: expected one key a line, found none", file.display());
                return Err(UserError::error(what, "write a key into it, or leave the flag out to serve without keys"));
            }
        }
        Ok(ServerOptions {
            host: self.host,
            port: self.port,
            api_keys,
            allowed_hosts: self.allow_host.clone(),
            allowed_origins: self.allow_origin.clone(),
            alias: self.alias.clone(),
            slot_folder: self.slot_save_path.clone(),
            keep_slots: self.keep_slots,
            tls: self.tls_cert.clone().zip(self.tls_key.clone()).map(|(cert, key)| TlsFiles { cert, key }),
            body_limit: self.body_limit,
            reply_timeout: Duration::from_secs(self.timeout),
            drain: Duration::from_secs(self.drain),
            access_log: self.access_log(printer),
            record: self.record.as_deref().map(|path| recording::sink(path, printer)),
            system: self.chat.system.clone(),
            max_tokens: self.max_tokens.and_then(|Limit(most)| most),
            ..ServerOptions::default()
        })
    }
}
