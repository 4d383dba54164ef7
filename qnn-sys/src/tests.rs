//! The tables against the measured ABI: every struct, field, slot and error number of `abi/qnn-abi.json`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::generated::layout::ROWS;
use crate::*;

fn abi() -> Value {
    serde_json::from_str(include_str!("../abi/qnn-abi.json")).expect("the committed table is JSON")
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
        let base = if name.contains("::") { members.iter().map(|m| m["offset"].as_u64().unwrap()).min().unwrap() } else { 0 };
        for (member, (field, offset)) in members.iter().zip(*fields) {
            assert_eq!(member["name"], *field, "`{name}`");
            assert_eq!(member["offset"].as_u64().unwrap() - base, *offset as u64, "offset of `{name}.{field}`");
            n_fields += 1;
        }
    }
    assert!(n_fields > 500, "the table shrank to {n_fields} fields");
}

#[test]
fn every_slot_is_where_the_measured_table_has_it() {
    let abi = abi();
    for (key, slots) in
        [("QnnInterface", &QNN_INTERFACE_TABLE_SLOTS[..]), ("QnnSystemInterface", &QNN_SYSTEM_INTERFACE_TABLE_SLOTS[..])]
    {
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
    let answer = unsafe { table.graphFinalize.unwrap()(core::ptr::null_mut(), core::ptr::null_mut(), core::ptr::null_mut()) };
    assert_eq!(answer, stub::NOT_SUPPORTED);
    // SAFETY: as above.
    let answer = unsafe { stub::system_interface().systemContextCreate.unwrap()(core::ptr::null_mut()) };
    assert_eq!(answer, stub::NOT_SUPPORTED);
}

#[test]
fn errors_have_names_and_components() {
    assert_eq!(error::name(1000), "QNN_COMMON_ERROR_NOT_SUPPORTED");
    assert_eq!(error::name(5005), "QNN_CONTEXT_ERROR_CREATE_FROM_BINARY");
    assert_eq!(error::name(u64::MAX), "unknown error");
    assert_eq!(error::component(6004), "graph");
    assert!(error::meaning(1009).unwrap().contains("SoC"));
    for (name, value) in abi()["errors"].as_object().unwrap() {
        let value = value.as_u64().unwrap();
        assert!(generated::errors::ERRORS.contains(&(value, name.as_str())), "{name}");
    }
}

#[test]
fn one_soc_config_serves_both_layouts() {
    let config = htp::SocConfig::new(57);
    // SAFETY: sixteen plain bytes without padding.
    let words: [u32; 4] = unsafe { core::mem::transmute(config) };
    assert_eq!(words, [0, 57, 57, 0]);
}
