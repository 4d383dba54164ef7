//! Signals, pipes and limits of the system: what the program does when the outside gives way.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use fuzz_targets::Rng;
use rustix::process::Signal;

use crate::base::{Base, compile, restore, run};
use crate::situation::{Expect, Situation, Step};

/// A good command under a limit, with a reader that goes away, or with a signal.
pub(super) fn make(base: &Base, room: &Path, rng: &mut Rng) -> Result<Situation> {
    let bundle = base.bundle.display().to_string();
    match rng.below(4) {
        0 => Ok(signal(base, &bundle, rng)),
        1 => Ok(pipe(base, &bundle, room, rng)),
        _ => Ok(limit(base, &bundle, rng)),
    }
}

/// Stopped at some moment; the same command then works.
fn signal(base: &Base, bundle: &str, rng: &mut Rng) -> Situation {
    let after = Duration::from_millis(1 + rng.below(120) as u64);
    let signal = [Signal::INT, Signal::TERM][rng.below(2)];
    let model = base.models[0].folder.display().to_string();
    let step = match rng.below(3) {
        0 => compile(&model, "out"),
        1 => {
            let mut step = run(bundle);
            step.args.extend(["--save".into(), "saved".into()]);
            step
        }
        _ => Step::new(["perplexity", "-c", bundle, &base.text()]),
    };
    let again = match step.args[0].as_str() {
        "compile" => Step { args: [step.args.clone(), vec!["--force".into()]].concat(), ..Step::default() },
        _ => step.clone(),
    };
    let what = format!("signal {} after {} ms: {}", signal.as_raw(), after.as_millis(), step.args[0]);
    let stopped = Step { signal: Some((after, signal)), may_fail: true, ..step };
    Situation::new(what, Expect::Open, vec![stopped, again]).named(["stopped", "signal"])
}

/// Outputs without a reader, that are full, or closed.
fn pipe(base: &Base, bundle: &str, room: &Path, rng: &mut Rng) -> Situation {
    let step = match rng.below(5) {
        0 => {
            let mut step = run(bundle);
            step.args.extend(["--save".into(), "saved".into()]);
            step
        }
        1 => Step::new(["verify", bundle, "-n", "4"]),
        2 => Step::new(["inspect", bundle]),
        3 => Step::new(["doctor", bundle]),
        _ => Step::new(["perplexity", "-c", bundle, &base.text()]),
    };
    let saves = step.args.iter().any(|arg| arg == "--save");
    let how = *rng.pick(&["| head -c 1", "| true", ">&-", "> /dev/full", "2>&-", "2> /dev/full", "<&-", "< /no"]);
    let mut step = step;
    step.behind = if how == "< /no" { "< /dev/null".into() } else { how.into() };
    let what = format!("{} {}", step.args[0], step.behind);
    let _ = room;
    if saves && how != "> /dev/full" && how != ">&-" {
        let next = restore(bundle, "saved");
        if how.starts_with('|') {
            // The reader may leave before the reply is whole: then it ends there, with code 0, and the session goes on from there.
            return Situation::new(what, Expect::Runs, vec![step, next]);
        }
        step.may_fail = true;
        return Situation::new(what, Expect::Works(base.goes_on.clone()), vec![step, next]);
    }
    let names = ["stdout", "output", "No space", "Bad file", "pipe"];
    Situation::new(what, Expect::Open, vec![step]).named(names)
}

/// `ulimit`, and a full disk by `ulimit -f`.
fn limit(base: &Base, bundle: &str, rng: &mut Rng) -> Situation {
    let model = base.models[0].folder.display().to_string();
    let gguf = base.models[0].folder.with_extension("gguf").display().to_string();
    let step = match rng.below(5) {
        0 => compile(&model, "out"),
        1 => compile(&gguf, "out"),
        2 => {
            let mut step = run(bundle);
            step.args.extend(["--save".into(), "saved".into()]);
            step
        }
        3 => {
            let mut step = run(bundle);
            step.args.extend(["--profile".into(), "p.json".into(), "--prefix-cache".into(), "prefixes".into()]);
            step
        }
        _ => Step::new(["perplexity", "-c", bundle, &base.text()]),
    };
    let limit = match rng.below(4) {
        0 => format!("ulimit -f {};", *rng.pick(&[0, 1, 8, 64, 300])),
        1 => format!("ulimit -n {};", 4 + rng.below(12)),
        2 => format!("ulimit -s {};", *rng.pick(&[128, 256, 1024])),
        _ => format!("ulimit -v {};", *rng.pick(&[60_000, 80_000, 100_000, 150_000, 300_000])),
    };
    let names = ["large", "space", "limit", "memory", "thread", "open files", "out", "saved", "p.json", "ulimit"];
    let what = format!("{limit} {}", step.args[0]);
    let step = Step { before: limit, ..step };
    Situation::new(what, Expect::Open, vec![step]).named(names)
}
