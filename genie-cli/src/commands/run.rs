//! `genie run`: generates text from a prompt.

mod flags;
mod messages;
mod prompt;
mod stream;

use std::path::Path;

use anyhow::{Error, Result};
use engine::profile::{EventTimes, GraphTimes};
use engine::{GraphProfile, ModeKind, StepLog};
use open_genie::sampler::Logprobs;
use open_genie::{
    Bundle, Grammar, Opened, PrefixCacheOptions, Reply, RestoreNote, SaveFormat, SentenceCode, Session, StopReason,
    StreamReply,
};
use qnn_api::ProfileLevel;
use serde_json::{Value, json};

use crate::args::{Words, check_word, warn_of_nominal_costs};
use crate::exit::ExitStatus;
use crate::failure::{Partial, UserError};
use crate::interrupt::Interrupted;
use crate::outfile;
use crate::printer::Printer;
pub use flags::Args;
use flags::GraphProfileArg;
use messages::Messages;
pub use messages::set_system;
use prompt::Prompt;
use stream::{End, Manner, Streamed, stream};

/// Genie's status of a query that failed.
const QUERY_FAILED: i32 = -6;
/// Default of `--max-tokens` with the demo.
const DEMO_MAX_TOKENS: usize = 200;

/// Opens the bundle or the demo, runs the query, streams the reply, reports.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    let words = Words::of(&args.words, &args.bundle)?;
    // A lone prompt is taken for a model: that is said before a prompt is missed.
    words.model.map_or(Ok(()), check_word)?;
    let prompt = Prompt::read(args, words.prompt, printer).map_err(|error| match args.json {
        true => Partial::error(unanswered(&error), error),
        false => error,
    })?;
    let grammar = args.grammar.read()?;
    let context = args.long_context.compiled_context();
    let bundle = args.bundle.read_word(words.model, context, &args.backend, printer)?;
    if let Some(file) = &args.profile {
        must_be_new(file)?;
        outfile::must_be_writable("--profile", file)?;
    }
    if let Some(folder) = &args.saved.save {
        outfile::must_take_files("--save", folder)?;
    }
    let mut messages = Messages::new(args, &bundle, &prompt, printer)?;
    let graphs = args.graph_profile.map(|level| {
        GraphProfile::new(match level {
            GraphProfileArg::Basic => ProfileLevel::Basic,
            GraphProfileArg::Detailed => ProfileLevel::Detailed,
        })
    });
    let mut session = open(args, bundle, grammar, graphs.as_ref(), printer)?;
    // Before a session is restored, which belongs to adapters.
    args.lora.apply(&mut session)?;
    if let Some(folder) = &args.saved.restore {
        let report = session.restore(folder)?;
        if matches!(report.note, Some(RestoreNote::GenieWentOn { .. })) {
            messages = Messages::outdated(messages, args, folder, printer)?;
        }
        if let Some(note) = report.note {
            printer.info(format_args!("warning: {note}"));
        }
        let whose = if report.format == SaveFormat::Genie { "Genie's files" } else { "the snapshot" };
        printer.info(format_args!("restored {} tokens from {whose}", session.history().len()));
    }
    let prompt = prompt.with_rows(args, &session).map_err(|error| match args.json {
        true => Partial::error(unanswered(&error), error),
        false => error,
    })?;
    let prompt = match &messages {
        Some(messages) => Prompt::Text(messages.write()?),
        None => prompt,
    };
    // From here on a signal ends the reply, and what is to be kept is kept.
    let deferred = printer.interrupt().defer();
    let manner = Manner {
        silent: args.json,
        code: if args.saved.rewind || messages.is_some() { SentenceCode::Rewind } else { SentenceCode::Complete },
        keep_room: args.saved.save.is_some() && args.stops.max_tokens.is_none(),
        several: args.prompts.is_some() || args.streams.is_some() || session.bundle().config().kind() == "multistream",
    };
    let prompt = prompt.with_images(args, &mut session)?;
    let streamed = stream(manner, printer, &deferred, &mut session, prompt.lent(args));
    end(args, printer, &mut session, graphs.as_ref(), streamed, messages)
}

/// Reports, writes what is to be kept, and prints the record of `--json`, also of a reply that was not completed.
fn end(
    args: &Args,
    printer: &Printer,
    session: &mut Session,
    graphs: Option<&GraphProfile>,
    streamed: Streamed,
    messages: Option<Messages>,
) -> Result<ExitStatus> {
    let Streamed { reply, room, end } = streamed;
    let end = match end {
        End::Failed(error) if reply.tokens.is_empty() && !args.json => return Err(error),
        end => end,
    };
    // Messages, and the prompt of a shell, begin lines of their own.
    let line = if args.json { Ok(()) } else { printer.data_line("") };
    let failed = matches!(end, End::Failed(_));
    let done = match end {
        End::Failed(error) => Err(error),
        End::Kept | End::Output(_) => {
            if let Some(fault) = session.prefix_cache_fault() {
                printer.info(format_args!("warning: {}; the run goes on without it", with_causes(fault)));
            }
            report(args, printer, session, &reply, room);
            // Large weights are checked once per file; what the thread has not done is done now, when nothing waits for it.
            // After a signal something does: the next run checks them.
            let checked = if printer.interrupt().received().is_none() { session.check_weights() } else { Ok(()) };
            checked.map_err(Error::new).and_then(|()| keep(args, printer, session, graphs, &reply, messages)).and_then(
                |saved| match end {
                    End::Output(error) => Err(error),
                    _ => line.and_then(|()| stopped(printer, &reply, saved)),
                },
            )
        }
    };
    match (done, args.json) {
        (Err(error), true) => {
            let mut record = record(session, &reply);
            if failed {
                record = ended_by(record, &error);
            }
            return Err(Partial::error(record, error));
        }
        (Ok(()), true) => printer.data_line(record(session, &reply))?,
        (done, false) => done?,
    }
    Ok(ExitStatus::Done)
}

/// Fails if a signal has ended the reply, with how far it came.
fn stopped(printer: &Printer, reply: &Reply, saved: Option<&Path>) -> Result<()> {
    let Some(signal) = printer.interrupt().received() else { return Ok(()) };
    let mut done = match reply.tokens.len() {
        0 => format!("{} tokens of the prompt are processed", reply.input.len()),
        n => format!("{n} tokens are generated"),
    };
    if let Some(folder) = saved {
        done.push_str(&format!("; the dialog is saved in `{}`", folder.display()));
    }
    Err(Interrupted::new(signal, done).into())
}

/// Saves the dialog, then writes the profile; returns where the dialog was saved. A profile that cannot be written costs no dialog.
fn keep<'a>(
    args: &'a Args,
    printer: &Printer,
    session: &mut Session,
    graphs: Option<&GraphProfile>,
    reply: &Reply,
    messages: Option<Messages>,
) -> Result<Option<&'a Path>> {
    let saved = save(args, printer, session, reply, messages);
    if let Some(file) = &args.profile {
        let written = write_profile(file, session, graphs);
        // Of two errors the dialog's counts.
        return saved.and_then(|saved| written.map(|()| saved));
    }
    saved
}

/// Saves the dialog where that is asked for; returns where.
fn save<'a>(
    args: &'a Args,
    printer: &Printer,
    session: &mut Session,
    reply: &Reply,
    messages: Option<Messages>,
) -> Result<Option<&'a Path>> {
    let Some(folder) = &args.saved.save else { return Ok(None) };
    if session.history().is_empty() {
        // Only a signal before the first step leaves none.
        printer.info("nothing was processed: no dialog is saved");
        return Ok(None);
    }
    if let Some(why) = session.save(folder)?.without_genie {
        printer.info(format_args!("saved without Genie's files: {why}"));
    }
    match messages {
        Some(messages) => messages.keep(folder, reply)?,
        None => open_genie::remove_messages(folder)?,
    }
    Ok(Some(folder))
}

/// An error and its causes in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |e| e.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Opens a session with what the flags set.
fn open(
    args: &Args,
    bundle: Bundle,
    grammar: Option<Grammar>,
    graphs: Option<&GraphProfile>,
    printer: &Printer,
) -> Result<Session> {
    let mut options = args.threads.apply(args.soc.apply(args.backend.options()?)).policy(args.policy.into());
    options = args.speculation.apply(args.long_context.apply(options))?;
    if let Some(name) = &args.saved.kv_mode {
        options = options.kv_mode(kv_mode(name)?);
    }
    options = options.dynamic_load(args.saved.dynamic_load);
    if let Some(folder) = &args.saved.prefix_cache {
        options = options.prefix_cache(PrefixCacheOptions {
            folder: folder.clone(),
            max_bytes: args.saved.prefix_cache_mib << 20,
            min_tokens: args.saved.prefix_min_tokens,
        });
    }
    if let Some(grammar) = grammar {
        options = options.grammar(grammar);
    }
    if let Some(graphs) = graphs {
        options = options.graph_profile(graphs.clone());
    }
    let opened = bundle.open_either(&options)?;
    if let Opened::Plain(model) = &opened {
        warn_of_nominal_costs(model, model.calibration_mismatch(), printer)?;
    }
    let mut session = opened.into_session()?;
    args.sampler.check_vocabulary(session.bundle())?;
    let settings = args.sampler.apply(session.sampler().clone())?.with_logprobs(args.logprobs);
    session.start_with_sampler(args.stops.forbid_ends(settings, &session)?);
    if let Some(n) = args.streams {
        session.set_streams(n, args.p_threshold.unwrap_or(0.0) as f32)?;
    }
    let is_demo = args.bundle.is_demo(args.words.first().map(String::as_str));
    args.stops.apply(&mut session, is_demo.then_some(DEMO_MAX_TOKENS))?;
    Ok(session)
}

/// As libGenie, does not overwrite an existing file with a profile; a device or pipe is no such file.
fn must_be_new(file: &Path) -> Result<()> {
    if file.is_file() {
        let hint = "choose a file that does not exist";
        return Err(UserError::error(format!("the profile file `{}` already exists", file.display()), hint));
    }
    Ok(())
}

/// Writes Genie's profile document, with the backend's graph times under `graphs`.
fn write_profile(file: &Path, session: &Session, graphs: Option<&GraphProfile>) -> Result<()> {
    let mut document = session.profile().to_json();
    if let Some(graphs) = graphs {
        let event = |e: EventTimes| json!({"name": e.name, "type": e.kind, "unit": e.unit, "count": e.count, "total": e.total, "max": e.max});
        let graph = |g: GraphTimes| json!({"graph": g.graph, "runs": g.n_runs, "events": g.events.into_iter().map(event).collect::<Vec<_>>()});
        document["graphs"] = graphs.graphs().into_iter().map(graph).collect();
    }
    outfile::write("--profile", file, &format!("{document:#}\n"))
}

fn kv_mode(name: &str) -> Result<ModeKind> {
    ModeKind::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = ModeKind::ALL.iter().map(ModeKind::name).collect();
        UserError::error(format!("unknown cache mode `{name}`"), format!("use one of {}", known.join(", ")))
    })
}

/// What is said of the reply on stderr.
fn report(args: &Args, printer: &Printer, session: &Session, reply: &Reply, room: Option<usize>) {
    if let Some(bos) = session.bundle().config().context().bos
        && reply.input.starts_with(&[bos, bos])
    {
        let text = session.token_text(bos).unwrap_or_else(|| bos.0.to_string());
        printer.info(format_args!(
            "warning: the prompt begins with the BOS token twice: it is put before every prompt, leave `{text}` out"
        ));
    }
    if !args.json && reply.stop == StopReason::ContextLimit {
        printer.info(format_args!("stopped: the context is full, {} tokens", session.n_past()));
    }
    if let Some(room) = room.filter(|_| reply.stop == StopReason::MaxTokens) {
        printer.info(format_args!(
            "stopped after {room} tokens, so that `--restore` can go on in the other half of the context; `-n` sets another \
             limit"
        ));
    }
    if args.stats {
        stats(printer, reply);
        printer.info(seed(session));
        printer.info(session.profile().kpis().dump(" "));
    }
}

/// The record of a prompt that never reached the model.
fn unanswered(error: &Error) -> Value {
    ended_by(record_of(Vec::new(), &Reply::none(StopReason::Aborted)), error)
}

/// The record of a query that failed: the error decides how it ended, as Genie's status and in words.
fn ended_by(mut record: Value, error: &Error) -> Value {
    let of_query = error.chain().find_map(|e| e.downcast_ref::<open_genie::Error>());
    let status = of_query.map_or(QUERY_FAILED, open_genie::Error::genie_status);
    let full = StopReason::ContextLimit;
    record["stop"] = if status == full.genie_status() { full.name().into() } else { "failed".into() };
    record["status"] = status.into();
    record
}

/// The one line of `--json`.
fn record(session: &Session, reply: &Reply) -> Value {
    let runs = |log: &StepLog| log.runs().into_iter().map(|(graph, n)| json!([graph, n])).collect::<Vec<_>>();
    let mut record = record_of(runs(session.steps()), reply);
    record["seed"] = session.seed().into();
    if session.sampler().logprobs().is_some() {
        record["logprobs"] = reply.logprobs.iter().map(logprobs).collect();
    }
    if let Some(second) = session.second_steps() {
        record["executed_second"] = runs(second).into();
    }
    record
}

fn logprobs(one: &Logprobs) -> Value {
    let top: Vec<Value> = one.top.iter().map(|(id, logprob)| json!({"token": id.0, "logprob": logprob})).collect();
    json!({"token": one.token.0, "logprob": one.logprob, "top_logprobs": top})
}

/// The seed that repeats the run; the most likely token needs none.
pub(super) fn seed(session: &Session) -> String {
    if session.sampler().is_argmax() && !session.sampler().chain().is_active() {
        return "seed                - the most likely token is taken".to_owned();
    }
    format!("seed           {:>6}", session.seed())
}

fn record_of(runs: Vec<Value>, reply: &Reply) -> Value {
    let kpis = &reply.kpis;
    let mut record = json!({
        "tokens": reply.tokens.iter().map(|t| t.0).collect::<Vec<_>>(),
        "text": reply.text,
        "input": reply.input.iter().map(|t| t.0).collect::<Vec<_>>(),
        "stop": reply.stop.name(),
        "status": reply.stop.genie_status(),
        "executed": runs,
        "kpis": {
            "num-prompt-tokens": kpis.n_prompt,
            "num-restored-tokens": kpis.n_restored,
            "prompt-processing-rate": kpis.prompt_rate(),
            "time-to-first-token": kpis.time_to_first_token.map(|t| t.as_micros() as u64),
            "num-generated-tokens": kpis.n_generated,
            "token-generation-rate": kpis.generation_rate(),
            "token-generation-time": kpis.generation_time.as_micros() as u64,
        },
    });
    if let Some(drafts) = kpis.speculation {
        record["speculation"] =
            json!({"rounds": drafts.n_rounds, "drafted": drafts.n_drafted, "accepted": drafts.n_accepted});
        record["kpis"]["token-acceptance-rate"] = kpis.acceptance_rate().into();
    }
    if !reply.streams.is_empty() {
        let stream = |r: &StreamReply| {
            let tokens: Vec<u32> = r.tokens.iter().map(|t| t.0).collect();
            json!({"tokens": tokens, "text": r.text, "stop": r.stop.name(), "status": r.stop.genie_status()})
        };
        record["streams"] = reply.streams.iter().map(stream).collect();
    }
    record
}

pub(super) fn stats(printer: &Printer, reply: &Reply) {
    let kpis = &reply.kpis;
    let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |r| format!("{r:.1} tokens/s"));
    let first = kpis.time_to_first_token.map_or("-".to_owned(), |t| format!("{:.2} ms", t.as_secs_f64() * 1e3));
    printer.info(format_args!(
        "prompt         {:>6} tokens, {}{}",
        kpis.n_prompt.saturating_sub(kpis.n_restored),
        rate(kpis.prompt_rate()),
        if kpis.n_restored > 0 { " with reading the prefix cache" } else { "" },
    ));
    if kpis.n_restored > 0 {
        let of = kpis.n_prompt;
        printer.info(format_args!(
            "restored       {:>6} tokens of {of} from the prefix cache, not processed",
            kpis.n_restored
        ));
    }
    printer.info(format_args!("first token    {first}"));
    printer.info(format_args!("generation     {:>6} tokens, {}", kpis.n_generated, rate(kpis.generation_rate())));
    if let Some(drafts) = kpis.speculation {
        let share = drafts.acceptance().map_or(String::new(), |share| format!(" ({:.0} %)", share * 100.0));
        printer.info(format_args!(
            "drafts         {:>6} steps, {} of {} tokens accepted{share}",
            drafts.n_rounds, drafts.n_accepted, drafts.n_drafted
        ));
    }
    printer.info(format_args!("stopped by     {}", reply.stop));
}
