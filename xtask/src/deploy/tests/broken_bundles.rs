//! What is refused before any device is asked.

use super::{config, error, hollow, text};

#[test]
fn a_bundle_that_cannot_run_is_told() {
    struct Case {
        config: String,
        binaries: &'static [(&'static str, &'static [u8])],
        args: &'static [&'static str],
        says: &'static str,
    }
    let case = |config: String, binaries, args, says| Case { config, binaries, args, says };
    let cases = [
        case("{}".into(), &[], &[], "names no context binaries"),
        case("{".into(), &[], &[], "is no JSON"),
        case(config(&[]), &[], &[], "names no binaries"),
        case(config(&["a.bin"]), &[], &[], "a.bin`, which cannot be read"),
        case(config(&["../a.bin"]), &[], &[], "which lies outside of"),
        case(config(&["/tmp/a.bin"]), &[], &[], "hint: put it beside the config"),
        case(
            config(&["a.bin", "b.bin"]),
            &[("a.bin", b"\x89OGHOST\n"), ("b.bin", b"HTP")],
            &[],
            "mixes backends: `a.bin` is for Host, `b.bin` is not",
        ),
        case(
            config(&["a.bin"]),
            &[("a.bin", b"HTP")],
            &["--backend", "host"],
            "was compiled for backend Htp and cannot run on Host",
        ),
    ];
    for Case { config, binaries, args, says } in cases {
        let folder = tempfile::tempdir().unwrap();
        let bundle = text(&hollow(folder.path(), &config, binaries));
        // Nobody has this serial: the bundle is looked at first.
        let error = error(&[&["--to", "adb:nobody:/nowhere", "--adb", "/no/adb", &bundle], args].concat());
        assert!(error.contains(says), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let error = error(&["--to", "adb:nobody:/nowhere", &text(folder.path())]);
    assert!(error.contains("is no bundle: it holds no `genie_config.json`"), "{error}");
}
