//! No document and no text makes the checks panic.

use proptest::prelude::*;

use super::*;

/// JSON of any shape, with keys that often are Genie's.
fn any_json() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![
        "version",
        "type",
        "context",
        "engine",
        "backend",
        "QnnHtp",
        "model",
        "binary",
        "ctx-bins",
        "sampler",
        "lora",
        "adapters",
        "longcontext",
        "cache-groups",
        "positional-encoding",
        "rope-scaling",
        "eos-token",
        "spd",
        "x",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec!["basic", "spd", "QnnHtp", "QnnGpu", "binary", "rope", "llama3", ""])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6).prop_map(|kvs| Value::from(
                kvs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<serde_json::Map<_, _>>()
            )),
        ]
    })
}

/// Pointers of all values in a document.
fn places(v: &Value, at: String, out: &mut Vec<String>) {
    match v {
        Value::Object(o) => o.iter().for_each(|(k, v)| places(v, schema::join(&at, k), out)),
        Value::Array(a) => a.iter().enumerate().for_each(|(i, v)| places(v, format!("{at}/{i}"), out)),
        _ => {}
    }
    out.push(at);
}

proptest! {
    #[test]
    fn no_document_makes_it_panic(inner in any_json(), junk in any_json(), pick: prop::sample::Index) {
        let _ = parse(&json!({"dialog": inner}));
        // One value of the good config replaced by anything.
        let mut document = base();
        let mut all = Vec::new();
        places(&document, String::new(), &mut all);
        *document.pointer_mut(&all[pick.index(all.len())]).unwrap() = junk;
        let _ = parse(&document);
    }

    #[test]
    fn no_text_makes_it_panic(cut: prop::sample::Index, flip: prop::sample::Index, bit in 0u8..8) {
        let mut bytes = base().to_string().into_bytes();
        let at = flip.index(bytes.len());
        bytes[at] ^= 1 << bit;
        bytes.truncate(cut.index(bytes.len() + 1));
        let _ = GenieConfig::from_json(&String::from_utf8_lossy(&bytes), "/");
    }
}
