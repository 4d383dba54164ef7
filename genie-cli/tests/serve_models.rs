//! `genie serve --models FOLDER`: what lies in the folder is found, loaded when a request names it, and unloaded for another.

#![cfg(all(unix, feature = "server"))]

use std::path::Path;

use serde_json::{Value, json};

use crate::program::with_users_cache;
use crate::served::{Server, serve};

/// The server of a folder of models.
struct Models(Server);

impl Models {
    fn start(folder: &Path, flags: &[&str]) -> Self {
        Self(Server::start(serve().args(["--no-access-log", "--models"]).arg(folder).args(flags)))
    }

    fn chat(&self, model: &str) -> (u16, Value) {
        let messages = [json!({"role": "user", "content": "ROMEO:"})];
        let body = json!({"model": model, "messages": messages, "max_tokens": 3, "temperature": 0});
        let (status, text) = self.0.ask("POST", "/v1/chat/completions", &body);
        (status, serde_json::from_str(&text).unwrap())
    }

    fn loaded(&self) -> Vec<String> {
        let list = self.0.json("GET", "/v1/models", &Value::Null);
        let loaded = list["data"].as_array().unwrap().iter().filter(|model| model["status"]["value"] == "loaded");
        loaded.map(|model| model["id"].as_str().unwrap().to_owned()).collect()
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in from.read_dir().unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn models_of_a_folder_are_loaded_when_they_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let demo = open_genie::demo::bundle().unwrap();
    copy(&demo, &folder.path().join("one"));
    copy(&demo, &folder.path().join("two"));
    std::fs::write(folder.path().join("notes.txt"), "no model").unwrap();
    std::fs::write(folder.path().join("notes.json"), "{}").unwrap();
    let server = Models::start(folder.path(), &["--models-max", "1"]);
    assert!(server.loaded().is_empty());
    for name in ["one", "two", "one"] {
        let (status, reply) = server.chat(name);
        assert_eq!((status, &reply["model"]), (200, &name.into()), "{reply}");
        assert_eq!(server.loaded(), [name]);
    }
    let (status, reply) = server.chat("three");
    assert!(
        status == 404 && reply["error"]["message"].as_str().unwrap().ends_with("this server has `one`, `two`"),
        "{reply}"
    );
    // One that comes while the server runs is found, and one that is broken is said so.
    copy(&demo, &folder.path().join("three"));
    assert_eq!(server.chat("three").0, 200);
    std::fs::write(folder.path().join("two/tokenizer.json"), "{").unwrap();
    let (status, reply) = server.chat("two");
    assert!(status == 503 && reply["error"]["message"].as_str().unwrap().contains("`two` cannot be loaded"), "{reply}");
    assert_eq!(server.chat("one").0, 200);
}

#[test]
fn a_limit_of_memory_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    copy(&open_genie::demo::bundle().unwrap(), &folder.path().join("one"));
    let server = Models::start(folder.path(), &["--models-memory", "0"]);
    let (status, reply) = server.chat("one");
    assert!(
        status == 503 && reply["error"]["message"].as_str().unwrap().contains("more than all models may"),
        "{reply}"
    );
}

#[test]
fn a_folder_without_models_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = with_users_cache(&["serve", "--models"]).arg(folder.path()).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && text.contains("no model in"), "{text}");
    let output = with_users_cache(&["serve", "demo", "--models"]).arg(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "a model and a folder of models");
}
