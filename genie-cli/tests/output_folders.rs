//! Where `genie compile` and the demo's first run write: what they refuse, what `--force` keeps, and what is left over.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use compiler::Family;
use compiler::testmodel::TestModel;

use crate::program::{command, stderr};

/// A working folder with a small model in `model`.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        TestModel::tiny(Family::Llama).write(&dir.path().join("model")).unwrap();
        Self(dir)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `genie` in the working folder.
    fn genie(&self, args: &[&str]) -> Command {
        let mut command = command(self.0.path(), args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.genie(args).output().unwrap()
    }

    /// `genie compile model -o OUT`, with flags after it.
    fn compile(&self, out: &str, flags: &[&str]) -> Output {
        self.run(&[&["compile", "model", "-o", out, "--ar", "1,8", "--cl", "64"], flags].concat())
    }

    /// The names in a folder of the working folder, without the notes of checked weights that a cache has.
    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(folder)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "weights-1");
        names.sort();
        names
    }

    /// The bundle generates.
    fn check_runs(&self, bundle: &str) {
        done(self.run(&["run", "-c", bundle, "--prompt-tokens", "1,2,3", "-n", "2", "--greedy", "-q"]));
    }
}

fn done(output: Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stderr(&output).to_owned()
}

fn refused(output: Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    stderr(&output).to_owned()
}

const BUNDLE: [&str; 4] = ["genie_config.json", "manifest.json", "model.bin", "tokenizer.json"];

/// D1: compiling again deleted the bundle, its sessions and its edited config, without `--force` and without a word.
#[test]
fn a_bundle_is_replaced_by_force_only_and_keeps_what_is_not_its_own() {
    let place = Place::new();
    done(place.compile("b", &[]));
    done(place.run(&["run", "-c", "b", "--prompt-tokens", "5,6", "-n", "2", "--greedy", "-q", "--save", "b/session"]));
    fs::write(place.at("b/notes.txt"), "mine").unwrap();
    let config = fs::read_to_string(place.at("b/genie_config.json")).unwrap();
    fs::write(place.at("b/genie_config.json"), format!("{config} ")).unwrap();

    let text = refused(place.compile("b", &[]));
    assert!(text.starts_with("error: `b` already holds a bundle, and `notes.txt`, `session/`\n"), "{text}");
    assert!(
        text.contains("hint: choose another folder, or use `--force` to replace the bundle; other files"),
        "{text}"
    );
    assert_eq!(place.names("b").len(), BUNDLE.len() + 2);

    let text = done(place.compile("b", &["--force"]));
    assert!(text.contains("note: kept in `b`: `notes.txt`, `session/`\n"), "{text}");
    assert!(text.contains("note: `genie_config.json` was edited: it is kept as `genie_config.json.old`\n"), "{text}");
    assert_eq!(fs::read_to_string(place.at("b/notes.txt")).unwrap(), "mine");
    assert_eq!(fs::read_to_string(place.at("b/genie_config.json")).unwrap(), config);
    // The saved dialog goes on, and nothing hidden is left.
    let args = ["run", "-c", "b", "--prompt-tokens", "7", "-n", "2", "--greedy", "--restore", "b/session"];
    assert!(done(place.run(&args)).contains("restored"));
    // The cache has a stamp of the weights if they were old enough for one.
    let mut names = place.names(".");
    names.retain(|name| name != "cache");
    assert_eq!(names, ["b", "model"]);
}

/// Row 4: `compile -o ~/docs --force` deleted the folder, and the hint had led to it.
#[test]
fn a_folder_that_is_no_bundle_is_never_deleted() {
    let place = Place::new();
    fs::create_dir_all(place.at("docs/letters")).unwrap();
    fs::write(place.at("docs/thesis.tex"), "irreplaceable").unwrap();
    for flags in [&[][..], &["--force"]] {
        let text = refused(place.compile("docs", flags));
        assert!(text.starts_with("error: `docs` is not empty and not a bundle: it holds `letters/`, `thesis.tex`\n"));
        assert!(text.contains("hint: choose a folder that is empty or does not exist"), "{text}");
        assert!(!text.contains("--force"), "{text}");
        assert_eq!(place.names("docs"), ["letters", "thesis.tex"]);
    }
    fs::write(place.at("docs/manifest.json"), r#"{"format":"npm"}"#).unwrap();
    let text = refused(place.compile("docs", &["--force"]));
    assert!(text.contains("docs/manifest.json` has format `npm`, expected `open-genie-bundle`"), "{text}");
    let text = refused(place.compile("model", &["--force"]));
    assert!(text.starts_with("error: `model` cannot be a bundle directory: the model lies in it"), "{text}");
    assert_eq!(place.names("."), ["docs", "model"]);
}

/// Section 3: the link became a folder, and the bundle that it led to stayed old.
#[test]
fn a_link_to_a_bundle_stays_and_the_bundle_is_replaced() {
    let place = Place::new();
    done(place.compile("store/v1", &[]));
    symlink("store/v1", place.at("current")).unwrap();
    refused(place.compile("current", &[]));
    done(place.compile("current", &["--force", "--splits", "mono"]));
    assert!(place.at("current").is_symlink() && !place.at("store/v1").is_symlink());
    let manifest = fs::read_to_string(place.at("store/v1/manifest.json")).unwrap();
    assert!(manifest.contains("\"mono\""), "the bundle itself is new: {manifest}");
    // A link to a folder yet to be made.
    symlink("store/v2", place.at("next")).unwrap();
    done(place.compile("next", &[]));
    assert_eq!(
        (place.names("."), place.names("store")),
        (["current", "model", "next", "store"].map(String::from).to_vec(), ["v1", "v2"].map(String::from).to_vec(),)
    );
    // A run that takes long enough keeps a stamp of the weights that it compared, in the cache folder.
    place.check_runs("store/v2");
}

#[test]
fn places_that_cannot_be_a_bundle_are_refused_by_name() {
    let place = Place::new();
    fs::write(place.at("file"), "x").unwrap();
    fs::create_dir(place.at("empty")).unwrap();
    symlink("nowhere/at/all", place.at("astray")).unwrap();
    symlink("circle", place.at("circle")).unwrap();
    assert!(Command::new("mkfifo").arg(place.at("pipe")).status().unwrap().success());
    let before = place.names(".");
    for (out, want) in [
        ("file", "`file` is a text file, expected a folder or nothing"),
        ("file/in/it", "is a text file, expected a folder or nothing"),
        ("pipe", "`pipe` is a named pipe (fifo), expected a folder or nothing"),
        ("/dev/null", "`/dev/null` is a device, expected a folder or nothing"),
        ("/", "`/` cannot become a new folder: it is the root folder"),
        (".", "`.` cannot become a new folder: it is the current folder"),
        ("..", "`..` cannot become a new folder: it is the current folder, or the current folder lies in it"),
        ("/proc", "`/proc` cannot become a new folder: a file system is mounted there"),
        ("/proc/bundle", "cannot make a folder in `/proc`"),
        ("astray", "in a folder that does not exist"),
        ("circle", "its symbolic links lead back to themselves"),
    ] {
        for flags in [&[][..], &["--force"]] {
            let text = refused(place.compile(out, flags));
            assert!(text.starts_with("error: ") && text.contains(want), "{out}: {text}");
            assert_eq!(place.names("."), before, "{out}");
        }
    }
    // These will do: an empty folder, one with missing parents, long and odd names.
    let long = "x".repeat(250);
    for out in ["empty", "a/b/c/", "with space\n", &long, "d/./e"] {
        done(place.compile(out, &[]));
        place.check_runs(out);
    }
    // Nothing is left of parents that were made for a compilation that failed.
    refused(place.run(&["compile", "no-model", "-o", "p/q/r"]));
    assert!(!place.at("p").exists());
}

/// Section 3: of three compiles to one folder at once all said that they had made it. Without `--force` one makes it.
#[test]
fn of_several_compiles_at_once_one_wins_and_with_force_the_last() {
    let place = Place::new();
    let start = |flags: &[&str]| -> Vec<Child> {
        let args = [&["compile", "model", "-o", "b", "--ar", "1,8", "--cl", "64"], flags].concat();
        (0..4).map(|_| place.genie(&args).spawn().unwrap()).collect()
    };
    let end = |children: Vec<Child>| -> Vec<Output> {
        children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
    };
    let outputs = end(start(&[]));
    let won = outputs.iter().filter(|output| output.status.success()).count();
    assert_eq!(won, 1, "{outputs:?}");
    for output in outputs.iter().filter(|output| !output.status.success()) {
        assert!(stderr(output).contains("`b` already holds a bundle"), "{}", stderr(output));
    }
    assert_eq!(
        (place.names("."), place.names("b")),
        (vec!["b".into(), "model".into()], BUNDLE.map(String::from).to_vec())
    );

    fs::write(place.at("b/notes.txt"), "mine").unwrap();
    for output in end(start(&["--force"])) {
        done(output);
    }
    assert_eq!(fs::read_to_string(place.at("b/notes.txt")).unwrap(), "mine");
    assert_eq!((place.names(".").len(), place.names("b").len()), (2, BUNDLE.len() + 1));
    done(place.run(&["doctor", "b"]));
    place.check_runs("b");
}

/// Row 3: one killed removal made every later `--force` fail. Row 17, D4: hidden folders stayed.
#[test]
fn leftovers_of_earlier_releases_and_of_the_dead_are_swept() {
    let place = Place::new();
    done(place.compile("b", &[]));
    done(place.compile(".b.replaced", &[]));
    fs::remove_file(place.at(".b.replaced/model.bin")).unwrap();
    fs::create_dir(place.at(".b.partial-2147483632")).unwrap();
    fs::write(place.at(".b.partial-2147483632/model.bin"), "half").unwrap();
    done(place.compile("b", &["--force"]));
    assert_eq!(place.names("."), ["b", "model"]);

    // The demo's cache: what first runs of earlier releases left.
    fs::create_dir_all(place.at("cache/.demo-0123456789abcdef.partial-2147483632")).unwrap();
    let model = place.at("cache/demo-model-AbCdEf");
    fs::create_dir(&model).unwrap();
    let days_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(2 * 24 * 3600);
    fs::File::open(&model).unwrap().set_modified(days_ago).unwrap();
    done(place.run(&["run", "-p", "A", "-n", "1", "--greedy"]));
    let names = place.names("cache");
    assert!(names.len() == 1 && names[0].starts_with("demo-"), "{names:?}");
}

/// Row 17: the demo's first compile. Ten at once leave one folder, and each of them runs.
#[test]
fn ten_first_runs_at_once_leave_one_folder() {
    let place = Place::new();
    let args = ["run", "-p", "ROMEO:", "-n", "3", "--greedy", "--threads", "1"];
    let children: Vec<_> = (0..10).map(|_| place.genie(&args).spawn().unwrap()).collect();
    let outputs: Vec<_> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    for output in &outputs {
        assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
        assert_eq!(output.stdout, outputs[0].stdout);
    }
    let names = place.names("cache");
    assert!(names.len() == 1 && names[0].starts_with("demo-"), "{names:?}");
}

/// The demo's folder counts when it is whole; one that is not is compiled again, unless it holds what is not the demo's.
#[test]
fn a_torn_demo_folder_is_compiled_again() {
    let place = Place::new();
    let args = ["run", "-p", "A", "-n", "1", "--greedy"];
    done(place.run(&args));
    let demo = place.at("cache").join(&place.names("cache")[0]);
    let whole = fs::read_dir(&demo).unwrap().count();
    let damage: [fn(&Path); 4] = [
        |demo| fs::remove_file(demo.join("model.bin")).unwrap(),
        |demo| fs::write(demo.join("model.bin"), "half").unwrap(),
        |demo| fs::remove_file(demo.join("manifest.json")).unwrap(),
        |demo| {
            fs::remove_dir_all(demo).unwrap();
            fs::create_dir(demo).unwrap();
        },
    ];
    for damage in damage {
        damage(&demo);
        let text = done(place.run(&args));
        assert!(text.contains("compiling the demo model"), "{text}");
        assert_eq!((fs::read_dir(&demo).unwrap().count(), place.names("cache").len()), (whole, 1));
    }
    fs::remove_file(demo.join("manifest.json")).unwrap();
    fs::write(demo.join("thesis.tex"), "irreplaceable").unwrap();
    let text = refused(place.run(&args));
    assert!(text.contains("holds files that are not the demo's") && text.contains("hint: set GENIE_CACHE"), "{text}");
    assert!(demo.join("thesis.tex").is_file());
}
