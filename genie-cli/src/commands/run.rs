//! `genie run`: a prompt in, text out.

use std::io::Read;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use dialog::{
    Chunk, Dialog, DialogConfig, DialogError, Reply, SamplerSettings, SavedBy, SentenceCode, Signal, StopReason,
};
use engine::profile::{EventTimes, GraphTimes};
use engine::{GraphProfile, ModeKind, Overflow, PrefixStore};
use genie_types::TokenId;
use qnn_api::ProfileLevel;
use serde_json::{Value, json};

use super::ExitStatus;
use crate::calibration::Here;
use crate::cli::{GraphProfileArg, PolicyArg, RunArgs, SamplerArgs};
use crate::failure::Hinted;
use crate::printer::Printer;
use crate::threads::Threads;
use crate::{backend, bundle, demo};

/// What goes in.
enum Prompt {
    Text(String),
    Tokens(Vec<TokenId>),
}

/// Opens the bundle (or the demo), asks, streams, reports.
pub fn run(args: &RunArgs, printer: &Printer) -> Result<ExitStatus> {
    let prompt = prompt(args)?;
    let path = match &args.config {
        Some(path) => path.clone(),
        None => demo::config(&args.backend, printer)?,
    };
    let path = bundle::config_path(&path)?;
    let config = bundle::config(&path, printer)?;
    if let Some(file) = &args.profile {
        must_be_new(file)?;
    }
    let Opened { mut dialog, graphs, _running } = open(args, &path, &config, printer)?;
    if let Some(folder) = &args.saved.restore {
        let by = dialog.restore(folder).with_context(|| format!("cannot go on with `{}`", folder.display()))?;
        let whose = if by == SavedBy::Genie { "Genie's own files" } else { "the checked snapshot" };
        printer.say(format_args!("restored {} tokens from {whose}", dialog.history().len()));
    }
    let code = if args.saved.rewind { SentenceCode::Rewind } else { SentenceCode::Complete };
    let control = dialog.control();
    let mut broken = None;
    let callback = |chunk: Chunk<'_>| {
        if !args.json && broken.is_none() {
            broken = printer.piece(chunk.text).err();
            if broken.is_some() {
                control.signal(Signal::Abort); // nobody reads any more
            }
        }
    };
    let reply = match &prompt {
        Prompt::Text(text) => dialog.query(text, code, callback),
        Prompt::Tokens(tokens) => dialog.token_query(tokens, code, callback),
    };
    let reply = reply.map_err(|e| explain(e, &dialog))?;
    if let Some(error) = broken {
        return Err(error);
    }
    report(args, printer, &dialog, &reply)?;
    if let Some(file) = &args.profile {
        write_profile(file, &dialog, graphs.as_ref())?;
    }
    if let Some(folder) = &args.saved.save {
        let saved = dialog.save(folder).with_context(|| format!("cannot save into `{}`", folder.display()))?;
        if let Some(why) = saved.without_genie {
            printer.say(format_args!("saved without Genie's own files: {why}"));
        }
    }
    Ok(ExitStatus::Done)
}

/// Says how many tokens would have fit, where that was the matter.
fn explain(error: DialogError, dialog: &Dialog) -> anyhow::Error {
    match (&error, dialog.admission()) {
        (DialogError::Overflow(Overflow::ContextExceeded { .. }), Some(fits)) => Hinted::error(error.to_string(), fits.to_string()),
        _ => error.into(),
    }
}

/// A dialog ready to be asked.
struct Opened {
    dialog: Dialog,
    graphs: Option<GraphProfile>,
    /// Dropped last: the vote for the clocks stands until the dialog is gone.
    _running: backend::Running,
}

fn open(args: &RunArgs, path: &Path, config: &DialogConfig, printer: &Printer) -> Result<Opened> {
    let began = Instant::now();
    let threads = Threads::new(&args.threads, config.backend().cpu_mask)?;
    let running = backend::start(&args.backend, &args.chip, config.backend(), &threads)?;
    let mut engine_config = config.engine().clone();
    engine_config.model_hash = bundle::model_hash(path);
    engine_config.kv_mode = args.saved.kv_mode.as_deref().map(kv_mode).transpose()?;
    let mut engine = bundle::engine(&engine_config, &running.backend, PolicyArg::Lenient)?;
    if args.policy != PolicyArg::Lenient {
        let here = Here::new(path, &engine_config.ctx_bins, &running.backend)?;
        engine.set_policy(here.policy(args.policy, engine.variants(), printer)?);
    }
    if let Some(folder) = &args.saved.prefix_cache {
        let model = engine.model_hash()?;
        let store = PrefixStore::open(folder, model, args.saved.prefix_cache_mib << 20)?;
        engine.set_prefix_store(store, args.saved.prefix_min);
    }
    let graphs = args.graph_profile.map(|level| {
        GraphProfile::new(match level {
            GraphProfileArg::Basic => ProfileLevel::Basic,
            GraphProfileArg::Detailed => ProfileLevel::Detailed,
        })
    });
    engine.executor_mut().set_profile(graphs.clone());
    let mut dialog = Dialog::new(config, Box::new(engine))?;
    dialog.set_init_time(began.elapsed());
    dialog.set_sampler(sampler(config.sampler().clone(), &args.sampler)?);
    let demo_limit = args.config.is_none().then_some(demo::MAX_TOKENS);
    if let Some(limit) = args.max_tokens.or(demo_limit) {
        dialog.control().set_max_num_tokens(Some(limit as usize));
    }
    Ok(Opened { dialog, graphs, _running: running })
}

/// As the real one, a profile is not written over another file.
fn must_be_new(file: &Path) -> Result<()> {
    if file.exists() {
        let hint = "name a file that is not there yet";
        return Err(Hinted::error(format!("the profile file `{}` exists already", file.display()), hint));
    }
    Ok(())
}

/// Genie's document, with the graphs' own times beside it.
fn write_profile(file: &Path, dialog: &Dialog, graphs: Option<&GraphProfile>) -> Result<()> {
    let mut document = dialog.profile().to_json();
    if let Some(graphs) = graphs {
        let event = |e: EventTimes| json!({"name": e.name, "type": e.kind, "unit": e.unit, "count": e.count, "total": e.total, "max": e.max});
        let graph = |g: GraphTimes| json!({"graph": g.graph, "runs": g.n_runs, "events": g.events.into_iter().map(event).collect::<Vec<_>>()});
        document["graphs"] = graphs.graphs().into_iter().map(graph).collect();
    }
    std::fs::write(file, format!("{document:#}\n"))
        .with_context(|| format!("cannot write the profile `{}`", file.display()))
}

fn kv_mode(name: &str) -> Result<ModeKind> {
    ModeKind::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = ModeKind::ALL.iter().map(ModeKind::name).collect();
        Hinted::error(format!("unknown cache mode `{name}`"), format!("choose one of {}", known.join(", ")))
    })
}

fn prompt(args: &RunArgs) -> Result<Prompt> {
    if let Some(tokens) = &args.prompt_tokens {
        return Ok(Prompt::Tokens(tokens.iter().copied().map(TokenId).collect()));
    }
    if let Some(text) = &args.prompt {
        return Ok(Prompt::Text(text.clone()));
    }
    match &args.prompt_file {
        Some(path) if path.as_os_str() == "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read the prompt from stdin")?;
            Ok(Prompt::Text(text))
        }
        Some(path) => {
            let text = std::fs::read_to_string(path);
            Ok(Prompt::Text(text.with_context(|| format!("cannot read the prompt file `{}`", path.display()))?))
        }
        None => Err(Hinted::error(
            "no prompt",
            "give `--prompt TEXT`, `--prompt-file FILE` (`-` is stdin) or `--prompt-tokens IDS`",
        )),
    }
}

/// The config's sampler with what the flags change.
fn sampler(mut settings: SamplerSettings, args: &SamplerArgs) -> Result<SamplerSettings> {
    if let Some(temp) = args.temp {
        settings = settings.with_temp(temp)?;
    }
    if let Some(k) = args.top_k {
        settings = settings.with_top_k(k as usize);
    }
    if let Some(p) = args.top_p {
        settings = settings.with_top_p(p)?;
    }
    if let Some(seed) = args.seed {
        settings = settings.with_seed((seed != -1).then_some(seed.cast_unsigned()));
    }
    if args.greedy {
        settings = settings.with_greedy(true);
    }
    if args.repetition_penalty.is_some() || args.penalize_last_n.is_some() {
        let mut penalty = settings.penalty().clone();
        penalty.repetition = args.repetition_penalty.unwrap_or(penalty.repetition);
        penalty.last_n =
            args.penalize_last_n.map_or(if penalty.last_n == 0 { 64 } else { penalty.last_n }, |n| n as usize);
        settings = settings.with_penalty(penalty)?;
    }
    Ok(settings)
}

fn report(args: &RunArgs, printer: &Printer, dialog: &Dialog, reply: &Reply) -> Result<()> {
    if args.json {
        printer.line(record(dialog, reply))?;
    } else {
        printer.line("")?;
        if reply.stop == StopReason::ContextLimit {
            printer.say(format_args!("the context is full: {} tokens", dialog.n_past()));
        }
    }
    if args.stats {
        stats(printer, reply);
    }
    Ok(())
}

/// The one line of `--json`.
fn record(dialog: &Dialog, reply: &Reply) -> Value {
    let runs: Vec<Value> = dialog.model().steps().runs().into_iter().map(|(graph, n)| json!([graph, n])).collect();
    let kpis = &reply.kpis;
    json!({
        "tokens": reply.tokens.iter().map(|t| t.0).collect::<Vec<_>>(),
        "text": reply.text,
        "input": reply.input.iter().map(|t| t.0).collect::<Vec<_>>(),
        "stop": reply.stop.name(),
        "status": reply.stop.genie_status(),
        "executed": runs,
        "kpis": {
            "num-prompt-tokens": kpis.n_prompt,
            "prompt-processing-rate": kpis.prompt_rate(),
            "time-to-first-token": kpis.time_to_first_token.map(|t| t.as_micros() as u64),
            "num-generated-tokens": kpis.n_generated,
            "token-generation-rate": kpis.generation_rate(),
            "token-generation-time": kpis.generation_time.as_micros() as u64,
        },
    })
}

fn stats(printer: &Printer, reply: &Reply) {
    let kpis = &reply.kpis;
    let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |r| format!("{r:.1} tokens/s"));
    let first = kpis.time_to_first_token.map_or("-".to_owned(), |t| format!("{:.2} ms", t.as_secs_f64() * 1e3));
    printer.say(format_args!("prompt         {:>6} tokens, {}", kpis.n_prompt, rate(kpis.prompt_rate())));
    printer.say(format_args!("first token    {first}"));
    printer.say(format_args!("generation     {:>6} tokens, {}", kpis.n_generated, rate(kpis.generation_rate())));
    printer.say(format_args!("stopped by     {}", reply.stop));
}
