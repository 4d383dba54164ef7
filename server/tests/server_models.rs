//! Several models: loaded when they are named, unloaded where another one needs the room, never while a request runs.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use open_genie::serving::ServeOptions;
use serde_json::{Value, json};
use server::{LoadLimits, ModelEntry, ModelSource, Models, OpenError, ServedModel, ServerOptions};

use crate::client::{Running, demo_model, read_until, start_models};

/// The demo model under several names; `broken` does not load. Keeps what was opened.
struct Names(Arc<Mutex<Vec<String>>>);

impl ModelSource for Names {
    fn list(&self) -> Result<Vec<ModelEntry>, OpenError> {
        let entry = |(name, bytes): (&str, u64)| ModelEntry { name: name.into(), bytes };
        Ok([("a", 10), ("b", 10), ("broken", 10), ("c", 10), ("huge", 99)].map(entry).into())
    }

    fn open(&self, name: &str) -> Result<ServedModel, OpenError> {
        self.0.lock().unwrap().push(name.into());
        if name == "broken" {
            return Err("its weights are damaged".into());
        }
        Ok(demo_model(ServeOptions::default(), None))
    }
}

fn start(options: ServerOptions, limits: LoadLimits) -> (Running, Arc<Mutex<Vec<String>>>) {
    let opened: Arc<Mutex<Vec<String>>> = Arc::default();
    let models = Models::on_demand(Names(Arc::clone(&opened)), limits);
    (start_models(options, models), opened)
}

fn ask(name: &str) -> Value {
    json!({"model": name, "messages": [{"role": "user", "content": "ROMEO:"}], "max_tokens": 4, "temperature": 0})
}

fn loaded(server: &Running) -> Vec<String> {
    let all = server.get("/v1/models").1["data"].as_array().unwrap().clone();
    let loaded = all.iter().filter(|model| model["status"]["value"] == "loaded");
    loaded.map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_model_is_loaded_when_it_is_named() {
    let (server, opened) = start(ServerOptions::default(), LoadLimits { bytes: Some(25), models: None });
    let list = server.get("/v1/models").1;
    assert_eq!((list["data"].as_array().unwrap().len(), loaded(&server).len()), (5, 0));
    assert_eq!(server.get("/v1/models/a").1["bytes"], 10);
    for name in ["a", "b", "a"] {
        assert_eq!(server.ok("/v1/chat/completions", &ask(name))["model"], name);
    }
    assert_eq!(loaded(&server), ["a", "b"]);
    // `b` was not asked for longest, and makes room.
    server.ok("/v1/chat/completions", &ask("c"));
    assert_eq!(loaded(&server), ["a", "c"]);
    assert_eq!(*opened.lock().unwrap(), ["a", "b", "c"]);
    // Without a name the last one answers, on every route.
    assert_eq!(server.ok("/completion", &json!({"prompt": "O", "n_predict": 1}))["model"], "c");
    assert_eq!(
        (&server.get("/props").1["model_alias"], &server.get("/props?model=a").1["model_alias"]),
        (&"c".into(), &"a".into())
    );
    let (_, metrics) = server.call("GET", "/metrics", &[], "");
    for line in ["genie_models_loaded 2\n", "genie_models_loaded_total 3\n", "genie_models_unloaded_total 1\n"] {
        assert!(metrics.contains(line), "{metrics}");
    }
    // The steps of the model that was unloaded still count: four replies of three steps at least.
    let steps = metrics.lines().find_map(|line| line.strip_prefix("genie_steps_total ")?.parse().ok()).unwrap_or(0);
    assert!(steps >= 12, "{metrics}");
}

#[test]
fn what_cannot_be_loaded_is_said() {
    let (server, _) = start(ServerOptions::default(), LoadLimits { bytes: Some(25), models: None });
    let of = |name: &str| {
        let (status, reply) = server.post("/v1/chat/completions", &ask(name));
        (status, reply["error"]["message"].as_str().unwrap_or_default().to_owned())
    };
    let (status, why) = of("nothing");
    assert!(status == 404 && why.contains("`nothing` does not exist") && why.contains("`a`, `b`"), "{why}");
    let (status, why) = of("broken");
    assert!(status == 503 && why == "`broken` cannot be loaded: its weights are damaged", "{why}");
    let (status, why) = of("huge");
    assert!(status == 503 && why.contains("takes 99 bytes") && why.contains("at most 25"), "{why}");
    assert_eq!(server.post("/v1/chat/completions", &json!({"model": 3, "messages": []})).0, 400);
    assert_eq!(server.get("/v1/models/none").0, 404);
    server.ok("/v1/chat/completions", &ask("a"));
}

/// Room for one: a reply in the making is finished before its model goes, and the other request waits for that.
#[test]
fn a_model_with_a_request_stays() {
    let (server, opened) = start(ServerOptions::default(), LoadLimits { bytes: None, models: Some(1) });
    for path in ["/v1/chat/completions", "/v1/messages", "/v1/responses"] {
        let mut long = ask("a");
        long["input"] = "ROMEO:".into();
        for (key, value) in [("max_tokens", json!(100)), ("ignore_eos", json!(true)), ("stream", json!(true))] {
            long[key] = value;
        }
        let mut first = server.raw(path, &long);
        read_until(&mut first, "data: ");
        assert_eq!(server.ok("/v1/chat/completions", &ask("b"))["model"], "b");
        let end = if path.ends_with("messages") {
            "message_stop"
        } else if path.ends_with("responses") {
            "response.incomplete"
        } else {
            "[DONE]"
        };
        let rest = read_until(&mut first, end);
        assert!(rest.contains(end) && !rest.contains("unavailable_error"), "{path}: {rest}");
    }
    assert_eq!(opened.lock().unwrap().join(""), "ababab");
}

#[test]
fn a_request_that_timed_out_lets_its_model_go() {
    let options = ServerOptions { reply_timeout: std::time::Duration::from_millis(1), ..Default::default() };
    let (server, _) = start(options, LoadLimits { bytes: None, models: Some(1) });
    // Any route of a model has it loaded.
    server.ok("/tokenize", &json!({"model": "a", "content": "x"}));
    let mut long = ask("a");
    (long["max_tokens"], long["ignore_eos"]) = (400.into(), true.into());
    let (status, reply) = server.post("/v1/chat/completions", &long);
    assert_eq!((status, &reply["error"]["type"]), (504, &"timeout_error".into()));
    // What timed out is cancelled and lets its model go.
    let mut status = 503;
    for _ in 0..400 {
        status = server.post("/tokenize", &json!({"model": "b", "content": "x"})).0;
        if status == 200 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(25));
    }
    panic!("{status}");
}

#[test]
fn slots_outlive_an_unloading() {
    let folder = tempfile::tempdir().unwrap();
    let options = ServerOptions { slot_folder: Some(folder.path().to_owned()), keep_slots: true, ..Default::default() };
    let (server, opened) = start(options, LoadLimits { bytes: None, models: Some(1) });
    let body = |name: &str| json!({"model": name, "prompt": "Now is the winter of our discontent", "n_predict": 4, "temperature": 0});
    let first = server.ok("/completion", &body("a"));
    assert_eq!(first["tokens_cached"], 0);
    assert_eq!(server.ok("/completion", &body("b"))["tokens_cached"], 0);
    let again = server.ok("/completion", &body("a"));
    assert_eq!((*opened.lock().unwrap()).join(""), "aba");
    assert_eq!(again["content"], first["content"]);
    assert!(again["tokens_cached"].as_u64().unwrap() > 4, "{again}");
}

/// As [`Names`]; `slow` is loaded once the test says so, or after [`LONGEST`].
struct Slow(Names, Mutex<mpsc::Receiver<()>>);

impl ModelSource for Slow {
    fn list(&self) -> Result<Vec<ModelEntry>, OpenError> {
        let slow = ModelEntry { name: "slow".into(), bytes: 10 };
        self.0.list().map(|all| all.into_iter().chain([slow]).collect())
    }

    fn open(&self, name: &str) -> Result<ServedModel, OpenError> {
        if name == "slow" {
            let _ = self.1.lock().unwrap().recv_timeout(LONGEST);
        }
        self.0.open(name)
    }
}

fn start_slow(options: ServerOptions) -> (Running, Arc<Mutex<Vec<String>>>, mpsc::Sender<()>) {
    let (opened, (go_on, waits)) = (Arc::<Mutex<Vec<String>>>::default(), mpsc::channel());
    let source = Slow(Names(Arc::clone(&opened)), Mutex::new(waits));
    (start_models(options, Models::on_demand(source, LoadLimits::default())), opened, go_on)
}

/// A test that fails ends, too.
const LONGEST: Duration = Duration::from_secs(10);

/// Time for a request to arrive, or for a client to be seen to have gone.
const ARRIVAL: Duration = Duration::from_millis(700);

/// Its time begins with the request, not once the models before it are loaded.
#[test]
fn who_waits_for_another_model_waits_as_long_as_for_a_reply() {
    let (server, _, go_on) = start_slow(ServerOptions { reply_timeout: ARRIVAL, ..Default::default() });
    let slow = server.raw("/tokenize", &json!({"model": "slow", "content": "x"}));
    std::thread::sleep(ARRIVAL);
    let (status, reply) = server.post("/tokenize", &json!({"model": "b", "content": "x"}));
    let why = reply["error"]["message"].as_str().unwrap_or_default();
    assert!(status == 503 && why == "`b` cannot be loaded yet: other models are being loaded", "{status} {reply}");
    go_on.send(()).unwrap();
    drop(slow);
}

/// What a client that has gone has begun to load is loaded; what it waited for is not.
#[test]
fn who_has_gone_waits_for_no_model() {
    let (server, opened, go_on) = start_slow(ServerOptions::default());
    let slow = server.raw("/tokenize", &json!({"model": "slow", "content": "x"}));
    std::thread::sleep(ARRIVAL);
    let waits = server.raw("/tokenize", &json!({"model": "b", "content": "x"}));
    std::thread::sleep(ARRIVAL);
    drop((slow, waits));
    std::thread::sleep(ARRIVAL);
    go_on.send(()).unwrap();
    server.ok("/tokenize", &json!({"model": "c", "content": "x"}));
    assert_eq!(*opened.lock().unwrap(), ["slow", "c"]);
    assert_eq!(loaded(&server), ["c", "slow"]);
}
