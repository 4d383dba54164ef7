//! `attack`: thousands of situations that something is wrong with, made from a seed, and how `genie` answers each.
//!
//! ```text
//! cargo run -p fuzz-targets --bin attack -- --seed 7 --count 3000 --genie target/release/genie
//! cargo run -p fuzz-targets --bin attack -- --seed 7 --only gguf:41 --genie target/release/genie   # one of them again
//! ```
//!
//! Each situation starts from a good model, bundle, session or command line and changes one or two things by what they mean: a key of
//! another type, a tensor of another shape, a folder in place of a file, a limit, a signal. The answer is one of:
//!
//! | word | meaning |
//! |---|---|
//! | clear | refused, and the message names what was changed, in the words of the file or the flag |
//! | right | exit code 0, and rightly so: the change was used, named in a note, or changes nothing |
//! | vague | refused, but nothing that was changed is named, or the message shows this program's types |
//! | wrong | exit code 0 although the change was not looked at, or `compile` passes what `run` refuses |
//! | died | a signal, a panic, no end within the time |
//!
//! The exit code is 1 if something died or was wrong, or more than 3 % are vague.
#![forbid(unsafe_code)]

mod base;
mod change;
mod child;
mod groups;
mod judge;
mod situation;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use clap::Parser;
use fuzz_targets::Rng;

use base::Base;
use groups::{GROUPS, Group};
use judge::{Judgement, Verdict};

/// Change one thing in good models, bundles, sessions and command lines, and judge what `genie` says.
#[derive(Parser)]
struct Args {
    /// Number that all situations follow from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Situations in total, shared evenly among the groups
    #[arg(long, default_value_t = 3000)]
    count: usize,
    /// The program
    #[arg(long, default_value = "target/release/genie")]
    genie: PathBuf,
    /// Only this group, or only situation N of it: `gguf`, `gguf:41`
    #[arg(long, value_name = "GROUP[:N]")]
    only: Option<String>,
    /// Situations at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// List the clear and the right ones too
    #[arg(long)]
    all: bool,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let genie = args.genie.canonicalize().with_context(|| format!("no program `{}`", args.genie.display()))?;
    let place = tempfile::tempdir().context("cannot make a temporary folder")?;
    let base = Base::make(&genie, &place.path().join("base"))?;
    let jobs = jobs(&args)?;
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.max(1) {
            scope.spawn(|| {
                while let Some((group, n)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let room = place.path().join(format!("{}-{n}", group.name));
                    let judged = one(&base, group, *n, args.seed, &room);
                    let _ = std::fs::remove_dir_all(&room);
                    if let Ok(mut done) = done.lock() {
                        done.push((group.name, *n, judged));
                    }
                }
            });
        }
    });
    report(done.into_inner().unwrap_or_default(), &args)
}

/// The situations to try, groups mixed.
fn jobs(args: &Args) -> Result<Vec<(&'static Group, usize)>> {
    let Some(only) = &args.only else {
        let each = args.count.div_ceil(GROUPS.len());
        return Ok((0..each).flat_map(|n| GROUPS.iter().map(move |group| (group, n))).take(args.count).collect());
    };
    let (name, number) = only.split_once(':').map_or((only.as_str(), None), |(name, n)| (name, Some(n)));
    let names = || GROUPS.iter().map(|group| group.name).collect::<Vec<_>>().join(", ");
    let Some(group) = GROUPS.iter().find(|group| group.name == name) else {
        bail!("no group `{name}`: one of {}", names());
    };
    Ok(match number {
        Some(n) => vec![(group, n.parse().with_context(|| format!("`{n}` is no number"))?)],
        None => (0..args.count).map(|n| (group, n)).collect(),
    })
}

/// Makes and tries situation `n` of a group. The same seed, group and number give the same situation.
fn one(base: &Base, group: &Group, n: usize, seed: u64, room: &Path) -> Result<Judgement> {
    let name = group.name.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(257).wrapping_add(u64::from(byte)));
    let mut rng = Rng::new(seed.wrapping_mul(0x1_0000_0001).wrapping_add(name).wrapping_add((n as u64) << 40));
    rng.bits();
    std::fs::create_dir_all(room)?;
    let situation = (group.make)(base, room, &mut rng)?;
    let mut ended = Vec::new();
    for step in &situation.steps {
        let end = child::run(&base.genie, room, step)?;
        let failed = end.code != Some(0);
        ended.push(end);
        if failed && !step.may_fail {
            break;
        }
    }
    Ok(judge::judge(situation, &ended, room))
}

type Done = (&'static str, usize, Result<Judgement>);

fn report(mut done: Vec<Done>, args: &Args) -> Result<ExitCode> {
    done.sort_by_key(|(group, n, _)| (*group, *n));
    let mut counts: BTreeMap<&str, [usize; 5]> = BTreeMap::new();
    let mut total = [0; 5];
    for (group, n, judged) in &done {
        let judged = match judged {
            Ok(judged) => judged,
            Err(error) => bail!("situation {group}:{n} cannot be made: {error:#}"),
        };
        counts.entry(group).or_default()[judged.verdict as usize] += 1;
        total[judged.verdict as usize] += 1;
        if args.all || !matches!(judged.verdict, Verdict::Clear | Verdict::Right) {
            println!("{} {group}:{n} {}", judged.verdict.word(), judged.text);
        }
    }
    println!(
        "\n{:<12} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6}",
        "group", "tried", "clear", "right", "vague", "wrong", "died"
    );
    let row = |name: &str, count: &[usize; 5]| {
        let sum: usize = count.iter().sum();
        println!("{name:<12} {sum:>6} {:>6} {:>6} {:>6} {:>6} {:>6}", count[0], count[1], count[2], count[3], count[4]);
    };
    counts.iter().for_each(|(name, count)| row(name, count));
    row("all", &total);
    println!("seed {}", args.seed);
    let good = total[Verdict::Wrong as usize] == 0
        && total[Verdict::Died as usize] == 0
        && total[Verdict::Vague as usize] * 100 <= done.len() * 3;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
