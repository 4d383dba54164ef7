//! Configs of other versions of Genie's API: what is said of them, and how they are converted.

use super::*;
use crate::config::{ConvertError, GenieApi, convert, examine};

const HTP: &str = "/dialog/engine/backend/QnnHtp";
const POSITIONS: &str = "/dialog/engine/model/positional-encoding";

fn api(text: &str) -> GenieApi {
    GenieApi::parse(text).unwrap()
}

fn changes(document: &Value, to: &str) -> (Value, Vec<String>) {
    let done = convert(document, api(to)).unwrap_or_else(|e| panic!("{to}: {e}: {:?}", e.problems()));
    assert_eq!(rejected_by(&done.document, api(to)), [], "{to}");
    assert_eq!(validate(&done.document), [], "{to}");
    (done.document, done.changes.iter().map(|p| p.pointer.clone()).collect())
}

#[test]
fn positions_move_between_backend_and_model_and_back() {
    let newer = base();
    let (older, moved) = changes(&newer, "1.0");
    assert_eq!(moved, [format!("{POSITIONS}/rope-dim"), format!("{POSITIONS}/rope-theta")]);
    assert_eq!((older.pointer(POSITIONS), older.pointer(&format!("{HTP}/pos-id-dim"))), (None, Some(&json!(16))));
    let (again, moved) = changes(&older, "1.21");
    assert_eq!(moved, [format!("{HTP}/pos-id-dim"), format!("{HTP}/rope-theta")]);
    assert_eq!(again, newer);
    // Both say the same to the engine.
    let rope = |document: &Value| format!("{:?}", parse(document).unwrap().engine().rope(""));
    assert_eq!(rope(&older), rope(&newer));
    // Nothing to do is nothing done.
    assert_eq!(changes(&newer, "1.20"), (newer, vec![]));
}

#[test]
fn what_a_version_demands_is_added_and_what_it_lacks_is_moved_or_left_out() {
    let without = with(&[(POSITIONS, Value::Null)]);
    let (document, added) = changes(&without, "1.0");
    assert_eq!(
        (document.pointer(&format!("{HTP}/pos-id-dim")), added),
        (Some(&json!(16)), vec![format!("{HTP}/pos-id-dim")])
    );
    let tuned = with(&[
        ("/dialog/context/eos-token", json!([257, 258])),
        ("/dialog/max-num-tokens", json!(9)),
        (&format!("{HTP}/enable-graph-switching"), json!(true)),
        (&format!("{HTP}/graph-retention-order"), json!(["ar1"])),
        ("/dialog/engine/batching", json!({"max-slots": 4})),
        ("/dialog/harmony", json!({"chat-format": "none"})),
        ("/dialog/engine/model/binary/lora", json!({"version": 1, "adapters": []})),
    ]);
    let (document, done) = changes(&tuned, "1.0");
    assert_eq!(document["dialog"]["context"]["eot-token"], 258);
    for (at, there) in
        [("/dialog/max-num-tokens", false), ("/dialog/harmony", false), ("/dialog/engine/batching", false)]
    {
        assert_eq!(document.pointer(at).is_some(), there, "{at}");
        assert!(done.contains(&at.to_owned()), "{done:?}");
    }
    // One version on, the limit is known.
    let (document, done) = changes(&tuned, "1.1");
    assert_eq!(document["dialog"]["max-num-tokens"], 9);
    assert!(!done.contains(&"/dialog/max-num-tokens".to_owned()), "{done:?}");
    // The newest one has other names and no deprecated keys.
    let aged = with(&[(&format!("{HTP}/kv-update-method"), json!("SMART_MASK"))]);
    assert_eq!(changes(&aged, "1.21").1, [format!("{HTP}/kv-update-method")]);
}

#[test]
fn what_cannot_be_expressed_is_refused_by_name() {
    let llama3 = json!({"rope-type": "llama3", "factor": 8, "low-freq-factor": 1, "high-freq-factor": 4,
        "original-max-position-embeddings": 8192});
    let cases = [
        (
            with(&[(&format!("{POSITIONS}/rope-scaling"), llama3)]),
            vec![POSITIONS.to_owned(), format!("{HTP}/pos-id-dim")],
        ),
        (with(&[("/dialog/context/eos-token", json!([1, 2, 3]))]), vec!["/dialog/context/eos-token".into()]),
        (with(&[("/dialog/type", json!("lade"))]), vec!["/dialog/type".into()]),
        (with(&[(POSITIONS, Value::Null), (&format!("{HTP}/kv-dim"), Value::Null)]), vec![format!("{HTP}/pos-id-dim")]),
    ];
    for (document, want) in cases {
        let error = convert(&document, api("1.0")).unwrap_err();
        assert!(matches!(error, ConvertError::Inexpressible { .. }), "{error}");
        let at: Vec<String> = error.problems().iter().map(|p| p.pointer.clone()).collect();
        assert_eq!(at, want);
    }
    assert!(matches!(convert(&json!({"dialog": 1}), api("1.0")), Err(ConvertError::Invalid { .. })));
}

#[test]
fn an_examination_lists_every_kind_of_finding() {
    let said = |document: &Value, to: &str| examine(&document.to_string(), None, api(to)).unwrap();
    let fine = said(&base(), "1.21");
    assert!(fine.is_usable() && fine.warnings.is_empty(), "{fine:?}");
    assert_eq!(fine.oldest, Some(api("1.2")));
    let older = said(&base(), "1.1");
    assert_eq!((older.is_usable(), &older.rejected[0].pointer[..]), (false, POSITIONS));
    let gpu = said(&with(&[("/dialog/engine/backend", json!({"version": 1, "type": "QnnGpu"}))]), "1.21");
    assert_eq!((gpu.is_usable(), gpu.unsupported.len()), (false, 1));
    let several = said(&with(&[(&format!("{HTP}/batch-multiplier"), json!(3))]), "1.21");
    assert_eq!((several.is_usable(), several.warnings.len()), (true, 1));
    let wrong = said(&with(&[("/dialog/context/size", json!("x"))]), "1.21");
    assert_eq!((wrong.is_usable(), wrong.problems.len(), wrong.oldest), (false, 1, None));
    let polling = said(&with(&[(&format!("{HTP}/poll"), json!(true))]), "1.21");
    assert!(polling.is_usable() && polling.on_embedded.len() == 1);
    // Files are looked at below a folder only.
    let folder = tempfile::tempdir().unwrap();
    let found = examine(&base().to_string(), Some(folder.path()), api("1.21")).unwrap();
    assert_eq!((found.is_usable(), found.files.len()), (false, 2));
    assert!(examine("{", None, api("1.21")).is_err());
}
