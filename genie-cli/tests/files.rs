//! What is written where: full disks, file limits, devices, links, leftovers (rows 1, 2 and 17 of the list of failures, and
//! its small ones about `--profile`, `--prefix-cache` and `ulimit -f`).
#![cfg(unix)]

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::program::{stderr, under, with_cache as genie};

/// A model's folder of this repository, 1.4 MB that compile to more.
fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo")
}

/// The same below a limit for the length of a file.
fn genie_with_limit(cache: &Path, bytes: u64, args: &[&str]) -> Output {
    let mut command = under(&["prlimit", &format!("--fsize={bytes}")], cache, args);
    command.env("GENIE_CACHE", cache).output().expect("`prlimit` of util-linux is there")
}

/// The error line of a program that ended by itself with code 1.
fn refusal(output: &Output) -> &str {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{}: {text}", output.status);
    text
}

fn done(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}: {}", output.status, stderr(output));
}

/// Everything below a folder, by relative path; folders have no content.
fn everything(folder: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    fn add(root: &Path, folder: &Path, all: &mut BTreeMap<PathBuf, Option<Vec<u8>>>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_owned();
            if path.is_dir() {
                all.insert(name, None);
                add(root, &path, all);
            } else {
                all.insert(name, std::fs::read(&path).ok());
            }
        }
    }
    let mut all = BTreeMap::new();
    add(folder, folder, &mut all);
    all
}

/// A small disk of its own, gone when dropped.
struct SmallDisk {
    place: TempDir,
}

impl SmallDisk {
    /// `None`, and a word why, where mounting is not allowed.
    fn mount(test: &str, bytes: u64) -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(place.path()).stderr(Stdio::null());
        if command.status().is_ok_and(|status| status.success()) {
            return Some(Self { place });
        }
        eprintln!("{test}: skipped: mounting is not allowed");
        None
    }

    fn path(&self, name: &str) -> String {
        self.place.path().join(name).to_str().unwrap().to_owned()
    }

    /// Fills it until `free` bytes are left.
    fn fill_until(&self, free: usize) {
        let path = self.place.path().join("filler");
        let mut length = 0;
        let mut file = std::fs::File::create(&path).unwrap();
        while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {
            length += 4096;
        }
        file.set_len(u64::try_from(length - free).unwrap()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.place.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

const SMALL_BENCH: [&str; 9] = ["bench", "--pp", "8", "--tg", "1", "--reps", "1", "--threads", "1"];

fn bench(cache: &Path, flag: &str, file: &str) -> Output {
    genie(cache, &[&SMALL_BENCH[..], &[flag, file]].concat())
}

/// A cache folder with the demo compiled in it.
fn cache() -> TempDir {
    let cache = tempfile::tempdir().unwrap();
    done(&genie(cache.path(), &["run", "-p", "a", "-n", "1", "-q"]));
    cache
}

/// Row 1: `compile` died of a bus error.
#[test]
fn compile_to_a_full_disk_says_what_is_needed_and_what_is_free() {
    let Some(disk) = SmallDisk::mount("compile_to_a_full_disk", 2 << 20) else { return };
    let cache = tempfile::tempdir().unwrap();
    let out = disk.path("b");
    let output = genie(cache.path(), &["compile", demo().to_str().unwrap(), "-o", &out, "--ar", "1", "--cl", "64"]);
    let text = refusal(&output);
    assert!(text.contains(&format!(" MB in `{}`, ", disk.place.path().display())), "{text}");
    // The weights that were packed already lie on that disk too, in a file without a name, until the program has ended.
    assert!(
        text.contains("it needs ") && (text.contains(" MB are free") || text.contains(" bytes are free")),
        "{text}"
    );
    assert!(text.contains("hint: free some space, or write to another disk"), "{text}");
    assert_eq!(everything(disk.place.path()), BTreeMap::new(), "nothing is left");
}

/// Row 1: so did the very first `run`.
#[test]
fn the_first_run_with_a_full_cache_says_so_and_leaves_nothing() {
    let Some(disk) = SmallDisk::mount("the_first_run_with_a_full_cache", 8 << 20) else { return };
    let output = genie(disk.place.path(), &["run", "-p", "a", "-n", "1"]);
    let text = refusal(&output);
    assert!(text.contains("it needs ") && text.contains(" are free"), "{text}");
    assert_eq!(everything(disk.place.path()), BTreeMap::new(), "nothing is left");
}

/// Row 17: `dialog.json` of the old session was gone.
#[test]
fn a_save_that_finds_the_disk_full_leaves_the_old_session() {
    let Some(disk) = SmallDisk::mount("a_save_that_finds_the_disk_full", 4 << 20) else { return };
    let cache = cache();
    let session = disk.path("session");
    done(&genie(cache.path(), &["run", "-p", "ROMEO:", "-n", "20", "--save", &session]));
    let old = everything(Path::new(&session));
    assert!(old.contains_key(Path::new("dialog.json")), "{:?}", old.keys());
    for free in [0, 4096, 40_960] {
        disk.fill_until(free);
        let output = genie(cache.path(), &["run", "-p", "JULIET: and so", "-n", "60", "--save", &session]);
        let text = refusal(&output);
        assert!(text.contains("it needs ") && text.contains("hint: free some space"), "{free}: {text}");
        assert!(everything(Path::new(&session)) == old, "{free}: the old session has changed");
    }
    std::fs::remove_file(disk.path("filler")).unwrap();
    done(&genie(cache.path(), &["run", "-p", "on", "-n", "2", "--restore", &session, "--save", &session]));
}

/// The files of `bench`, on a full disk.
#[test]
fn outputs_of_bench_on_a_full_disk_leave_the_old_files() {
    let Some(disk) = SmallDisk::mount("outputs_of_bench_on_a_full_disk", 1 << 20) else { return };
    let cache = cache();
    for flag in ["--trace", "--plot"] {
        let file = disk.path("out");
        std::fs::write(&file, "old").unwrap();
        disk.fill_until(0);
        let output = bench(cache.path(), flag, &file);
        let text = refusal(&output);
        assert!(text.contains(&format!("`{flag}`: cannot write `{file}`: it needs ")), "{text}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
        let names: Vec<_> = everything(disk.place.path()).into_keys().collect();
        assert_eq!(names, [Path::new("filler"), Path::new("out")]);
        std::fs::remove_file(disk.path("filler")).unwrap();
    }
}

/// Section 3: a warning for each prefix, in the log's format and without the cause.
#[test]
fn a_full_prefix_cache_is_one_warning_with_its_cause() {
    let Some(disk) = SmallDisk::mount("a_full_prefix_cache", 1 << 20) else { return };
    let cache = cache();
    disk.fill_until(8192);
    let prompt = "the quality of mercy is not strained ".repeat(12);
    let folder = disk.path("prefixes");
    let output =
        genie(cache.path(), &["run", "-p", &prompt, "-n", "2", "--prefix-cache", &folder, "--prefix-min-tokens", "8"]);
    done(&output);
    let text = stderr(&output);
    assert_eq!(text.lines().filter(|line| line.starts_with("warning: ")).count(), 1, "{text}");
    assert!(text.starts_with("warning: the prompt's prefixes cannot be stored in the prefix cache: "), "{text}");
    assert!(text.contains("it needs ") && text.contains(" are free"), "{text}");
}

#[test]
fn a_damaged_file_of_the_prefix_cache_is_named_and_removed() {
    let (cache, folder) = (cache(), tempfile::tempdir().unwrap());
    let prefixes = folder.path().join("prefixes").to_str().unwrap().to_owned();
    let run = || {
        let output = genie(
            cache.path(),
            &[
                "run",
                "-p",
                "the quality of mercy is not strained",
                "-n",
                "2",
                "--greedy",
                "--prefix-cache",
                &prefixes,
                "--prefix-min-tokens",
                "8",
            ],
        );
        done(&output);
        output
    };
    let first = run();
    let kept: Vec<_> =
        std::fs::read_dir(&prefixes).unwrap().map(|e| e.unwrap().path()).filter(|p| p.extension().is_some()).collect();
    assert!(!kept.is_empty());
    for path in &kept {
        let len = std::fs::metadata(path).unwrap().len();
        std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len / 2).unwrap();
    }
    let again = run();
    assert_eq!(again.stdout, first.stdout);
    let text = stderr(&again);
    assert!(text.contains("of the prefix cache was damaged, and is removed: "), "{text}");
    assert!(!stderr(&run()).contains("damaged"), "what was removed is written again");
}

/// Section 3, `ulimit -f`: the signal killed without a word, and partial files stayed.
#[test]
fn a_file_limit_is_an_error_that_leaves_nothing() {
    let (cache, folder) = (cache(), tempfile::tempdir().unwrap());
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (bundle, session, trace, plot) = (file("b"), file("session"), file("trace"), file("plot"));
    done(&genie(cache.path(), &["run", "-p", "ROMEO:", "-n", "5", "--save", &session]));
    std::fs::write(&trace, "old").unwrap();
    let before = everything(folder.path());
    let model = demo();
    let bench = |flag, path| [&SMALL_BENCH[..], &[flag, path]].concat();
    for (limit, args) in [
        (1_000_000, vec!["compile", model.to_str().unwrap(), "-o", &bundle, "--ar", "1", "--cl", "64"]),
        (20_000, vec!["run", "-p", "JULIET: and so", "-n", "100", "--save", &session]),
        (500, bench("--trace", &trace)),
        (500, bench("--plot", &plot)),
    ] {
        let output = genie_with_limit(cache.path(), limit, &args);
        let text = refusal(&output);
        assert!(text.contains("the limit for a file is ") && text.contains("`ulimit -f`"), "{args:?}: {text}");
        assert!(everything(folder.path()) == before, "{args:?}: {:?}", everything(folder.path()).keys());
    }
    let empty = tempfile::tempdir().unwrap();
    let first_run = genie_with_limit(empty.path(), 1_000_000, &["run", "-p", "a", "-n", "1"]);
    assert!(refusal(&first_run).contains("the limit for a file is 1.0 MB"));
    assert_eq!(everything(empty.path()), BTreeMap::new(), "nothing is left of the demo");
}

/// Row 2: the device node became a regular file; a link was replaced and its target stayed old.
#[test]
fn outputs_of_bench_go_through_links_and_into_pipes_and_devices() {
    let (cache, folder) = (cache(), tempfile::tempdir().unwrap());
    for (flag, start) in [("--trace", "{"), ("--plot", "<svg")] {
        let path = |name: &str| folder.path().join(format!("{name}{flag}"));
        let (target, link, pipe) = (path("target"), path("link"), path("pipe"));
        std::fs::write(&target, "old").unwrap();
        symlink(&target, &link).unwrap();
        done(&bench(cache.path(), flag, link.to_str().unwrap()));
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert!(std::fs::read_to_string(&target).unwrap().starts_with(start));

        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read_to_string(pipe).unwrap()
        });
        done(&bench(cache.path(), flag, pipe.to_str().unwrap()));
        assert!(reader.join().unwrap().starts_with(start));
        assert!(pipe.symlink_metadata().unwrap().file_type().is_fifo());

        let device = path("null");
        if Command::new("mknod").arg(&device).args(["c", "1", "3"]).output().unwrap().status.success() {
            // Where devices do not work in this folder it is an error; the node stays in any case.
            let _ = bench(cache.path(), flag, device.to_str().unwrap());
            assert!(device.symlink_metadata().unwrap().file_type().is_char_device());
        } else {
            eprintln!("outputs_of_bench: devices skipped: making device nodes is not allowed");
        }
    }
}

/// Section 3: `--profile /no/dir/p` generated first and failed then. The same for `--save`.
#[test]
fn outputs_of_run_are_checked_before_the_first_token() {
    let (cache, folder) = (cache(), tempfile::tempdir().unwrap());
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let below = file.join("session").to_str().unwrap().to_owned();
    for (flag, path, want) in [
        ("--profile", "/no/dir/p", "`--profile`: cannot write `/no/dir/p`: there is no folder `/no/dir`"),
        ("--profile", "/", "`--profile`: cannot write `/`: expected a file, found a folder"),
        ("--profile", file.to_str().unwrap(), "already exists"),
        ("--save", file.to_str().unwrap(), "expected a folder, found a file"),
        ("--save", &below, "`--save`: cannot "),
        ("--save", "/dev/null", "expected a folder, found a "),
    ] {
        let output = genie(cache.path(), &["run", "-p", "a", "-n", "2", flag, path]);
        let text = refusal(&output);
        assert!(text.contains(want), "{flag} {path}: {text}");
        assert_eq!(output.stdout, b"", "{flag} {path}: nothing was generated");
    }
    let profile = folder.path().join("profile");
    done(&genie(cache.path(), &["run", "-p", "a", "-n", "2", "--profile", profile.to_str().unwrap()]));
    assert!(std::fs::read_to_string(profile).unwrap().starts_with('{'));
}

/// What is written last may fail; the dialog is kept, and can be gone on with.
#[test]
fn a_dialog_is_kept_whatever_becomes_of_the_profile_and_of_stdout() {
    let (cache, folder) = (cache(), tempfile::tempdir().unwrap());
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let run = |session: &str| -> Vec<String> {
        ["run", "-p", "ROMEO:", "-n", "3", "--greedy", "--save", session].map(str::to_owned).into()
    };
    let profiled = |session: &str, profile: &str| {
        [run(session), ["--profile", profile, "--graph-profile", "detailed"].map(str::to_owned).into()].concat()
    };
    let args = |list: &[String]| -> Vec<&'static str> {
        list.iter().map(|arg| &*Box::leak(arg.clone().into_boxed_str())).collect()
    };
    done(&genie(cache.path(), &args(&profiled(&at("whole"), &at("profile")))));
    let length = |path: &Path| path.metadata().unwrap().len();
    let profile = length(&folder.path().join("profile"));
    let largest = std::fs::read_dir(at("whole")).unwrap().map(|e| length(&e.unwrap().path())).max().unwrap();
    // The profile's length depends on how many digits its times have.
    let limit = u64::midpoint(largest, profile);
    assert!(largest + 1000 < profile, "a limit between a session of {largest} bytes and a profile of {profile}");
    let goes_on = |session: &str| {
        let output = genie(cache.path(), &["run", "--restore", session, "-p", "and", "-n", "5", "--greedy", "-q"]);
        done(&output);
        output.stdout
    };
    let expected = goes_on(&at("whole"));

    let output = genie_with_limit(cache.path(), limit, &args(&profiled(&at("one"), &at("none"))));
    let text = refusal(&output);
    assert!(text.contains("`--profile`: cannot write `") && text.contains("the limit for a file is "), "{text}");
    assert!(!Path::new(&at("none")).exists());
    assert_eq!(goes_on(&at("one")), expected);

    // A file that has no room for one byte more.
    let full = std::fs::OpenOptions::new().create(true).append(true).open(at("full")).unwrap();
    full.set_len(limit).unwrap();
    let mut command = under(&["prlimit", &format!("--fsize={limit}")], cache.path(), &args(&run(&at("two"))));
    let output = command.env("GENIE_CACHE", cache.path()).stdout(full).output().unwrap();
    let text = refusal(&output);
    assert!(text.contains("stdout"), "{text}");
    // The reply ends where it cannot be shown.
    assert!(!goes_on(&at("two")).is_empty());
}

/// Row 17: temporary files of killed saves stayed. This release's names and those of the one before.
#[test]
fn a_save_removes_what_killed_saves_left() {
    let (cache, folder) = (cache(), tempfile::tempdir().unwrap());
    let session = folder.path().join("session");
    let save = || genie(cache.path(), &["run", "-p", "a", "-n", "2", "--save", session.to_str().unwrap()]);
    done(&save());
    let whole: Vec<_> = everything(&session).into_keys().collect();
    let mut dead = Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    let (dead, alive) = (dead.id(), std::process::id());
    for name in ["dialog.json", "open-genie.kvs"] {
        std::fs::write(session.join(format!(".{name}.{dead}.3.tmp")), "x").unwrap();
    }
    let stays = [format!(".dialog.json.{alive}.0.tmp"), format!(".thesis.{dead}.0.tmp"), format!("notes.{dead}.part")];
    for name in &stays {
        std::fs::write(session.join(name), "x").unwrap();
    }
    done(&save());
    let mut expected: Vec<PathBuf> = whole.into_iter().chain(stays.map(PathBuf::from)).collect();
    expected.sort();
    assert_eq!(everything(&session).into_keys().collect::<Vec<_>>(), expected);
}
