//! The tables against the measured ABI: every struct, field, slot and error number of `abi/qnn-abi.json`.

mod headers;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::generated::layout::ROWS;
use crate::*;

fn abi() -> Value {
    serde_json::from_str(include_str!("../../abi/qnn-abi.json")).expect("the committed table is JSON")
}

#[test]
fn every_layout_is_the_measured_one() {
    let abi = abi();
    let structs = abi["structs"].as_object().unwrap();
    let ours: BTreeMap<_, _> = ROWS.iter().map(|row| (row.0, row)).collect();
    let mut n_fields = 0;
    for (name, item) in structs {
        if name.starts_with("QnnInterface_") || name.starts_with("QnnSystemInterface_") {
            continue; // the tables have a test of their own
        }
        let (_, size, align, fields) = ours.get(name.as_str()).unwrap_or_else(|| panic!("`{name}` is not generated"));
        assert_eq!(*size as u64, item["size"], "size of `{name}`");
        assert_eq!(*align as u64, item["align"], "alignment of `{name}`");
        let members = item["fields"].as_array().or_else(|| item["members"].as_array()).unwrap();
        assert_eq!(members.len(), fields.len(), "fields of `{name}`");
        for (member, (field, offset, size)) in members.iter().zip(*fields) {
            assert_eq!(member["name"], *field, "`{name}`");
            assert_eq!(member["offset"], *offset as u64, "offset of `{name}.{field}`");
            assert_eq!(member["size"], *size as u64, "size of `{name}.{field}`");
            n_fields += 1;
        }
    }
    assert!(n_fields > 500, "the table shrank to {n_fields} fields");
}

#[test]
fn every_slot_is_where_the_measured_table_has_it() {
    let abi = abi();
    for (key, slots) in [
        ("QnnInterface", &QNN_INTERFACE_TABLE_SLOTS[..]),
        ("QnnSystemInterface", &QNN_SYSTEM_INTERFACE_TABLE_SLOTS[..]),
    ] {
        let entries = abi["vtables"][key]["entries"].as_array().unwrap();
        assert_eq!(entries.len(), slots.len());
        for (entry, (name, offset, _)) in entries.iter().zip(slots) {
            assert_eq!(entry["offset"], *offset as u64, "{key}.{name}");
            let measured = entry["name"].as_str().unwrap();
            assert!(measured.starts_with(name) || measured.starts_with("unknown"), "{key}: {measured} against {name}");
        }
    }
}

#[test]
fn slots_of_core_2_18_are_the_first_62() {
    let older = QNN_INTERFACE_TABLE_SLOTS.iter().filter(|slot| provider::core_minor_of(slot.2) <= 18).count();
    assert_eq!(older, 62);
}

#[test]
fn the_stub_refuses_in_every_slot() {
    let table = stub::interface();
    // SAFETY: the stub looks at none of its arguments.
    let code =
        unsafe { table.graphFinalize.unwrap()(core::ptr::null_mut(), core::ptr::null_mut(), core::ptr::null_mut()) };
    assert_eq!(code, stub::NOT_SUPPORTED);
    // SAFETY: as above.
    let code = unsafe { stub::system_interface().systemContextCreate.unwrap()(core::ptr::null_mut()) };
    assert_eq!(code, stub::NOT_SUPPORTED);
}

#[test]
fn errors_have_names_and_components() {
    assert_eq!(error::name(1000), "QNN_COMMON_ERROR_NOT_SUPPORTED");
    assert_eq!(error::name(5005), "QNN_CONTEXT_ERROR_CREATE_FROM_BINARY");
    assert_eq!(error::name(u64::MAX), "unknown error");
    let named = [
        (0, "QNN_SUCCESS"),
        (1002, "QNN_COMMON_ERROR_MEM_ALLOC"),
        (2000, "QNN_PROPERTY_ERROR_UNKNOWN_KEY"),
        (6004, "QNN_GRAPH_ERROR_INVALID_TENSOR"),
        (12000, "QNN_PROFILE_ERROR_INVALID_HANDLE"),
        (30000, "QNN_SYSTEM_CONTEXT_ERROR_INVALID_HANDLE"),
    ];
    for (code, expected) in named {
        assert_eq!(error::name(code), expected);
    }
    // The bounds of every range name their component.
    for (bound, component) in [
        ("PROPERTY", "property"),
        ("OP_PACKAGE", "op package"),
        ("BACKEND", "backend"),
        ("CONTEXT", "context"),
        ("GRAPH", "graph"),
        ("TENSOR", "tensor"),
        ("MEM", "memory"),
        ("SIGNAL", "signal"),
        ("ERROR", "error"),
        ("LOG", "log"),
        ("PROFILE", "profile"),
        ("PERF_INFRASTRUCTURE", "performance infrastructure"),
        ("DEVICE", "device"),
        ("GLOBAL_CONFIG", "global config"),
        ("SYSTEM", "system"),
        ("INTERFACE", "interface"),
    ] {
        for end in ["MIN", "MAX"] {
            let code = abi()["errors"][format!("QNN_{end}_ERROR_{bound}")].as_u64().unwrap();
            assert_eq!(error::component(code), component, "{end} of {bound}");
        }
    }
    assert!(error::meaning(1009).unwrap().contains("SoC"));
    // The numbers that users meet.
    let met =
        [1000, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011, 1100, 5000, 5001, 5002, 5003, 5004, 5005];
    let met =
        [&met[..], &[5008, 5010, 5012, 5013, 6000, 6001, 6002, 6003, 6004, 6025, 6031, 6033, 6035, 8003]].concat();
    for code in [&met[..], &[14000, 14001, 14002, 14003, 30000, 30001, 30002, 30010]].concat() {
        assert!(error::meaning(code).is_some() && error::name(code) != error::UNKNOWN, "{code}");
    }
    for (name, value) in abi()["errors"].as_object().unwrap() {
        let value = value.as_u64().unwrap();
        assert!(generated::errors::ERRORS.contains(&(value, name.as_str())), "{name}");
    }
}

#[test]
fn one_soc_config_serves_both_layouts() {
    let config = htp::SocConfig::new(57);
    // SAFETY: sixteen plain bytes without padding.
    let fields: [u32; 4] = unsafe { core::mem::transmute(config) };
    assert_eq!(fields, [0, 57, 57, 0]);
}
