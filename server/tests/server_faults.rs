//! A model's thread that panics: its requests say so, and so does `/health`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use open_genie::serving::ServeOptions;
use serde_json::{Value, json};
use server::{LoadLimits, ModelEntry, ModelSource, Models, OpenError, ServedModel, ServerOptions};

use crate::client::{demo_model, faulty_model, start_models};

const ROUTES: [&str; 5] = ["/v1/chat/completions", "/v1/completions", "/completion", "/v1/messages", "/v1/responses"];

/// A request that every route takes.
fn body(stream: bool) -> Value {
    json!({
        "messages": [{"role": "user", "content": "O"}], "input": "O", "prompt": "O", "max_tokens": 20, "n_predict": 20,
        "ignore_eos": true, "stream": stream,
    })
}

fn said(reply: &Value) -> &str {
    reply.pointer("/error/message").or_else(|| reply.get("message")).and_then(Value::as_str).unwrap_or_default()
}

#[test]
fn a_reply_that_is_cut_off_is_an_error() {
    for route in ROUTES {
        let server = start_models(ServerOptions::default(), faulty_model(3));
        assert_eq!(server.get("/health").0, 200);
        let (status, reply) = server.post(route, &body(false));
        assert!(status == 500 && said(&reply).starts_with("the reply was cut off"), "{route}: {status} {reply}");
        let (_, metrics) = server.call("GET", "/metrics", &[], "");
        assert!(metrics.contains("genie_requests_failed_total 1\n"), "{metrics}");
    }
}

#[test]
fn a_stream_that_is_cut_off_ends_with_an_error() {
    for route in ROUTES {
        let server = start_models(ServerOptions::default(), faulty_model(3));
        let events = server.events(route, &body(true));
        let last = events.last().unwrap();
        assert!(said(last).starts_with("the reply was cut off"), "{route}: {last}");
        assert!(!events.contains(&"[DONE]".into()), "{route}");
    }
}

#[test]
fn a_server_whose_model_is_gone_says_so() {
    let server = start_models(ServerOptions::default(), faulty_model(1));
    assert_eq!(server.post("/completion", &body(false)).0, 500);
    // The thread's channels close a little before the thread is over.
    let mut health = server.get("/health");
    for _ in 0..400 {
        if health.0 != 200 {
            break;
        }
        std::thread::sleep(Duration::from_millis(25));
        health = server.get("/health");
    }
    assert_eq!((health.0, &health.1["error"]["type"]), (503, &"unavailable_error".into()));
    for route in ROUTES {
        let (status, reply) = server.post(route, &body(false));
        assert!(status == 503 && said(&reply).contains("the model's thread has ended"), "{route}: {status} {reply}");
    }
    for (status, reply) in [server.get("/slots"), server.post("/slots/0?action=erase", &json!({}))] {
        assert!(status == 503 && said(&reply).contains("the model's thread has ended"), "{status} {reply}");
    }
}

/// The first load gives a model with a fault.
struct FaultyOnce(AtomicBool);

impl ModelSource for FaultyOnce {
    fn list(&self) -> Result<Vec<ModelEntry>, OpenError> {
        Ok(vec![ModelEntry { name: "a".into(), bytes: 1 }])
    }

    fn open(&self, _: &str) -> Result<ServedModel, OpenError> {
        let is_first = !self.0.swap(true, Ordering::Relaxed);
        Ok(if is_first { faulty_model(2) } else { demo_model(ServeOptions::default(), None) })
    }
}

#[test]
fn one_of_several_models_is_loaded_again() {
    let models = Models::on_demand(FaultyOnce(AtomicBool::new(false)), LoadLimits::default());
    let server = start_models(ServerOptions::default(), models);
    assert_eq!(server.post("/completion", &body(false)).0, 500);
    for _ in 0..400 {
        if server.post("/completion", &body(false)).0 == 200 {
            return;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    panic!("{:?}", server.post("/completion", &body(false)));
}
