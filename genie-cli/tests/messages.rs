//! What `genie` says about wrong files, numbers and limits: the rows of a list of failures, each by its
//! exact text. R is a row's number there, D a defect of the users' list, S4 its table of misleading messages.

#![cfg(unix)]

use std::path::Path;
use std::process::{Command, Output};

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::Value;

use crate::program::under;

/// `genie` in that folder, without QNN libraries; killed after a minute, since some inputs once made it hang.
fn genie(folder: &Path, args: &[&str]) -> Output {
    under(&["timeout", "60"], folder, args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a failing command says: its error and hint, without the folder's path.
fn said(folder: &Path, args: &[&str]) -> String {
    let output = genie(folder, args);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(text(&output.stdout), "", "{args:?}");
    text(&output.stderr).replace(&format!("{}/", folder.display()), "")
}

/// A folder with a bundle `base` and files of many kinds.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    TestModel::tiny(Family::Llama).write(&at("model")).unwrap();
    let output = genie(folder.path(), &["compile", "model", "-o", "base", "--ar", "1,8", "--cl", "32", "-q"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    std::fs::write(at("x.gguf"), b"GGUF\x03\0\0\0").unwrap();
    std::fs::write(at("page.gguf"), "<!DOCTYPE html><html>404").unwrap();
    std::fs::write(at("pointer.bin"), "version https://git-lfs.github.com/spec/v1\noid sha256:00\n").unwrap();
    std::fs::write(at("zeros.bin"), [0; 64]).unwrap();
    std::fs::write(at("empty.bin"), "").unwrap();
    std::fs::create_dir(at("nothing")).unwrap();
    assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
    let bytes = std::fs::read(at("base/model.bin")).unwrap();
    std::fs::write(at("half.bin"), &bytes[..bytes.len() / 2]).unwrap();
    let mut damaged = bytes.clone();
    damaged[200] ^= 1;
    std::fs::write(at("damaged.bin"), &damaged).unwrap();
    let mut newer = bytes;
    newer[8..12].copy_from_slice(&99u32.to_le_bytes());
    std::fs::write(at("newer.bin"), &newer).unwrap();
    folder
}

/// `base` with one value of its config changed, as `NAME/genie_config.json`.
fn changed(folder: &Path, name: &str, pointer: &str, value: Value) -> String {
    let config = std::fs::read(folder.join("base/genie_config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    *config.pointer_mut(pointer).unwrap() = value;
    let path = format!("base/{name}.json");
    std::fs::write(folder.join(&path), config.to_string()).unwrap();
    path
}

const WANTED: &str = "expected a bundle's folder or its `genie_config.json`";
const GIVE: &str = "give a bundle's folder or its `genie_config.json`; `genie compile` makes a bundle";

/// R20, and the fifo of section 3: each command names what is at the path, and none of them hangs.
#[test]
fn a_path_that_is_no_bundle_is_named_by_its_kind() {
    let folder = folder();
    let found = |path: &str| match path {
        "x.gguf" => "a GGUF file",
        "base/model.bin" => "a context binary of the host backend",
        "fifo" => "a named pipe (fifo)",
        "/dev/null" => "a device",
        "nothing" => "an empty folder",
        "model" => "a model's folder",
        "base/tokenizer.json" => "a `tokenizer.json`",
        other => panic!("{other}"),
    };
    let gguf = "`genie run x.gguf` compiles and runs it; `genie compile x.gguf -o BUNDLE` makes a bundle of it";
    let model = "`genie run model` compiles and runs it; `genie compile model -o BUNDLE` makes a bundle of it";
    for (args, path, hint) in [
        (&["run", "-p", "x", "-c"][..], "x.gguf", gguf),
        (&["run", "-p", "x", "-c"], "base/model.bin", "give the bundle's folder: `base`"),
        (&["run", "-p", "x", "-c"], "fifo", GIVE),
        (&["plan", "5", "-c"], "model", model),
        (&["bench", "-c"], "base/tokenizer.json", GIVE),
        (&["perplexity", "/dev/null", "-c"], "x.gguf", gguf),
    ] {
        let want = format!("error: `{path}` is {}, {WANTED}\n\nhint: {hint}\n", found(path));
        assert_eq!(said(folder.path(), &[args, &[path]].concat()), want, "{args:?}");
    }
    // Where a word is taken, more may be at the path.
    for (args, path) in [
        (&["inspect"][..], "fifo"),
        (&["inspect"], "/dev/null"),
        (&["verify"], "fifo"),
        (&["verify"], "nothing"),
        (&["run", "-p", "x", "-m"], "base/model.bin"),
        (&["chat"], "base/tokenizer.json"),
    ] {
        let want = format!(
            "error: `{path}` is {}, expected a bundle, a GGUF file or a Hugging Face folder\n\nhint: give a ",
            found(path)
        );
        let said = said(folder.path(), &[args, &[path]].concat());
        assert!(said.starts_with(&want), "{args:?}: {said}");
    }
    let torn = said(folder.path(), &["inspect", "x.gguf"]);
    assert!(torn.contains("error: `x.gguf` is damaged"), "{torn}");
    let missing = said(folder.path(), &["run", "-p", "x", "-c", "none"]);
    assert_eq!(missing, format!("error: `none` does not exist\n\nhint: {GIVE}\n"));
}

/// R20: what `compile` is given.
#[test]
fn a_path_that_is_no_model_is_named_by_its_kind() {
    let folder = folder();
    for (path, want) in [
        ("/no/such/model", "`/no/such/model` does not exist"),
        ("fifo", "a named pipe (fifo)"),
        ("base", "a bundle's folder"),
        ("base/model.bin", "a context binary of the host backend"),
        ("page.gguf", "a web page (the error page of a download?)"),
        ("model/model.safetensors", "a safetensors file"),
    ] {
        let said = said(folder.path(), &["compile", path, "-o", "out"]);
        assert!(said.starts_with(&format!("error: `{path}`")) && said.contains(want), "{said}");
    }
}

/// D7 and S4: a damaged binary is called damaged, a newer one newer, and neither is blamed on `--backend`.
#[test]
fn a_binary_that_cannot_be_read_says_why() {
    let folder = folder();
    for (file, want) in [
        ("half.bin", "context binary is torn: expected at least"),
        ("half.bin", "\nhint: the file is damaged: copy it again, or compile it again\n"),
        ("damaged.bin", "context binary is damaged: checksum of"),
        ("damaged.bin", "\nhint: the file is damaged: copy it again, or compile it again\n"),
        ("newer.bin", "error: `newer.bin` has format version 99, this program reads up to"),
        ("newer.bin", "\nhint: the file was made by a newer `genie`: update this one\n"),
        (
            "zeros.bin",
            "error: `zeros.bin` is a file of no known kind (it begins with 00 00 00 00 00 00 00 00), expected a",
        ),
        ("zeros.bin", "\nhint: the file is damaged: copy it again, or compile it again\n"),
    ] {
        let said = said(folder.path(), &["inspect", file]);
        assert!(said.contains(want) && !said.contains("--backend"), "{file}: {said}");
        if file != "zeros.bin" {
            std::fs::copy(folder.path().join(file), folder.path().join("base/other.bin")).unwrap();
            let bins = serde_json::json!(["other.bin"]);
            let config = changed(folder.path(), "other", "/dialog/engine/model/binary/ctx-bins", bins);
            let said = self::said(folder.path(), &["run", "-p", "x", "-c", &config]);
            assert!(
                said.contains(want.trim_start_matches("error: `newer.bin`")) && !said.contains("--backend"),
                "{said}"
            );
        }
    }
}

/// D7: an explicit backend that contradicts the binaries is named; without one it follows from them.
#[test]
fn a_backend_that_contradicts_the_binaries_is_named() {
    let folder = folder();
    let want = "error: `base/model.bin` is a context binary of the host backend, but backend `htp` was chosen\n\nhint: omit \
                `--backend`: it follows from the binaries\n";
    for args in [&["inspect", "base/model.bin"][..], &["run", "-c", "base", "-p", "x"], &["plan", "5", "-c", "base"]] {
        assert_eq!(said(folder.path(), &[args, &["--backend", "htp"]].concat()), want);
    }
    std::fs::write(folder.path().join("htp.bin"), [0, 0, 0, 2, 0, 0, 0, 3, 0, 0]).unwrap();
    let said = self::said(folder.path(), &["inspect", "htp.bin"]);
    assert!(said.starts_with("error: cannot load backend `htp`\n"), "chosen by the file: {said}");
    let said = self::said(folder.path(), &["inspect", "htp.bin", "--backend", "host"]);
    assert!(said.contains("is a context binary of Qualcomm's HTP backend, but backend `host` was chosen"), "{said}");
}

/// S4: tokens beyond the vocabulary are named by their key; a device as `ctx-bins` is no directory.
#[test]
fn values_of_the_config_are_named_by_their_key() {
    let folder = folder();
    let context = "/dialog/context";
    for (key, want) in
        [("eos-token", "`eos-token` of the config is 5000"), ("bos-token", "`bos-token` of the config is 5000")]
    {
        let config = changed(folder.path(), "tokens", &format!("{context}/{key}"), 5000.into());
        let said = said(folder.path(), &["run", "-p", "x", "-c", &config]);
        assert!(said.contains(want) && said.contains("but the model's vocabulary has "), "{said}");
    }
    let bins = "/dialog/engine/model/binary/ctx-bins";
    for (path, want) in [
        ("/dev/null", "expected a file, found a device at `/dev/null`"),
        ("../fifo", "expected a file, found a named pipe (fifo) at"),
        ("../x.gguf", "expected a context binary, found a GGUF file at"),
    ] {
        let config = changed(folder.path(), "bins", bins, serde_json::json!([path]));
        let said = said(folder.path(), &["run", "-p", "x", "-c", &config]);
        assert!(said.contains(&format!("{bins}/0: {want}")), "{said}");
    }
}

/// S4: numbers of flags.
#[test]
fn numbers_out_of_range_name_the_flag_and_the_range() {
    let folder = tempfile::tempdir().unwrap();
    for (args, want) in [
        (
            &["run", "-p", "x", "--threads", "100000"][..],
            "error: invalid value '100000' for '--threads <N>': expected a number from 1 to 1024\n",
        ),
        (
            &["compile", "m", "-o", "b", "--ar", "0"],
            "error: invalid value '0' for '--ar <N,N>': expected at least 1 token per step\n",
        ),
        (
            &["compile", "m", "-o", "b", "--cl", "0"],
            "error: invalid value '0' for '--cl <N,N>': expected a context length of at least 1 token\n",
        ),
        (
            &["plan", "5", "--ar", "0"],
            "error: invalid value '0' for '--ar <N,N>': expected at least 1 token per step\n",
        ),
    ] {
        let output = genie(folder.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).starts_with(want), "{}", text(&output.stderr));
    }
}

/// S4: a limit of the system is named, not the hardware's ops or a skel library.
#[test]
fn limits_of_the_system_are_named() {
    let folder = folder();
    let root = text(&Command::new("id").arg("-u").output().unwrap().stdout).trim() == "0";
    if root {
        // The limit does not hold for root: the run is another user's, who must be able to read the bundle.
        let open = |path: &Path| Command::new("chmod").arg("-R").arg("a+rX").arg(path).status().unwrap();
        assert!(open(folder.path()).success());
        let before = ["setpriv", "--reuid=54321", "--clear-groups", "prlimit", "--nproc=1"];
        let output =
            under(&before, folder.path(), &["run", "-p", "x", "-c", "base", "--threads", "2"]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot start a thread: ") && !said.contains("skel"), "{said}");
        assert!(
            said.contains("hint: the system starts no more threads: raise the limit (`ulimit -u`), or use"),
            "{said}"
        );
    } else {
        eprintln!("skipped: only root can run as another user");
    }
    // Where the limit bites depends on the build: some of these leave enough for the program, too little for a run.
    let mut named = 0;
    for megabytes in (20..60).step_by(1) {
        let limit = format!("--as={}", megabytes << 20);
        let args = ["run", "-p", "x", "-c", "base", "--threads", "1", "-n", "1"];
        let said = text(&under(&["prlimit", &limit], folder.path(), &args).output().unwrap().stderr);
        assert!(!said.contains("an op that the hardware cannot do"), "{said}");
        named += usize::from(said.contains("the system gives none"));
    }
    eprintln!("{named} limits gave an error of missing memory");
}

/// R15 and section 3: the doctor calls a wrong file unreadable, an incomplete manifest incomplete, and good `no problems`.
#[test]
fn the_doctor_names_wrong_files() {
    let folder = folder();
    for (path, want) in [
        ("half.bin", "error[binary-unreadable] half.bin: "),
        ("damaged.bin", "error[binary-unreadable] damaged.bin: "),
        ("zeros.bin", "error[binary-unreadable] zeros.bin: is a file of no known kind"),
        ("/etc/passwd", "error[binary-unreadable] passwd: is a text file, no context binary\n"),
        ("/bin/sh", "error[binary-unreadable] sh: is a library or program (ELF)"),
        ("x.gguf", "error[binary-unreadable] x.gguf: is a GGUF file, no context binary\n"),
        ("pointer.bin", "error[binary-unreadable] pointer.bin: is a Git LFS pointer"),
        ("fifo", "error[file-unusable] fifo: "),
        ("empty.bin", "error[file-unusable] empty.bin: "),
        ("model", ": a model's folder, without `genie_config.json`\n"),
    ] {
        let output = genie(folder.path(), &["doctor", path]);
        assert_eq!(output.status.code(), Some(1), "{path}: {}", text(&output.stdout));
        assert!(text(&output.stdout).contains(want), "{path}: {}", text(&output.stdout));
    }
    let gguf = text(&genie(folder.path(), &["doctor", "x.gguf"]).stdout);
    assert!(gguf.contains("x.gguf -o BUNDLE` makes a bundle of it, `genie doctor BUNDLE` examines that\n"), "{gguf}");

    let manifest = folder.path().join("base/manifest.json");
    let whole: Value = serde_json::from_slice(&std::fs::read(&manifest).unwrap()).unwrap();
    let without = |key: &str, value: Value| {
        let mut changed = whole.clone();
        changed[key] = value;
        changed.to_string()
    };
    for (content, want) in [
        ("{\"format\":\"x\"}".to_owned(), "warning[manifest-syntax]"),
        (without("version", 99.into()), "warning[manifest-syntax] manifest.json: "),
        (without("files", serde_json::json!([])), "warning[manifest-incomplete] model.bin: is not among the 0 files"),
    ] {
        std::fs::write(&manifest, content).unwrap();
        let report = text(&genie(folder.path(), &["doctor", "base"]).stdout);
        assert!(report.contains(want), "{report}");
    }
    std::fs::write(&manifest, whole.to_string()).unwrap();
    let good = genie(folder.path(), &["doctor", "base"]);
    assert!(text(&good.stdout).ends_with("\nno problems found\n"), "{}", text(&good.stdout));

    // Section 2 of the users' list: missing files share their reason, so they are one finding.
    std::fs::remove_file(folder.path().join("base/model.bin")).unwrap();
    std::fs::remove_file(folder.path().join("base/tokenizer.json")).unwrap();
    let report = text(&genie(folder.path(), &["doctor", "base", "--skip-hashes"]).stdout);
    assert_eq!(report.matches("error[file-missing]").count(), 1, "{report}");
    assert!(report.contains("2 files do not exist\n       /dialog/"), "{report}");
}

/// Section 3: escape codes in names and flags are written out.
#[test]
fn escape_codes_are_never_printed_raw() {
    let folder = folder();
    let evil = "\x1b[31m\x1b]0;title\x07evil";
    for args in [
        &["run", "-p", "x", "-c", evil][..],
        &["run", "-p", "x", "--policy", evil],
        &["run", "-p", "x", "--kv-mode", evil, "-c", "base"],
        &["compile", evil, "-o", "out"],
        &["inspect", evil],
        &["doctor", evil],
        &[evil],
    ] {
        let output = genie(folder.path(), args);
        let all = text(&output.stderr) + &text(&output.stdout);
        assert!(all.contains("evil") && !all.contains('\x1b') && !all.contains('\x07'), "{args:?}: {all:?}");
    }
    let config = std::fs::read_to_string(folder.path().join("model/config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    (config["architectures"], config["model_type"]) = (serde_json::json!([evil]), evil.into());
    std::fs::write(folder.path().join("model/config.json"), config.to_string()).unwrap();
    let said = said(folder.path(), &["compile", "model", "-o", "out"]);
    assert!(said.contains("\\u{1b}[31m") && !said.contains('\x1b'), "{said:?}");
}
