//! Embedding queries with Qualcomm's library: rows of a recorded bundle's table give what its tokens give, and that is what
//! libGenie was recorded to say.

use open_genie::{Options, PolicyChoice, Prompt, Session};
use serde_json::{Value, json};

use crate::recordings;

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn rows_of_the_recorded_table_are_its_tokens() {
    let recorded: Value =
        serde_json::from_slice(&std::fs::read(recordings::folder().join("dialogs").join("eaglet.json")).unwrap())
            .unwrap();
    let case = &recorded["cases"][0];
    let mut dialog = case["config"]["dialog"].clone();
    let mut engine = dialog["engine"].as_array().unwrap().iter().find(|e| e["role"] == "target").unwrap().clone();
    engine.as_object_mut().unwrap().remove("role");
    dialog.as_object_mut().unwrap().remove("eaglet");
    (dialog["type"], dialog["engine"]) = (json!("basic"), engine);
    let here = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(recordings::folder().join("dialogs").join("models"), here.path().join("models"))
        .unwrap();
    let config = here.path().join("config.json");
    std::fs::write(&config, json!({"dialog": dialog}).to_string()).unwrap();
    let options = Options::new().policy(PolicyChoice::Genie);
    let prompt = case["steps"][0]["step"][1].as_str().unwrap();
    let mut by_text = Session::open(&config, &options).unwrap();
    let expected = by_text.generate(prompt).into_reply().unwrap();
    // Eaglet's limit counts an empty first text.
    let said: String = case["steps"][0]["text"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    assert!(!said.is_empty() && expected.text.starts_with(&said), "{:?} {said:?}", expected.text);
    let table = std::fs::read(recordings::folder().join("dialogs").join("models/eagle_target/emb.bin")).unwrap();
    let width = by_text.embedding_row_width().unwrap();
    let numbers: Vec<f32> = table.chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect();
    let rows: Vec<f32> =
        expected.input.iter().flat_map(|id| numbers[id.0 as usize * width..][..width].to_vec()).collect();
    let mut session = Session::open(&config, &options).unwrap();
    let reply = session.generate(Prompt::Embeddings(&rows)).into_reply().unwrap();
    assert_eq!((reply.tokens, reply.text), (expected.tokens, expected.text));
    assert_eq!(session.steps().to_string(), by_text.steps().to_string());
}
