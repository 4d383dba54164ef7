//! What the documents say of the server, against the server: routes of `/openapi.json`, names of `/metrics`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::client::plain;

fn document(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn every_route_of_the_openapi_document_is_there() {
    let server = plain();
    let (status, api) = server.get("/openapi.json");
    assert_eq!((status, &api["openapi"]), (200, &"3.1.0".into()));
    let paths = api["paths"].as_object().unwrap();
    assert!(paths.len() > 15, "{}", paths.len());
    let schemas = api["components"]["schemas"].as_object().unwrap();
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            // Some streams have no end.
            if operation.pointer("/responses/200/content/text~1event-stream").is_some() && method == "get" {
                continue;
            }
            // An empty body is refused in the documented way; only a route that is not there is 404 or 405.
            let (status, _) = server.call(&method.to_uppercase(), &path.replace("{id}", "0"), &[], "{}");
            let documented = operation["responses"].as_object().unwrap();
            assert!(documented.contains_key(&status.to_string()), "{method} {path}: {status}");
            assert_ne!(status, 405, "{method} {path}");
        }
    }
    let text = api.to_string();
    let references = text.split("#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next());
    for name in references {
        assert!(schemas.contains_key(name), "{name}");
    }
    // Keys of sampling come from the type that reads them.
    assert!(text.contains("\"dry_multiplier\"") && text.contains("\"max_completion_tokens\""));
}

#[test]
fn the_table_of_metrics_has_every_name() {
    let (_, text) = plain().call("GET", "/metrics", &[], "");
    let given: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let page = document("metrics.md");
    let table = page.lines().filter_map(|line| line.strip_prefix("| `genie_")?.split('|').next());
    let known: BTreeSet<String> = table
        .flat_map(|cell| {
            format!("genie_{cell}")
                .split([',', '`', ' '])
                .filter(|word| word.starts_with("genie_"))
                .map(|word| word.split('{').next().unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        })
        .collect();
    let known: BTreeSet<&str> = known.iter().map(String::as_str).collect();
    assert_eq!(given, known);
}

#[test]
fn the_document_of_errors_has_their_types() {
    let page = document("server.md");
    for kind in
        ["invalid_request_error", "exceed_context_size_error", "rate_limit_error", "unavailable_error", "timeout_error"]
    {
        assert!(page.contains(kind), "{kind}");
    }
    let unknown = plain().get("/v1/models/none").1;
    assert!(page.contains(unknown["error"]["type"].as_str().unwrap_or("missing")));
    assert_ne!(unknown, Value::Null);
}
