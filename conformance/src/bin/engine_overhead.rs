//! Time per decoded token: libGenie against our engine, on the same bundle and the same `libqnn_host`.
//!
//! `cargo build --release -p conformance -p qnn-host && taskset -c 1 target/release/engine_overhead [--rounds N] [--tokens N]
//! [--model tiny|demo]`. Each round runs both in processes of their own, one after the other; the first of a round changes
//! from round to round. A run's figure is the median time between two callbacks; the medians over the rounds and their
//! ratio are printed. What a token takes inside `graphExecute` is measured in runs of their own, from the backend's trace;
//! the rest is host work. On one core the backend works without a team, whose waking would drown what is looked for.
//! The heap is not cleared here, as that would slow down whoever allocates; both must say the same tokens all the same.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use compiler::testmodel::TestModel;
use compiler::{CONFIG_FILE, CompileOptions, Family, Silent, Splits, compile};
use conformance::backends;
use conformance::genie::{self, Act, Player, Sentence, Session, Stage};

type Failure = Box<dyn std::error::Error>;

/// Tokens at the start of a reply that are left out: first touches of memory, and the switch of variants.
const WARM_UP: usize = 8;

/// The heap as the system gives it.
const AS_IT_IS: (&str, &str) = ("MALLOC_PERTURB_", "0");

struct Flags {
    rounds: usize,
    tokens: u32,
    model: String,
}

fn main() -> ExitCode {
    match flags().and_then(|flags| run(&flags)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("engine_overhead: {error}");
            ExitCode::FAILURE
        }
    }
}

fn flags() -> Result<Flags, Failure> {
    let mut flags = Flags { rounds: 15, tokens: 100, model: "tiny".into() };
    let mut words = std::env::args().skip(1);
    while let Some(flag) = words.next() {
        let value = words.next().ok_or_else(|| format!("`{flag}` needs a value"))?;
        match flag.as_str() {
            "--rounds" => flags.rounds = value.parse()?,
            "--tokens" => flags.tokens = value.parse()?,
            "--model" => flags.model = value,
            other => return Err(format!("unknown flag `{other}`: expected --rounds, --tokens, --model").into()),
        }
    }
    if flags.rounds == 0 || (flags.tokens as usize) < 2 * WARM_UP {
        return Err(format!("expected at least one round of at least {} tokens", 2 * WARM_UP).into());
    }
    Ok(flags)
}

fn run(flags: &Flags) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let stage = Stage::new(&genie::library(), &backends::host_library())?;
    let config = bundle(folder.path(), &flags.model, flags.tokens)?;
    let acts = vec![Act::MaxTokens(flags.tokens), Act::Tokens((1..=6).map(|i| i * 31).collect(), Sentence::Complete)];
    let real = Session::greedy(stage.library(), &config, acts);
    let ours = Session { player: Player::Ours { backend: stage.backend() }, ..real.clone() };

    let (mut real_us, mut our_us) = (Vec::new(), Vec::new());
    let mut said = None;
    for round in 0..flags.rounds {
        let both = [(&real, &mut real_us), (&ours, &mut our_us)];
        let order: [usize; 2] = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        let mut both = both.map(Some);
        for which in order {
            let (session, figures) = both[which].take().expect("each once");
            let run = session.run_with(&[AS_IT_IS])?;
            let tokens = run.tokens().concat();
            if *said.get_or_insert_with(|| tokens.clone()) != tokens {
                return Err(format!("round {round}: the two say different tokens").into());
            }
            figures.push(median(intervals(&run.outcome.replies[1].at_ns)));
        }
    }
    let [in_real, in_ours] = [&real, &ours].map(|session| executing(session, folder.path()));
    let (in_real, in_ours) = (in_real?, in_ours?);
    let (real_us, our_us) = (median(real_us), median(our_us));
    let cores = std::thread::available_parallelism()?;
    println!(
        "{} model, {} tokens, {} rounds, cores: {cores}; microseconds per decoded token, medians",
        flags.model, flags.tokens, flags.rounds
    );
    println!("{:12} {:>10} {:>14} {:>10}", "", "per token", "graphExecute", "host work");
    println!("{:12} {real_us:>10.1} {in_real:>14.1} {:>10.1}", "libGenie", real_us - in_real);
    println!("{:12} {our_us:>10.1} {in_ours:>14.1} {:>10.1}", "ours", our_us - in_ours);
    println!(
        "ours takes {:.2} of libGenie's time per token, {:.2} of its host work",
        our_us / real_us,
        (our_us - in_ours) / (real_us - in_real)
    );
    Ok(())
}

/// The bundle's config.
fn bundle(folder: &Path, model: &str, tokens: u32) -> Result<PathBuf, Failure> {
    let model_dir = match model {
        "tiny" => {
            let dir = folder.join("model");
            TestModel::tiny(Family::Llama).write(&dir)?;
            dir
        }
        "demo" => Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo"),
        other => return Err(format!("unknown model `{other}`: expected tiny or demo").into()),
    };
    let options = CompileOptions {
        ars: vec![1, 32],
        cls: vec![(tokens + 32).next_power_of_two().max(128)],
        // What `genie compile` makes by default.
        splits: Splits::DecoderLmhead,
        one_file: true,
        ..CompileOptions::new(model_dir, folder.join("bundle"))
    };
    compile(&options, &backends::loaded(), &mut Silent)?;
    Ok(folder.join("bundle").join(CONFIG_FILE))
}

/// Microseconds between tokens, without the first ones.
fn intervals(at_ns: &[u64]) -> Vec<f64> {
    // The last callback carries no token.
    let at = &at_ns[WARM_UP.min(at_ns.len())..at_ns.len().saturating_sub(1)];
    at.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e3).collect()
}

/// Median time that a decoded token spends in `graphExecute`, of all splits, in microseconds, by the backend's own trace.
fn executing(session: &Session, folder: &Path) -> Result<f64, Failure> {
    let mut medians = Vec::new();
    for _ in 0..5 {
        let trace = folder.join("trace.txt");
        let _ = std::fs::remove_file(&trace);
        session.run_with(&[AS_IT_IS, ("QNN_HOST_TRACE", trace.to_str().ok_or("a path in UTF-8")?)])?;
        let text = std::fs::read_to_string(&trace)?;
        let mut tokens: Vec<f64> = Vec::new();
        for line in text.lines().filter(|line| line.starts_with("QnnGraph_execute ar1_")) {
            let Some(micros) = line.strip_suffix(" us").and_then(|line| line.rsplit(' ').next()?.parse().ok()) else {
                continue;
            };
            match tokens.last_mut() {
                _ if line.contains("_1_of_") => tokens.push(micros),
                Some(token) => *token += micros,
                // The LM head of the prompt.
                None => {}
            }
        }
        medians.push(median(tokens.split_off(WARM_UP.min(tokens.len()))));
    }
    Ok(median(medians))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
