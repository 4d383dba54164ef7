//! The files that a config names.

use super::*;

#[test]
fn missing_files_are_named_with_the_path_that_was_tried() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("genie_config.json");
    assert!(matches!(GenieConfig::from_file(&path).unwrap_err(), ConfigError::Read { .. }));
    let document = with(&[("/dialog/engine/model/binary/ctx-bins", json!(["model.bin", "/no/such.bin"]))]);
    std::fs::write(&path, document.to_string()).unwrap();
    std::fs::create_dir(dir.path().join("model.bin")).unwrap();
    let err = GenieConfig::from_file(&path).unwrap_err();
    let base = dir.path().display();
    assert_eq!(
        err.to_string(),
        format!(
            "`{}` names files that cannot be used: 3 problems\n  \
             /dialog/tokenizer/path: file not found: `{base}/tokenizer.json` \
             (relative paths start at the config's folder)\n  \
             /dialog/engine/model/binary/ctx-bins/0: expected a file, found an empty folder at `{base}/model.bin`\n  \
             /dialog/engine/model/binary/ctx-bins/1: file not found: `/no/such.bin`",
            path.display()
        )
    );
    std::fs::write(dir.path().join("tokenizer.json"), "{}").unwrap();
    std::fs::write(dir.path().join("m.bin"), [1, 2, 0xff]).unwrap();
    std::fs::write(&path, with(&[("/dialog/engine/model/binary/ctx-bins", json!(["m.bin"]))]).to_string()).unwrap();
    assert_eq!(GenieConfig::from_file(&path).unwrap().base(), dir.path());
}

/// Section 4 of the list of failures: `/dev/null` as `ctx-bins` was called a directory.
#[test]
fn files_of_another_kind_are_known_by_kind() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("tokenizer.json"), "{}").unwrap();
    std::fs::write(at("x.gguf"), b"GGUF\x03\0\0\0").unwrap();
    std::fs::write(at("page.html"), "<!doctype html>").unwrap();
    std::fs::write(at("pointer.bin"), "version https://git-lfs.github.com/spec/v1\n").unwrap();
    std::fs::write(at("empty.bin"), "").unwrap();
    let reported = |changes: &[(&str, serde_json::Value)]| {
        std::fs::write(at("genie_config.json"), with(changes).to_string()).unwrap();
        let error = GenieConfig::from_file(at("genie_config.json")).unwrap_err();
        let [problem] = error.problems() else { panic!("{error}") };
        problem.to_string().replace(&format!("{}/", dir.path().display()), "")
    };
    const BINS: &str = "/dialog/engine/model/binary/ctx-bins";
    for (name, want) in [
        ("/dev/null", "expected a file, found a device at `/dev/null`"),
        ("x.gguf", "expected a context binary, found a GGUF file at `x.gguf`"),
        ("empty.bin", "expected a context binary, found an empty file at `empty.bin`"),
        ("tokenizer.json", "expected a context binary, found a JSON file at `tokenizer.json`"),
        ("page.html", "expected a context binary, found a web page (the error page of a download?) at `page.html`"),
        (
            "pointer.bin",
            "expected a context binary, found a Git LFS pointer (the file itself was not downloaded) at `pointer.bin`",
        ),
    ] {
        assert_eq!(reported(&[(BINS, json!([name]))]), format!("{BINS}/0: {want}"));
    }
    #[cfg(unix)]
    {
        assert!(std::process::Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
        let want = format!("{BINS}/0: expected a file, found a named pipe (fifo) at `fifo`");
        assert_eq!(reported(&[(BINS, json!(["fifo"]))]), want);
    }
    std::fs::write(at("m.bin"), b"\x89OGHOST\n").unwrap();
    let bins = || (BINS, json!(["m.bin"]));
    assert_eq!(
        reported(&[bins(), ("/dialog/tokenizer/path", json!("x.gguf"))]),
        "/dialog/tokenizer/path: expected a `tokenizer.json`, found a GGUF file at `x.gguf`"
    );
}
