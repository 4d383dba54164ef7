//! Qualcomm's system library and the golden bundles: no finding in sound bundles, the right ones in broken bundles.

mod common;

use std::path::{Path, PathBuf};

use common::{Bundle, ids, readers};
use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family, HtpOptions, Silent, compile};
use doctor::{Environment, Request, collect, examine};
use qnn_api::Soc;
use qnn_api::library::runtime;
use serde_json::json;

/// Bundles made for libGenie: `GENIE_GOLDEN_DIR`, else beside the checkout.
fn golden() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden");
    let folder = std::env::var_os("GENIE_GOLDEN_DIR").map_or(beside, PathBuf::from);
    assert!(folder.is_dir(), "no golden bundles at `{}`: set GENIE_GOLDEN_DIR", folder.display());
    folder
}

/// This machine with nothing but the fetched runtime.
fn environment() -> Environment {
    let library = runtime::find(runtime::HTP).expect("run `cargo xtask qnn-runtime`, or set QNN_RUNTIME_DIR");
    Environment { runtime: library.parent().map(Path::to_owned), ..common::bare(Path::new("/")) }
}

fn copy(name: &str) -> Bundle {
    Bundle::copy_of(&golden().join(name)).with(|request, s| {
        *s = environment();
        request.soc = Soc::by_name("sm8650");
    })
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_golden_bundles_give_no_finding() {
    for name in ["fp16_ar1_32_cl128", "fp16_scatter", "fp16_split2", "w8a16"] {
        for soc in [None, Soc::by_name("sm8650")] {
            let request = Request { subject: Some(golden().join(name)), soc, ..Request::default() };
            let facts = collect(&request, &environment(), &readers()).unwrap();
            let (_, info) = facts.htp_binaries().next().expect("an HTP binary was read");
            assert_eq!((info.soc, info.dsp_arch), (Some(57), Some(75)), "{name}");
            assert_eq!(info.htp_graphs[0].map(|graph| graph.vtcm_bytes), Some(4 << 20), "{name}");
            assert_eq!(facts.genie_api.map(|api| api.to_string()).as_deref(), Some("1.21"));
            assert_eq!(examine(&facts), [], "{name}");
        }
    }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn htp_binaries_are_compared_with_devices() {
    for (soc, want) in [
        ("sm8650", &[][..]),
        ("sm8550", &["binary-arch"]),
        ("sm8750", &["binary-arch"]),
        ("x-elite", &["binary-arch"]),
        ("sm8250", &["dsp-too-old"]),
        ("qcm6490", &["binary-arch", "vtcm"]),
    ] {
        let bundle = copy("w8a16").with(|request, _| request.soc = Soc::by_name(soc));
        assert_eq!(ids(&bundle.examine()), want, "{soc}");
    }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn broken_golden_bundles_are_found() {
    type Broken = (&'static str, fn() -> Bundle, &'static [&'static str]);
    let cases: &[Broken] = &[
        ("no head", || copy("fp16_split2").set(BINS, json!(["decoder.bin"])), &["split-missing"]),
        (
            "the head of another bundle",
            || {
                copy("fp16_split2")
                    .edit("lmhead.bin", |b| *b = std::fs::read(golden().join("w8a16/model.bin")).unwrap())
            },
            &["kv-encoding", "position-encoding", "split-missing"],
        ),
        ("torn", || copy("w8a16").edit("model.bin", |b| b.truncate(5000)), &["binary-unreadable"]),
        ("half a file", || copy("w8a16").edit("model.bin", |b| b.truncate(b.len() / 2)), &["binary-unreadable"]),
        ("something else", || copy("w8a16").edit("model.bin", |b| b.fill(7)), &["binary-unreadable"]),
        ("rope-dim", || copy("w8a16").set(ROPE, json!(32)), &["rope-dim"]),
        ("context size", || copy("w8a16").set("/dialog/context/size", json!(256)), &["context-size"]),
        ("n-vocab", || copy("w8a16").set("/dialog/context/n-vocab", json!(1024)), &["n-vocab"]),
        ("kv-dim", || copy("w8a16").set(KV_DIM, json!(null)), &["kv-dim-missing"]),
        ("made by a later release", || copy("w8a16").edit("model.bin", |b| as_if_made_later(b)), &["library-older"]),
        ("sampler", || copy("w8a16").set("/dialog/sampler", json!(null)), &["sampler-missing"]),
    ];
    let mut wrong = Vec::new();
    for (name, make, want) in cases {
        let bundle = make();
        let found = bundle.examine();
        if ids(&found) != *want {
            wrong.push(format!("{name}: expected {want:?}, found {}", bundle.report()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The same binary with another build id.
fn as_if_made_later(bytes: &mut [u8]) {
    let places: Vec<usize> = bytes.windows(6).enumerate().filter(|(_, w)| *w == b"v2.51.").map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "the binary holds its build id");
    places.into_iter().for_each(|at| bytes[at..at + 6].copy_from_slice(b"v2.61."));
}

const BINS: &str = "/dialog/engine/model/binary/ctx-bins";
const ROPE: &str = "/dialog/engine/model/positional-encoding/rope-dim";
const KV_DIM: &str = "/dialog/engine/backend/QnnHtp/kv-dim";

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn a_bundle_compiled_for_a_soc_is_sound_on_that_soc_only() {
    let dir = tempfile::tempdir().unwrap();
    TestModel::tiny(Family::Llama).write(&dir.path().join("model")).unwrap();
    let htp = HtpOptions::for_target("sm8650").unwrap();
    let mut options = CompileOptions::new(dir.path().join("model"), dir.path().join("bundle"));
    (options.ars, options.cls, options.htp) = (vec![1, 8], vec![32], Some(htp));
    let library = runtime::find(runtime::HTP).expect("run `cargo xtask qnn-runtime`, or set QNN_RUNTIME_DIR");
    compile(&options, &htp.open(&library).unwrap(), &mut Silent).unwrap();
    for (soc, want) in [
        (None, &[][..]),
        (Some("sm8650"), &[]),
        (Some("sm8550"), &["binary-arch", "extension-device", "extension-device"]),
    ] {
        let subject = Some(dir.path().join("bundle"));
        let request = Request { subject, soc: soc.and_then(Soc::by_name), ..Request::default() };
        let found = examine(&collect(&request, &environment(), &readers()).unwrap());
        assert_eq!(ids(&found), want, "{soc:?}: {found:#?}");
    }
    // Without the libraries the manifest still names the SoC.
    let subject = Some(dir.path().join("bundle"));
    let request = Request { subject, soc: Soc::by_name("x-elite"), ..Request::default() };
    let found = examine(&collect(&request, &common::bare(Path::new("/")), &readers()).unwrap());
    assert_eq!(ids(&found)[..2], ["binary-arch", "extension-device"], "{found:#?}");
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_report_names_the_folder_of_each_library() {
    let facts = collect(&Request::default(), &environment(), &[]).unwrap();
    let report = doctor::Report::new(&facts, &examine(&facts)).to_string();
    let library = runtime::find(runtime::HTP).unwrap();
    let want = format!("  {} (runtime folder, QAIRT 2.", library.display());
    assert!(report.contains(&want), "{report}");
    for words in ["core API 2.", "HTP API 5.", "system API 1.", "libGenie.so (runtime folder, API 1."] {
        assert!(report.contains(words), "{words}: {report}");
    }
    assert!(report.ends_with("\nno problems found"), "{report}");
}
