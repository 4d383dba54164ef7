//! What is refused before any device is asked.

use super::{config, error, hollow, text};

#[test]
fn a_bundle_that_cannot_run_is_reported() {
    struct Case {
        config: String,
        binaries: &'static [(&'static str, &'static [u8])],
        args: &'static [&'static str],
        expected: &'static str,
    }
    let case = |config: String, binaries, args, expected| Case { config, binaries, args, expected };
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
    for Case { config, binaries, args, expected } in cases {
        let folder = tempfile::tempdir().unwrap();
        let bundle = text(&hollow(folder.path(), &config, binaries));
        // No device has this serial: the bundle is checked first.
        let error = error(&[&["--to", "adb:nosuch:/nowhere", "--adb", "/no/adb", &bundle], args].concat());
        assert!(error.contains(expected), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let error = error(&["--to", "adb:nosuch:/nowhere", &text(folder.path())]);
    assert!(error.contains("is no bundle: it holds no `genie_config.json`"), "{error}");
}
