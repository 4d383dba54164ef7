//! `genie serve` on fused graphs: the replies are those of `genie run`, slots are kept in files, and what such a bundle lacks is said by name.

#![cfg(all(unix, feature = "server"))]

use std::path::Path;

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::{Value, json};

use crate::program::genie;
use crate::served::{Server, leaves_all_idle, recorded, serve};

/// What a chat becomes, for the server as for `genie run`.
const TEMPLATE: &str = "{%- for m in messages -%}{{ m.role }}: {{ m.content }}\n{% endfor -%}bot:";

/// Tokens of a reply.
const REPLY: usize = 12;

fn printed(folder: &Path, args: &[&str]) -> String {
    let output = genie(folder, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A folder with the bundle `bundle`, compiled with these flags, and a template.
fn compiled(flags: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    TestModel::tiny(Family::Llama).write(&path.join("model")).unwrap();
    let common = ["compile", "model", "-o", "bundle", "--ar", "1,8", "--cl", "128", "--precision", "f32", "-q"];
    printed(path, &[&common[..], &["--pd-total-lens", "4,8"], flags].concat());
    std::fs::write(path.join("chat.jinja"), TEMPLATE).unwrap();
    std::fs::create_dir(path.join("slots")).unwrap();
    folder
}

fn set_engine_key(folder: &Path, key: &str, value: Value) {
    let path = folder.join("bundle/genie_config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["dialog"]["engine"][key] = value;
    std::fs::write(&path, config.to_string()).unwrap();
}

/// What `genie run` has for a message.
fn run(folder: &Path, message: &str) -> String {
    let n = REPLY.to_string();
    let args = ["run", "-c", "bundle", "--chat-template", "chat.jinja", "-p", message, "-n", &n, "--greedy", "--json"];
    let record: Value = serde_json::from_str(&printed(folder, &args)).unwrap();
    let text = record["text"].as_str().unwrap().to_owned();
    assert!(!text.is_empty(), "{record}");
    text
}

/// The server of a folder's bundle; the rest of what tests ask of it is below.
struct Bundle(Server);

impl Bundle {
    fn start(folder: &Path, flags: &[&str]) -> Self {
        let args =
            ["--chat-template", "chat.jinja", "--slots", "2", "--slot-save-path", "slots", "--record", "steps.jsonl"];
        let mut command = serve();
        command.arg("bundle").args(args).args(flags);
        Self(Server::start(command.current_dir(folder).env("GENIE_CACHE", folder.join("cache"))))
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.0.post(path, body)
    }

    fn get(&self, path: &str) -> Value {
        self.0.json("GET", path, &Value::Null)
    }

    /// The message of a refusal.
    fn refused(&self, path: &str, body: &Value, expected: u16) -> String {
        let (status, text) = self.0.ask("POST", path, body);
        assert_eq!(status, expected, "{path}: {text}");
        let error: Value = serde_json::from_str(&text).unwrap();
        error["error"]["message"].as_str().unwrap().to_owned()
    }

    fn chat(&self, message: &str) -> Value {
        self.post("/v1/chat/completions", &chat(message, false))
    }

    /// The pieces of a streamed reply, put together.
    fn streamed(&self, message: &str) -> String {
        let (status, text) = self.0.ask("POST", "/v1/chat/completions", &chat(message, true));
        assert!(status == 200 && text.contains("data: [DONE]"), "{text}");
        let chunks = text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
        chunks.filter_map(|chunk| Some(chunk["choices"][0]["delta"]["content"].as_str()?.to_owned())).collect()
    }
}

fn chat(message: &str, stream: bool) -> Value {
    let messages = [json!({"role": "user", "content": message})];
    json!({"messages": messages, "max_tokens": REPLY, "temperature": 0, "stream": stream})
}

fn content(reply: &Value) -> &str {
    reply["choices"][0]["message"]["content"].as_str().unwrap()
}

/// Tokens of the prompt whose rows were there.
fn cached(reply: &Value) -> u64 {
    reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0)
}

fn steps(folder: &Path) -> Vec<Value> {
    recorded(&folder.join("steps.jsonl"), leaves_all_idle)
}

fn graphs(steps: &[Value]) -> impl Iterator<Item = &str> {
    steps.iter().flat_map(|step| step["graphs"].as_array().unwrap()).map(|graph| graph.as_str().unwrap())
}

#[test]
fn clients_on_fused_graphs_alone_get_what_run_prints() {
    let folder = compiled(&["--pd-only"]);
    let folder = folder.path();
    // Requests that come within this time start together, so that one's prompt runs beside the other's reply.
    set_engine_key(folder, "batching", json!({"coalesce-window-us": 300_000}));
    let messages = ["a first one", "another, which is a bit longer", "and what the third client says"];
    let expected = messages.map(|message| run(folder, message));
    let server = Bundle::start(folder, &[]);
    let (streamed, whole, third) = std::thread::scope(|scope| {
        let streamed = scope.spawn(|| server.streamed(messages[0]));
        let third = scope.spawn(|| {
            let prompt = format!("user: {}\nbot:", messages[2]);
            server.post("/completion", &json!({"prompt": prompt, "n_predict": REPLY, "temperature": 0}))
        });
        let whole = server.chat(messages[1]);
        (streamed.join().unwrap(), whole, third.join().unwrap())
    });
    assert_eq!([streamed.as_str(), content(&whole), third["content"].as_str().unwrap()], expected);

    let all = steps(folder);
    assert!(graphs(&all).all(|graph| graph.starts_with("model.0.")), "{all:?}");
    assert!(all.iter().any(|step| step["rows"].as_array().unwrap().len() == 2), "no step had two requests: {all:?}");
    assert!(all.iter().all(|step| step["slots"].as_array().unwrap().len() <= 16), "{all:?}");
    assert_eq!(server.get("/props")["total_slots"], 2);
    assert_eq!(server.get("/engine/state")["widths"][2]["width"], 8);
}

#[test]
fn slots_of_fused_graphs_are_saved_and_restored() {
    let folder = compiled(&["--pd-only"]);
    let folder = folder.path();
    let file = json!({"filename": "one"});
    let first = {
        let server = Bundle::start(folder, &["--keep-slots"]);
        let first = server.chat("what is kept");
        let saved = server.post("/slots/0?action=save", &file);
        assert!(saved["n_saved"].as_u64().unwrap() > REPLY as u64, "{saved}");
        assert_eq!(server.post("/slots/0?action=erase", &json!({}))["n_erased"], saved["n_saved"]);
        first
    };
    let server = Bundle::start(folder, &[]);
    server.post("/slots/0?action=restore", &file);
    let again = server.chat("what is kept");
    assert_eq!(content(&again), content(&first));
    let n_prompt = again["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!((cached(&first), cached(&again)), (0, n_prompt - 1));

    // Nearly the whole context, restored into memory that a wider graph, whose past is shorter, used last.
    let long = json!({"prompt": vec![7; 126], "n_predict": 1});
    let saved = {
        (0..2).for_each(|slot| drop(server.post(&format!("/slots/{slot}?action=erase"), &json!({}))));
        server.post("/completion", &long);
        let slots = server.get("/slots");
        assert_eq!(slots[0]["n_past"], 126, "{slots}");
        server.post(&format!("/slots/{}?action=save", slots[0]["id"]), &file)
    };
    (0..2).for_each(|slot| drop(server.post(&format!("/slots/{slot}?action=erase"), &json!({}))));
    server.post("/completion", &json!({"prompt": vec![9; 8], "n_predict": 1}));
    (0..2).for_each(|slot| drop(server.post(&format!("/slots/{slot}?action=erase"), &json!({}))));
    assert_eq!(server.post("/slots/1?action=restore", &file)["n_restored"], saved["n_saved"]);

    std::fs::write(folder.join("slots/other"), b"no snapshot").unwrap();
    let said = server.refused("/slots/1?action=restore", &json!({"filename": "other"}), 400);
    assert!(said.contains("not a cache snapshot"), "{said}");
}

#[test]
fn requests_that_fused_graphs_cannot_serve_are_refused_by_name() {
    let folder = compiled(&["--pd-only"]);
    let folder = folder.path();
    let server = Bundle::start(folder, &[]);
    let said = server.refused("/v1/embeddings", &json!({"input": "a"}), 501);
    assert!(said.contains("`bundle` gives no embeddings: its graphs give logits only"), "{said}");
    let said = server.refused("/completion", &json!({"prompt": "a", "lora": [{"id": 0, "scale": 1.0}]}), 400);
    assert!(said.contains("`lora` is not supported"), "{said}");
    // Every row is kept: a context of 128 holds 127.
    let said = server.refused("/completion", &json!({"prompt": vec![5; 128], "n_predict": 1}), 400);
    assert!(said.contains("128 tokens") && said.contains("127"), "{said}");
    assert!(!content(&server.chat("it goes on")).is_empty());

    // What the program is asked for at its start.
    for (flags, what) in [
        (&["--prefix-cache", "prefixes"][..], "fused graphs have no form with a cache of prompt prefixes"),
        (&["--spec", "lookup"], "fused graphs have no form with drafts"),
    ] {
        let output = genie(folder, &[&["serve", "bundle", "--port", "0"], flags].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(what) && said.contains("hint:"), "{said}");
    }
}

/// A slot that one form of graphs has saved goes on with the other.
#[test]
fn the_config_chooses_the_graphs_that_serve() {
    let folder = compiled(&[]);
    let folder = folder.path();
    let served = |enable: Option<bool>, saved_before: Option<&str>, saves: &str| {
        if let Some(enable) = enable {
            set_engine_key(folder, "pd_fusion", json!({"enable": enable}));
        }
        let server = Bundle::start(folder, &[]);
        if let Some(filename) = saved_before {
            server.post("/slots/1?action=restore", &json!({"filename": filename}));
        }
        let reply = server.chat("whichever graphs run");
        let cached = cached(&reply);
        assert_eq!(cached > 0, saved_before.is_some(), "{reply}");
        let slots = server.get("/slots");
        server.post(&format!("/slots/{}?action=save", slots[0]["id"]), &json!({"filename": saves}));
        let all = steps(folder);
        drop(server);
        let n_fused = graphs(&all).filter(|graph| graph.starts_with("model.0.")).count();
        assert!(!all.is_empty() && (n_fused == 0 || n_fused == graphs(&all).count()), "{all:?}");
        (n_fused > 0, content(&reply).to_owned())
    };
    let absent = served(None, None, "of-plain");
    assert!(!absent.0);
    assert_eq!(served(Some(true), Some("of-plain"), "of-fused"), (true, absent.1.clone()));
    assert_eq!(served(Some(false), Some("of-fused"), "last"), absent);
}
