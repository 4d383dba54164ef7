//! A decode step costs the allocator nothing once the engine stands.
//!
//! The executor here answers constants, so what is counted is the engine's own and the KV manager's.

use engine::{Binding, Engine, EngineConfig, ExecuteError, Executor, RopeConfig, TokenModel};
use genie_types::{Dtype, GraphInfo, TensorInfo, TokenId};
use nsp_graph::{BinaryGraphs, Options, analyze};

const CL: usize = 64;
const VOCAB: usize = 100;

/// Writes the same byte everywhere.
struct Constant;

impl Executor for Constant {
    fn execute<'io>(
        &mut self,
        _: usize,
        _: usize,
        io: &mut dyn Iterator<Item = Binding<'io>>,
    ) -> Result<(), ExecuteError> {
        for binding in io {
            if let Binding::Output(_, bytes) = binding {
                bytes.fill(1);
            }
        }
        Ok(())
    }
}

fn bundle(ar: usize) -> [GraphInfo; 2] {
    let t = |name: &str, dims: &[usize], dtype| TensorInfo::new(name, dims, dtype);
    let mut decoder = GraphInfo { name: format!("ar{ar}_cl{CL}_1_of_2"), ..GraphInfo::default() };
    decoder.inputs = vec![
        t("input_ids", &[1, ar], Dtype::I32),
        t("attention_mask", &[1, 1, ar, CL], Dtype::F16),
        t("position_ids_cos", &[1, 1, ar, 4], Dtype::F16),
        t("position_ids_sin", &[1, 1, ar, 4], Dtype::F16),
    ];
    for layer in 0..3 {
        let key = |end: &str, n| t(&format!("past_key_{layer}_{end}"), &[2, 1, 8, n], Dtype::F16);
        let value = |end: &str, n| t(&format!("past_value_{layer}_{end}"), &[2, 1, n, 8], Dtype::F16);
        decoder.inputs.extend([key("in", CL - ar), value("in", CL - ar)]);
        decoder.outputs.extend([key("out", ar), value("out", ar)]);
    }
    let hidden = t("hidden", &[1, ar, 16], Dtype::F16);
    decoder.outputs.push(hidden.clone());
    let head = GraphInfo {
        name: format!("ar{ar}_cl{CL}_2_of_2"),
        inputs: vec![hidden],
        outputs: vec![t("logits", &[1, ar, VOCAB], Dtype::F16)],
    };
    [decoder, head]
}

#[test]
fn decode_does_not_allocate() {
    for n_threads in [0, 2] {
        let graphs = [1, 8].into_iter().flat_map(bundle).collect();
        let layout = analyze(&[BinaryGraphs { source: "m.bin".into(), graphs }], &Options::default()).unwrap();
        let config = EngineConfig { rope: Some(RopeConfig::new(4, 1e4)), n_threads, ..EngineConfig::new(["m.bin"]) };
        let mut engine = Engine::with_executor(layout, Constant, &config).unwrap();
        engine.process(&[TokenId(1); 11]).unwrap();
        engine.process(&[TokenId(2)]).unwrap();
        let counted = allocation_counter::measure(|| {
            for token in 3..40 {
                let logits = engine.process(&[TokenId(token)]).unwrap();
                assert_eq!(logits.len(), VOCAB);
            }
        });
        assert_eq!(counted.count_total, 0, "{n_threads} threads: {} bytes in 37 steps", counted.bytes_total);
        assert_eq!(engine.n_past(), 49);
    }
}
