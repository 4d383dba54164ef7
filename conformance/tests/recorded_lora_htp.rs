//! What libGenie 1.21 was recorded doing with LoRA adapters whose strengths are inputs of the graphs: `dialogs/lora.json` of the
//! recordings, on Qualcomm's library under policy `genie`. An executor keeps what each graph was fed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use conformance::golden;
use dialog::sampler::SamplerRules;
use dialog::{Dialog, DialogConfig, SentenceCode, Tokenizer};
use engine::{Binding, Engine, ExecuteError, Executor, Policy, QnnExecutor};
use genie_types::{GraphInfo, TokenId};
use half::f16;
use nsp_graph::{BinaryGraphs, Options, analyze};
use qnn_api::{Backend, BackendOptions, Context, ContextOptions, Library, library::runtime};
use serde_json::{Value, json};

/// What one graph was fed: its name, token ids, strengths.
type Fed = (String, Vec<u64>, Vec<f64>);

/// Runs graphs, and keeps what they are fed.
struct Spy {
    inner: QnnExecutor,
    graphs: Vec<Vec<GraphInfo>>,
    fed: Arc<Mutex<Vec<Fed>>>,
}

impl Executor for Spy {
    fn execute<'io>(
        &mut self,
        split: usize,
        graph: usize,
        io: &mut dyn Iterator<Item = Binding<'io>>,
    ) -> Result<(), ExecuteError> {
        let info = &self.graphs[split][graph];
        let mut bound: Vec<Binding<'_>> = io.collect();
        let (mut ids, mut alphas) = (Vec::new(), Vec::new());
        for binding in &bound {
            let Binding::Input(i, bytes) = binding else { continue };
            match info.inputs[*i].name.as_str() {
                "input_ids" => ids = bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b).into()).collect(),
                name if name.contains("lora") => {
                    let halves = bytes.as_chunks().0.iter();
                    alphas.extend(halves.map(|b| f64::from(f16::from_le_bytes(*b))));
                }
                _ => {}
            }
        }
        self.fed.lock().unwrap().push((info.name.clone(), ids, alphas));
        self.inner.execute(split, graph, &mut bound.drain(..))
    }
}

/// The same dialog as `genie run --policy genie` opens, with the spy between.
fn open(config: &DialogConfig, fed: &Arc<Mutex<Vec<Fed>>>) -> Dialog {
    let library = Library::open(runtime::find(runtime::HTP).expect("the QNN runtime is there").as_path()).unwrap();
    let backend = Backend::new(&library, &BackendOptions::default()).unwrap();
    let mut engine_config = config.engine().clone();
    engine_config.policy = Policy::Genie;
    let load = |path: &PathBuf| Context::from_file(&backend, path, &ContextOptions::default()).unwrap();
    let contexts: Vec<Context> = engine_config.ctx_bins.iter().map(load).collect();
    let described =
        contexts.iter().map(|c| BinaryGraphs { source: "model.bin".into(), graphs: c.graphs().cloned().collect() });
    let layout = analyze(&described.collect::<Vec<_>>(), &Options::default()).unwrap();
    let graphs = layout.splits.iter().map(|s| s.graphs.iter().map(|g| g.info.clone()).collect()).collect();
    let inner = QnnExecutor::new(&layout, &contexts).unwrap();
    let engine = Engine::with_executor(layout, Spy { inner, graphs, fed: fed.clone() }, &engine_config).unwrap();
    let tokenizer = Tokenizer::from_file(config.tokenizer()).unwrap();
    let mut dialog = Dialog::with_tokenizer(config, tokenizer, Box::new(engine)).unwrap();
    let rules = dialog.sampler().settings().clone().with_rules(SamplerRules::Genie);
    dialog.set_sampler(rules);
    dialog
}

/// Arguments of a recorded call: `b'primary',b'a1'`, or with a `C.c_float(..)` at the end.
fn arguments(call: &str) -> (Vec<&str>, Option<f32>) {
    let texts = call.split("b'").skip(1).map(|rest| rest.split('\'').next().unwrap()).collect();
    let number = call.split("c_float(").nth(1).map(|rest| rest.split(')').next().unwrap().parse().unwrap());
    (texts, number)
}

fn status<T>(done: Result<T, dialog::DialogError>) -> i64 {
    done.map_or_else(|error| error.genie_status().into(), |_| 0)
}

fn check(folder: &Path, case: &Value) {
    let name = case["name"].as_str().unwrap();
    let config = DialogConfig::from_json(&case["config"].to_string(), folder).unwrap();
    let fed = Arc::new(Mutex::new(Vec::new()));
    let mut dialog = open(&config, &fed);
    for (i, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        let at = format!("{name}, step {i}: {}", step["step"]);
        let what = step["step"].as_array().unwrap();
        let rc = match what[0].as_str().unwrap() {
            "tokens" => {
                let ids: Vec<TokenId> =
                    what[1].as_array().unwrap().iter().map(|id| TokenId(id.as_u64().unwrap() as u32)).collect();
                let reply = dialog.token_query(&ids, SentenceCode::Complete, |_| ());
                let tokens: Vec<u32> = reply.iter().flat_map(|reply| reply.tokens.iter().map(|t| t.0)).collect();
                assert_eq!(json!(tokens), step["tokens"], "{at}");
                status(reply)
            }
            "reset" => status(dialog.reset()),
            "call" => match (what[1].as_str().unwrap(), arguments(what[1].as_str().unwrap())) {
                (call, (names, None)) if call.contains("applyLora") => status(dialog.apply_lora(names[0], names[1])),
                (call, (names, Some(strength))) if call.contains("setLoraStrength") => {
                    status(dialog.set_lora_strength(names[0], names[1], strength))
                }
                (call, _) => panic!("{at}: unknown call {call}"),
            },
            other => panic!("{at}: unknown step {other}"),
        };
        assert_eq!(rc, step["rc"].as_i64().unwrap(), "{at}");
        let ran = std::mem::take(&mut *fed.lock().unwrap());
        let want = step["executions"].as_array().unwrap();
        assert_eq!(ran.len(), want.len(), "{at}");
        for ((graph, ids, alphas), want) in ran.iter().zip(want) {
            assert!(want["graph"].as_str().unwrap().ends_with(&format!(":{graph}")), "{at}: {graph}");
            assert_eq!(json!(ids), want["ids"], "{at}, {graph}");
            let recorded: Vec<f64> =
                want["lora_alpha"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
            assert_eq!(*alphas, recorded, "{at}, {graph}");
        }
    }
    let profile = dialog.profile().to_json();
    let events = profile["components"][0]["events"].as_array().unwrap().iter().map(|e| e["type"].clone());
    let want: Vec<Value> = case["profile"].as_array().unwrap().iter().map(|e| e["type"].clone()).collect();
    assert_eq!(events.collect::<Vec<_>>(), want, "{name}: events of the profile");
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime, and the recordings: GENIE_GOLDEN_DIR"]
fn every_recording_of_adapters_is_repeated() {
    let folder = golden::folder().join("dialogs");
    let cases = golden::json(&folder.join("lora.json"))["cases"].as_array().unwrap().clone();
    assert!(cases.len() >= 4);
    for case in cases {
        if case.get("create_error").is_none() {
            check(&folder, &case);
            continue;
        }
        // A config that libGenie does not open: one of files here, so as a file it is read.
        let bundle = tempfile::tempdir().unwrap();
        let file = bundle.path().join("genie_config.json");
        std::os::unix::fs::symlink(folder.join("models"), bundle.path().join("models")).unwrap();
        std::fs::write(&file, case["config"].to_string()).unwrap();
        let error = DialogConfig::from_file(&file).unwrap_err().to_string();
        let missing = case["printed"][0].as_str().unwrap().rsplit(' ').next().unwrap();
        assert!(error.contains(missing), "{}: {error}", case["name"]);
    }
}
