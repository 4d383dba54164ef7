//! A decode step costs the allocator nothing once the engine stands.
//!
//! The executor here writes constants, so what is counted is the engine's own and the KV manager's.

use engine::{
    Binding, Engine, EngineConfig, ExecuteError, Executor, PairRunner, RopeConfig, SeqId, SeqTokens, SequenceModel,
    StepLog, TokenModel,
};
use genie_types::{Dtype, GraphInfo, TensorInfo, TokenId, Variant};
use kvmanager::{CostTable, KvForm, KvState, Policy, Request, Variants, plan};
use nsp_graph::{BinaryGraphs, Options, analyze, pd};

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
    let times = [1, 8].map(|ar| (Variant::new(ar, CL as u32).unwrap(), f64::from(ar)));
    let cost = Policy::Cost(CostTable::new(times, 1.0, 0.1).unwrap().into());
    for (n_threads, policy) in [(0, Policy::Lenient), (2, Policy::Lenient), (2, cost)] {
        let graphs = [1, 8].into_iter().flat_map(bundle).collect();
        let layout = analyze(&[BinaryGraphs { source: "m.bin".into(), graphs }], &Options::default()).unwrap();
        let config =
            EngineConfig { rope: Some(RopeConfig::new(4, 1e4)), n_threads, policy, ..EngineConfig::new(["m.bin"]) };
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

/// `model.0.pd.s{rows}`, or `model.0.s1` for one row.
fn fused(rows: usize) -> GraphInfo {
    let t = |name: &str, dims: &[usize], dtype| TensorInfo::new(name, dims, dtype);
    let (slots, name) = match rows {
        1 => (&[""][..], "model.0.s1".into()),
        _ => (&["prefill_", "decode_"][..], format!("model.0.pd.s{rows}")),
    };
    let mut graph = GraphInfo { name, ..GraphInfo::default() };
    graph.inputs = vec![
        t("input_ids", &[1, rows], Dtype::I32),
        t("position_ids", &[rows], Dtype::I32),
        t("attention_mask", &[1, 1, rows, CL], Dtype::U16),
    ];
    if rows > 1 {
        graph.inputs.push(t("fusion_ctrl", &[6], Dtype::I32));
    }
    for layer in 0..3 {
        for slot in slots {
            graph.inputs.push(t(&format!("past_key_{slot}{layer}"), &[1, 2, 8, CL - rows], Dtype::F16));
            graph.inputs.push(t(&format!("past_value_{slot}{layer}"), &[1, 2, CL - rows, 8], Dtype::F16));
        }
        graph.outputs.push(t(&format!("present_key_{layer}"), &[1, 2, 8, rows], Dtype::F16));
        graph.outputs.push(t(&format!("present_value_{layer}"), &[1, 2, rows, 8], Dtype::F16));
    }
    graph.outputs.push(t("logits", &[1, 1, slots.len(), VOCAB], Dtype::F16));
    graph
}

/// Fault 9 of the system that fused graphs come from: a prompt's tokens were copied in every step.
#[test]
fn a_prompts_piece_beside_a_reply_does_not_allocate() {
    let graphs = [1, 4, 8].map(fused).to_vec();
    let layout = pd::analyze(&[BinaryGraphs { source: "m.bin".into(), graphs }], None).unwrap().unwrap();
    let mut runner = PairRunner::with_executor(layout, Constant, &EngineConfig::new(["m.bin"])).unwrap();
    let [reply, prompt] = [SeqId(0), SeqId(1)];
    let tokens: Vec<TokenId> = (0..CL as u32).map(TokenId).collect();
    let mut n_rows = 0;
    let mut step = |reply_at: usize, piece: std::ops::Range<usize>| {
        let both = [
            SeqTokens { seq: reply, tokens: &tokens[reply_at..][..1] },
            SeqTokens { seq: prompt, tokens: &tokens[piece] },
        ];
        runner.process_batch(&both, &mut |_, logits| n_rows += logits.len() / VOCAB).unwrap();
        runner.process_batch(&both[..1], &mut |_, logits| n_rows += logits.len() / VOCAB).unwrap();
    };
    // Both graphs of two requests and the one of a single row, once.
    step(0, 0..6);
    step(1, 6..9);
    let counted = allocation_counter::measure(|| {
        (2..8).for_each(|i| step(i, 3 * i + 3..3 * i + 6));
        (8..12).for_each(|i| step(i, 6 * i - 21..6 * i - 15));
    });
    assert_eq!(counted.count_total, 0, "{} bytes in 20 steps", counted.bytes_total);
    assert_eq!((n_rows, runner.n_past_of(reply), runner.n_past_of(prompt)), (36, 24, 51));
}

/// A fixed buffer that is written to with `ufmt` and with `core::fmt`.
struct Fixed {
    bytes: [u8; 512],
    len: usize,
}

impl Fixed {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap()
    }
}

impl ufmt::uWrite for Fixed {
    type Error = std::convert::Infallible;

    fn write_str(&mut self, s: &str) -> Result<(), Self::Error> {
        self.bytes[self.len..self.len + s.len()].copy_from_slice(s.as_bytes());
        self.len += s.len();
        Ok(())
    }
}

impl std::fmt::Write for Fixed {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        ufmt::uWrite::write_str(self, s).map_err(|never| match never {})
    }
}

#[test]
fn steps_plans_and_the_log_print_without_allocation() {
    use std::fmt::Write;
    let variants = [Variant::new(1, 64).unwrap(), Variant::new(8, 64).unwrap()];
    let variants = Variants::new(variants, KvForm::Concat, None).unwrap();
    let request = Request { n_new: 9, ..Request::default() };
    let plan = plan(&KvState::default(), &[request], &variants, &Policy::Lenient).unwrap();
    let mut log = StepLog::new(vec!["ar8".into(), "ar1".into()], 16);
    [0, 1, 1].into_iter().for_each(|graph| log.push(graph));
    let mut out = [0, 1].map(|_| Fixed { bytes: [0; 512], len: 0 });
    let counted = allocation_counter::measure(|| {
        ufmt::uwrite!(out[0], "{}|{}|{}", plan, plan.steps()[1], log).unwrap();
        write!(out[1], "{plan}|{}|{log}", plan.steps()[1]).unwrap();
    });
    assert_eq!(counted.count_total, 0, "{} bytes", counted.bytes_total);
    let second = "AR-1 CL-64 n_past=8 n_kv=8 n_process=1 @ past_idx=0 new_idx=63";
    let first = "AR-8 CL-64 n_past=0 n_kv=0 n_process=8 @ past_idx=0 new_idx=56";
    let expected = format!("Step 0: {first}\nStep 1: {second}\n|{second}|ar8 x1, ar1 x2");
    assert_eq!(out.each_ref().map(Fixed::text), [expected.as_str(); 2]);
}
