//! The tables against what clang makes of C headers, as `bindgen` wrote it: the generated header, and an SDK's own.

#![cfg_attr(not(feature = "bindgen"), allow(dead_code))] // used by ignored tests only

use std::collections::BTreeMap;

use crate::generated::layout::ROWS;
use crate::*;

#[cfg(feature = "bindgen")]
const HEADER: &str = include_str!(concat!(env!("OUT_DIR"), "/header.rs"));
#[cfg(not(feature = "bindgen"))]
const HEADER: &str = "";
#[cfg(qnn_sdk)]
const SDK: &str = include_str!(concat!(env!("OUT_DIR"), "/sdk.rs"));
#[cfg(not(qnn_sdk))]
const SDK: &str = "";

/// The kinds of numbers in `bindgen`'s own layout checks, by the words before the name.
const SIZE: &str = "Size of ";
const ALIGN: &str = "Alignment of ";
const OFFSET: &str = "Offset of field: ";

/// Every size, alignment and offset, by kind and name.
fn layouts(bindings: &str) -> BTreeMap<String, usize> {
    let flat = bindings.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = BTreeMap::new();
    for kind in [SIZE, ALIGN, OFFSET] {
        for part in flat.split(&format!("[\"{kind}")).skip(1) {
            let Some((name, rest)) = part.split_once('"') else { continue };
            let number = rest.split_once("- ").and_then(|(_, rest)| rest.split_once("usize"));
            found.insert(format!("{kind}{name}"), number.unwrap().0.parse().unwrap());
        }
    }
    found
}

/// Every number of our structs and unions under `bindgen`'s names.
fn ours() -> Vec<(String, usize)> {
    let mut numbers = Vec::new();
    for (name, size, align, fields) in ROWS {
        let name = name.replace("::anon0", "__bindgen_ty_1");
        numbers.push((format!("{SIZE}{name}"), *size));
        numbers.push((format!("{ALIGN}{name}"), *align));
        // Of anonymous members `bindgen` checks nothing: the header itself asserts their offsets.
        for (field, offset, _) in fields.iter().filter(|(field, ..)| !field.is_empty()) {
            let field = if *field == "type" { "type_" } else { field };
            numbers.push((format!("{OFFSET}{name}::{field}"), *offset));
        }
    }
    numbers
}

/// The numbers of macros and enums, from `pub const NAME: TYPE = NUMBER;` on either side.
fn constants(bindings: &str) -> BTreeMap<String, i64> {
    let flat = bindings.split_whitespace().collect::<Vec<_>>().join(" ");
    let constant = |part: &str| {
        let (name, rest) = part.split_once(": ").filter(|(name, _)| name.starts_with("QNN_"))?;
        let value = rest.split_once(" = ")?.1.split_once(';')?.0;
        Some((name.to_owned(), value.parse().ok()?))
    };
    flat.split("pub const ").filter_map(constant).collect()
}

#[test]
#[cfg_attr(not(feature = "bindgen"), ignore = "needs libclang: --features bindgen")]
fn clang_lays_the_generated_header_out_as_the_tables_say() {
    let header = layouts(HEADER);
    let mut faults = Vec::new();
    let mut compare = |key: String, ours: usize| match header.get(&key) {
        Some(&found) if found == ours => {}
        found => faults.push(format!("{key}: clang finds {found:?}, the table has {ours}")),
    };
    ours().into_iter().for_each(|(key, number)| compare(key, number));
    // Slots in their order, and where the table lies in what the entry points hand out.
    for (table, slots) in [
        ("QnnInterfaceTable", &QNN_INTERFACE_TABLE_SLOTS[..]),
        ("QnnSystemInterfaceTable", &QNN_SYSTEM_INTERFACE_TABLE_SLOTS[..]),
    ] {
        compare(format!("{SIZE}{table}"), slots.len() * size_of::<usize>());
        slots.iter().for_each(|(slot, offset, _)| compare(format!("{OFFSET}{table}::{slot}"), *offset));
    }
    compare(format!("{OFFSET}QnnInterface_t::table"), core::mem::offset_of!(QnnInterface_t, table));
    compare(format!("{OFFSET}QnnSystemInterface_t::table"), core::mem::offset_of!(QnnSystemInterface_t, table));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
#[cfg_attr(not(feature = "bindgen"), ignore = "needs libclang: --features bindgen")]
fn clang_reads_the_numbers_of_the_tables() {
    let (header, ours) = (constants(HEADER), constants(include_str!("../generated/constants.rs")));
    assert!(ours.len() > 1000, "the tables shrank to {} numbers", ours.len());
    let differs = |(name, value): &(&String, &i64)| header.get(*name) != Some(*value);
    assert_eq!(ours.iter().filter(differs).collect::<Vec<_>>(), [], "ours, other than in the header");
    assert_eq!(header.len(), ours.len(), "the header has numbers that the tables lack");
}

#[test]
#[cfg_attr(not(qnn_sdk), ignore = "needs an SDK: QNN_SDK_ROOT=... and --features bindgen")]
fn the_sdks_headers_agree_with_the_tables() {
    let sdk = layouts(SDK);
    // Alignments come with every size; an SDK of another release may lack a struct.
    let both: Vec<_> = ours().into_iter().filter_map(|(key, ours)| Some((*sdk.get(&key)?, key, ours))).collect();
    let faults: Vec<_> = both.iter().filter(|(sdk, _, ours)| sdk != ours).collect();
    assert!(faults.is_empty(), "(in the SDK, what, in the tables): {faults:#?}");
    assert!(both.len() > 300, "only {} layouts were found in the SDK", both.len());
}
