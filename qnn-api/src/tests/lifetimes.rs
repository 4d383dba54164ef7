//! Who keeps whom alive, what is freed when, and what a library that refuses leaves behind.

use super::*;
use crate::fake::{self, backend, fail, library, take_calls};

/// The frees among the calls, in order, by name.
fn frees() -> Vec<String> {
    let is_free = |call: &String| call.contains("Free") || call.contains("DeRegister");
    let name = |call: String| call.split(' ').next().unwrap_or_default().to_owned();
    take_calls().into_iter().filter(is_free).map(name).collect()
}

#[test]
fn a_graph_keeps_everything_it_stands_on() {
    let graph = {
        let context = Context::from_bytes(&backend(), b"FAKE3", &ContextOptions::default()).unwrap();
        context.graph(GRAPH).unwrap()
    };
    assert_eq!(frees(), ["systemContextFree"], "context, backend and log are still there");
    assert_eq!(graph.info().inputs.len(), 2);
    drop(graph);
    assert_eq!(frees(), ["contextFree", "deviceFree", "backendFree", "logFree"]);
}

#[test]
fn the_soc_is_given_in_both_layouts_and_only_when_asked() {
    let _with = Backend::new(&library(), &BackendOptions { soc: Some(57), ..Default::default() }).unwrap();
    assert!(take_calls().contains(&"deviceCreate [0, 57, 57, 0]".to_owned()));
    let _without = Backend::new(&library(), &BackendOptions::default()).unwrap();
    assert!(take_calls().contains(&"deviceCreate default".to_owned()));
}

#[test]
fn a_library_without_log_or_device_will_do() {
    fail("logCreate", 1000);
    fail("deviceCreate", 1000);
    let backend = Backend::new(&library(), &BackendOptions::default()).unwrap();
    assert!(backend.device().is_none());
    assert_eq!(take_calls()[1], "backendCreate log 0");
}

#[test]
fn a_device_that_fails_takes_the_backend_down_in_order() {
    fail("deviceCreate", 14001);
    let error = Backend::new(&library(), &BackendOptions { soc: Some(1), ..Default::default() }).unwrap_err();
    assert_eq!(error.to_string(), "cannot open the device for SoC 1");
    assert_eq!(frees(), ["backendFree", "logFree"]);
}

#[test]
#[cfg_attr(miri, ignore = "maps a file")]
fn a_failing_load_names_file_number_name_meaning_and_the_librarys_message() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"FAKE3").unwrap();
    let backend = backend();
    fail("contextCreateFromBinary", 1009);
    let error = Context::from_file(&backend, file.path(), &ContextOptions::default()).unwrap_err();
    let path = file.path().display();
    assert_eq!(error.to_string(), format!("cannot load context binary `{path}` (made by build v3, SoC 57)"));
    let source = error.qnn().unwrap();
    assert_eq!((source.code, source.component()), (1009, "common"));
    assert_eq!(source.name(), "QNN_COMMON_ERROR_LOADING_BINARIES");
    assert_eq!(source.library_message.as_deref(), Some(fake::MESSAGE));
    assert!(source.to_string().contains("made for another SoC"), "{source}");
    assert!(error.hint().unwrap().to_string().contains("SoC"));
}

#[test]
fn an_empty_slot_and_a_refusal_both_count_as_unsupported() {
    let backend = backend();
    let error = Profile::new(&backend, ProfileLevel::Basic).unwrap_err();
    assert_eq!(error.to_string(), "library `linked in` does not offer `profileCreate`");
    assert!(error.is_unsupported());
    let error = PowerVote::cast(&backend, PerfPolicy::Burst).unwrap_err();
    assert!(error.is_unsupported(), "the stub returns 1000: {error:?}");
    assert!(!Error::NoProvider { library: "x".into() }.is_unsupported());
}

#[test]
#[cfg_attr(miri, ignore = "maps a file")]
fn a_mapped_file_is_called_persistent_where_that_is_understood() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"FAKE3").unwrap();
    let backend = backend();
    let load = || {
        let _context = Context::from_file(&backend, file.path(), &ContextOptions::default()).unwrap();
        take_calls().into_iter().find(|call| call.starts_with("contextCreateFromBinary")).unwrap()
    };
    assert!(load().ends_with("options []"));
    fake::with(|state| state.capabilities.push(208));
    assert!(load().ends_with("options [7]"));
    let _lent = Context::from_bytes(&backend, b"FAKE3", &ContextOptions::default()).unwrap();
    let lent = take_calls().into_iter().find(|call| call.starts_with("contextCreateFromBinary")).unwrap();
    assert!(lent.ends_with("options []"), "lent bytes are gone after the call: {lent}");
}

#[test]
fn binaries_are_described_in_all_three_versions() {
    let library = library();
    for (version, soc, soc_text) in [(1, None, "soc text"), (2, None, ""), (3, Some(57), "")] {
        let info = binary_info(&library, format!("FAKE{version}").as_bytes()).unwrap();
        assert_eq!((info.format, info.soc, info.soc_text.as_str()), (version, soc, soc_text));
        assert_eq!((info.build_id, info.core_version.to_string()), (format!("v{version}"), "2.40.0".into()));
        assert_eq!(info.graphs.len(), 1);
        assert_eq!(info.graphs[0].inputs, fake_inputs());
        assert_eq!(info.graphs[0].outputs[0].name, "logits");
        let note = HtpGraphBlob {
            vtcm_bytes: 8 << 20,
            spill_fill_bytes: 7,
            optimization: 3,
            hvx_threads: 4,
            const_bytes: None,
        };
        let noted = if version == 3 { (Some(75), Some(note)) } else { (None, None) };
        assert_eq!((info.dsp_arch, info.htp_graphs[0]), noted);
    }
}

#[test]
#[cfg_attr(miri, ignore = "opens a library")]
fn the_system_interface_alone_describes_binaries() {
    let system = SystemLibrary::linked(fake::providers()).unwrap();
    assert_eq!((system.version().to_string(), system.path()), ("1.15.0".into(), None));
    assert_eq!(system.binary_info(b"FAKE3").unwrap(), binary_info(&library(), b"FAKE3").unwrap());
    assert_eq!(system.binary_info(b"ELF").unwrap_err().qnn().unwrap().code, 30010);
    let dir = tempfile::tempdir().unwrap();
    for (content, want) in [(&b"FAKE2"[..], Ok(2)), (b"", Err(30010))] {
        let path = dir.path().join("model.bin");
        std::fs::write(&path, content).unwrap();
        let found = system.binary_info_of(&path);
        assert_eq!(found.map(|info| info.format).map_err(|error| error.qnn().unwrap().code), want);
    }
    let missing = SystemLibrary::open("/no/libQnnSystem.so").unwrap_err();
    assert!(missing.to_string().contains("/no/libQnnSystem.so"), "{missing}");
}

fn fake_inputs() -> Vec<TensorInfo> {
    use genie_types::Quant;
    let quant = Quant::PerTensor { scale: 0.5, offset: -128 };
    vec![
        TensorInfo::new("input_ids", [1, 4], Dtype::I32),
        TensorInfo::new("past_key_0_in", [2, 1, 8, 12], Dtype::UFixed8).with_quant(quant),
    ]
}

#[test]
fn what_is_no_binary_is_refused() {
    let library = library();
    for bytes in [&b"ELF"[..], b""] {
        let error = binary_info(&library, bytes).unwrap_err();
        assert!(error.to_string().starts_with("cannot read what a context binary"), "{error}");
        assert_eq!(error.qnn().unwrap().code, 30010);
    }
    let error = binary_info(&library, b"FAKE9").unwrap_err();
    assert!(error.to_string().ends_with("binary info version 9"), "{error}");
    assert!(take_calls().contains(&"systemContextFree".to_owned()));

    // SAFETY: as for `fake::providers`.
    let alone = Library::linked(unsafe { LinkedProviders::new(fake::get_providers, None) }).unwrap();
    let error = binary_info(&alone, b"FAKE3").unwrap_err();
    assert!(matches!(error, Error::NoSystem { .. }), "{error}");
    assert!(error.hint().unwrap().to_string().contains("libQnnSystem.so"));
}

#[test]
#[cfg_attr(miri, ignore = "writes files")]
fn saving_replaces_the_file_only_when_all_went_well() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.bin");
    std::fs::write(&path, "the old one").unwrap();
    let context = Context::create(&backend(), &ContextOptions::default()).unwrap();

    fail("contextGetBinary", 5003);
    let error = context.save(&path).unwrap_err();
    assert_eq!(error.to_string(), "cannot serialise the context");
    assert_eq!(std::fs::read(&path).unwrap(), b"the old one");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no leftovers");

    fake::with(|state| state.fail.clear());
    context.save(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"FAKE3 and some weights");
    assert_eq!(context.to_bytes().unwrap(), b"FAKE3 and some weights");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);

    let error = context.save(folder.path().join("nowhere/model.bin")).unwrap_err();
    assert!(error.to_string().contains("there is no folder `"), "{error}");
}

/// Within another library's call nothing is reported; before, between and after its calls a save ends.
#[test]
#[cfg_attr(miri, ignore = "writes files")]
fn saving_with_another_library_is_reported_around_its_calls() {
    use core::ops::ControlFlow;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.bin");
    let context = Context::create(&backend(), &ContextOptions::default()).unwrap();
    let save = |end: usize| {
        let mut reported = Vec::new();
        let saved = context.save_watched(&path, &mut |report| {
            reported.push((report.part, report.done_bytes));
            if reported.len() > end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        (saved, reported)
    };
    let written = b"FAKE3 and some weights".len() as u64;
    let all = [(SavePart::Write, 0), (SavePart::Write, written + 100), (SavePart::Flush, written)];
    for end in 0..all.len() {
        let (saved, reported) = save(end);
        assert!(matches!(saved, Err(Error::Stopped { .. })), "{saved:?}");
        assert_eq!(reported, all[..=end]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no leftovers");
    }
    let (saved, reported) = save(all.len());
    saved.unwrap();
    assert_eq!(reported, all);
}
