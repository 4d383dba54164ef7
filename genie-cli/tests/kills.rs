//! Kills `genie` at random moments, and at the moments when it publishes what it made: the next run works, nothing of the
//! user's is lost, and in the end nothing is left over.
//!
//! `GENIE_KILLS` is the number of kills for each of the four subjects (12), `GENIE_KILLS_SEED` the seed of their moments;
//! `cargo xtask kills` runs 200 each. Moments are drawn within the time that an uninterrupted run took; nothing else
//! depends on time.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use compiler::Family;
use compiler::testmodel::TestModel;

use crate::program::command;

/// When a run is killed.
enum Moment<'a> {
    /// That long after its start.
    After(Duration),
    /// As soon as this holds.
    When(&'a dyn Fn() -> bool),
}

/// A folder to work in, the kills that are to come, and what came of those before.
struct Subject {
    name: &'static str,
    dir: tempfile::TempDir,
    seed: u64,
    random: u64,
    n: usize,
    n_killed: usize,
    n_aimed: usize,
    full: Duration,
}

impl Subject {
    fn new(name: &'static str) -> Self {
        let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos();
        let seed = number("GENIE_KILLS_SEED").unwrap_or_else(|| u64::from(now));
        let n = number("GENIE_KILLS").unwrap_or(12) as usize;
        let dir = tempfile::tempdir().unwrap();
        TestModel::tiny(Family::Llama).write(&dir.path().join("model")).unwrap();
        Self { name, dir, seed, random: seed, n, n_killed: 0, n_aimed: 0, full: Duration::ZERO }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn genie(&self, args: &[&str]) -> Command {
        let mut command = command(self.dir.path(), args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A run that must succeed; its stdout.
    fn done(&self, args: &[&str]) -> String {
        let output = self.genie(args).output().unwrap();
        self.succeeded(&output);
        String::from_utf8(output.stdout).unwrap()
    }

    fn succeeded(&self, output: &Output) {
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}, seed {}: {text}", self.name, self.seed);
    }

    /// Takes the time of an uninterrupted run.
    fn measure(&mut self, args: &[&str]) {
        let start = Instant::now();
        self.done(args);
        self.full = start.elapsed();
    }

    /// A moment within an uninterrupted run.
    fn draw(&mut self) -> Moment<'static> {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let part = ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
        Moment::After(self.full.mul_f64(part))
    }

    /// Runs, and kills at that moment. A run that ends before must have succeeded.
    fn kill(&mut self, args: &[&str], moment: &Moment<'_>) {
        let start = Instant::now();
        let mut child = self.genie(args).spawn().unwrap();
        let is_time = || match moment {
            Moment::After(time) => start.elapsed() >= *time,
            Moment::When(holds) => holds(),
        };
        while !is_time() && child.try_wait().unwrap().is_none() {
            match moment {
                Moment::After(_) => std::thread::sleep(Duration::from_micros(200)),
                Moment::When(_) => std::thread::yield_now(),
            }
        }
        self.end(child, moment);
    }

    fn end(&mut self, mut child: Child, moment: &Moment<'_>) {
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        if output.status.code().is_some() {
            return self.succeeded(&output);
        }
        self.n_killed += 1;
        self.n_aimed += usize::from(matches!(moment, Moment::When(_)));
    }

    fn names(&self, folder: &str) -> Vec<String> {
        names(&self.at(folder))
    }

    fn report(&self) {
        let Self { name, seed, n, n_killed, n_aimed, full, .. } = self;
        println!(
            "{name}: {n} runs with seed {seed}, {n_killed} of them killed, {n_aimed} of these where it publishes; an \
             uninterrupted one takes {} ms",
            full.as_millis()
        );
        assert!(4 * n_killed >= *n, "{name}, seed {seed}: most runs ended before they were killed");
    }
}

/// The names in a folder, without those of notes on checked weights; none if there is no folder.
fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "cache" && name != "weights-1");
    names.sort();
    names
}

/// Whether a hidden folder in `folder` holds a manifest: what is left to do is to publish it.
fn is_complete(folder: &Path) -> bool {
    names(folder).iter().any(|name| name.contains(".partial.") && folder.join(name).join("manifest.json").exists())
}

/// Whether a hidden folder in `folder` is no whole bundle: the one that was replaced is being removed.
fn is_half_removed(folder: &Path) -> bool {
    let lacks = |hidden: &str| BUNDLE.iter().any(|name| !folder.join(hidden).join(name).exists());
    names(folder).iter().any(|name| name.starts_with(".b.") && lacks(name))
}

const COMPILE: [&str; 8] = ["compile", "model", "-o", "b", "--ar", "1,8", "--cl", "64"];
const RUN: [&str; 8] = ["run", "-c", "b", "--prompt-tokens", "1,2,3", "-n", "3", "--greedy"];
const BUNDLE: [&str; 4] = ["genie_config.json", "manifest.json", "model.bin", "tokenizer.json"];

/// A new bundle is there whole or not at all.
#[test]
fn compile() {
    let mut subject = Subject::new("compile");
    subject.measure(&COMPILE);
    let text = subject.done(&RUN);
    let parent = subject.dir.path().to_owned();
    for i in 0..subject.n {
        let _ = fs::remove_dir_all(subject.at("b"));
        let moment = if i % 3 == 2 { Moment::When(&|| is_complete(&parent)) } else { subject.draw() };
        subject.kill(&COMPILE, &moment);
        if subject.at("b").exists() {
            assert_eq!(subject.done(&RUN), text, "seed {}", subject.seed);
        } else {
            subject.done(&COMPILE);
            assert_eq!(subject.names("."), ["b", "model"], "seed {}", subject.seed);
        }
        assert_eq!(subject.names("b"), BUNDLE, "seed {}", subject.seed);
    }
    let _ = fs::remove_dir_all(subject.at("b"));
    subject.done(&COMPILE);
    assert_eq!(subject.names("."), ["b", "model"]);
    subject.report();
}

/// The earlier bundle is there until the new one is; what else lies there is always there. Row 3.
#[test]
fn compile_by_force() {
    let mut subject = Subject::new("compile --force");
    let force = [&COMPILE[..], &["--force"]].concat();
    let two = [&force[..], &["--splits", "decoder-lmhead"]].concat();
    subject.measure(&COMPILE);
    let text = subject.done(&RUN);
    fs::create_dir(subject.at("b/session")).unwrap();
    for name in ["b/notes.txt", "b/session/f"] {
        fs::write(subject.at(name), "mine").unwrap();
    }
    let (parent, bundle) = (subject.dir.path().to_owned(), subject.at("b"));
    for i in 0..subject.n {
        let args = if i % 2 == 0 { &two } else { &force };
        let old = fs::metadata(&bundle).unwrap().ino();
        let is_exchanged = || fs::metadata(&bundle).is_ok_and(|meta| meta.ino() != old);
        let moment = match i % 4 {
            1 => Moment::When(&is_exchanged),
            2 => Moment::When(&|| is_complete(&parent)),
            3 => Moment::When(&|| is_exchanged() && is_half_removed(&parent)),
            _ => subject.draw(),
        };
        subject.kill(args, &moment);
        for name in ["b/notes.txt", "b/session/f"] {
            assert_eq!(fs::read_to_string(subject.at(name)).unwrap(), "mine", "{name}, seed {}", subject.seed);
        }
        assert_eq!(subject.done(&RUN), text, "seed {}", subject.seed);
        if i % 5 == 4 {
            subject.done(args);
            assert_eq!(subject.names("."), ["b", "model"], "seed {}", subject.seed);
        }
    }
    subject.done(&force);
    assert_eq!(subject.names("."), ["b", "model"]);
    let mut expected = [&BUNDLE[..], &["notes.txt", "session"]].concat();
    expected.sort_unstable();
    assert_eq!(subject.names("b"), expected);
    subject.report();
}

/// The demo's folder is there whole or not at all.
#[test]
fn first_run() {
    let mut subject = Subject::new("first run");
    let args = ["run", "--prompt-tokens", "12,7,9", "-n", "3", "--greedy", "--threads", "1", "-q"];
    subject.measure(&args);
    let text = subject.done(&args);
    let cache = subject.at("cache");
    let demo = subject.names("cache");
    assert_eq!(demo.len(), 1);
    for i in 0..subject.n {
        fs::remove_dir_all(cache.join(&demo[0])).unwrap();
        let moment = if i % 3 == 2 { Moment::When(&|| is_complete(&cache)) } else { subject.draw() };
        subject.kill(&args, &moment);
        assert_eq!(subject.done(&args), text, "seed {}", subject.seed);
        // A run that found the folder whole has nothing to sweep.
        if subject.names("cache") != demo {
            fs::remove_dir_all(cache.join(&demo[0])).unwrap();
            subject.done(&args);
        }
        assert_eq!(subject.names("cache"), demo, "seed {}", subject.seed);
    }
    subject.report();
}

/// A saved dialog is the old one or the new one. Row 17.
#[test]
fn save() {
    let mut subject = Subject::new("run --save");
    subject.done(&COMPILE);
    let save = [&RUN[..], &["--save", "s"]].concat();
    let restore = ["run", "-c", "b", "--prompt-tokens", "4", "-n", "2", "--greedy", "--restore", "s"];
    subject.measure(&save);
    let (files, text) = (subject.names("s"), subject.done(&restore));
    let folder = subject.at("s");
    for i in 0..subject.n {
        // A temporary file of the set, one after the other.
        let n_hidden = || names(&folder).iter().filter(|name| name.starts_with('.')).count();
        let before = n_hidden();
        let moment = if i % 2 == 0 { Moment::When(&|| n_hidden() > before + i / 2 % 4) } else { subject.draw() };
        subject.kill(&save, &moment);
        assert_eq!(subject.done(&restore), text, "seed {}", subject.seed);
    }
    subject.done(&save);
    assert_eq!(subject.names("s"), files, "seed {}", subject.seed);
    assert_eq!(subject.names("."), ["b", "model", "s"], "seed {}", subject.seed);
    subject.report();
}
