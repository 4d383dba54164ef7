//! `priority`: which of the requests that wait starts first, on each route that runs the model.

use std::sync::Mutex;
use std::time::Duration;

use open_genie::serving::ServeOptions;
use serde_json::{Value, json};
use server::ServerOptions;

use crate::client::{Running, plain, read_until, slow_model, start_models};

const ROUTES: [&str; 5] = ["/v1/chat/completions", "/v1/completions", "/completion", "/v1/messages", "/v1/responses"];

/// A request that every route takes.
fn body(priority: impl Into<Value>) -> Value {
    json!({
        "messages": [{"role": "user", "content": "O"}], "input": "O", "prompt": "O", "max_tokens": 4, "n_predict": 4,
        "priority": priority.into(),
    })
}

fn until_waiting(server: &Running, n: usize) {
    let mut metrics = String::new();
    for _ in 0..400 {
        metrics = server.call("GET", "/metrics", &[], "").1;
        if metrics.contains(&format!("genie_requests_deferred {n}\n")) {
            return;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    panic!("{metrics}");
}

/// One slot is taken; a request of low priority waits first, then one of high priority on each route: the low one is the last.
#[test]
fn a_higher_priority_starts_first() {
    let serve = ServeOptions { max_slots: 1, ageing: Duration::from_secs(600), ..Default::default() };
    // The reply that holds the slot takes half a minute, unless its client goes.
    let server = start_models(ServerOptions::default(), slow_model(serve, Duration::from_millis(75)));
    let long = json!({"prompt": "ROMEO:", "max_tokens": 400, "ignore_eos": true, "stream": true});
    let mut first = server.raw("/v1/completions", &long);
    read_until(&mut first, "data: ");
    let ended = Mutex::new(Vec::new());
    let ask = |route: &'static str, priority: i32| {
        server.ok(route, &body(priority));
        ended.lock().unwrap().push(priority);
    };
    std::thread::scope(|scope| {
        let ask = &ask;
        scope.spawn(move || ask("/v1/completions", -5));
        until_waiting(&server, 1);
        for (n, route) in ROUTES.into_iter().enumerate() {
            scope.spawn(move || ask(route, 50));
            until_waiting(&server, n + 2);
        }
        drop(first);
    });
    assert_eq!(*ended.lock().unwrap(), [50, 50, 50, 50, 50, -5]);
}

#[test]
fn a_priority_is_an_integer_within_bounds() {
    let server = plain();
    for route in ROUTES {
        for (value, found) in [(json!(101), "101"), (json!(-101), "-101"), (json!(0.5), "0.5"), (json!("1"), "a text")]
        {
            let (status, reply) = server.post(route, &body(value));
            let message = reply["error"]["message"].as_str().unwrap_or_default();
            let expected = format!("`priority`: expected an integer from -100 to 100, found {found}");
            assert_eq!((status, message), (400, expected.as_str()), "{route}");
        }
        server.ok(route, &body(Value::Null));
    }
    let schema = server.get("/openapi.json").1["components"]["schemas"]["ChatRequest"].to_string();
    assert!(schema.contains(r#""maximum":100"#) && schema.contains(r#""minimum":-100"#), "{schema}");
}
