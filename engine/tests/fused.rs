//! Fused graphs against full runs of each request alone, on the embedded backend: every update of the cache, every width, any order of prompts,
//! decode rows, cancels; and each fault of the system that these graphs come from.

use std::path::Path;
use std::sync::Arc;

use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family, KvCacheType, KvPeaks, PdGraphs, PdUpdate, Precision, Silent, Weights, compile};
use engine::{
    Engine, EngineConfig, EngineError, Overflow, PairConfig, PairRunner, RopeConfig, SeqId, SeqTokens, SequenceModel,
    TokenModel,
};
use genie_types::{Dtype, TokenId};
use proptest::prelude::*;
use qnn_api::{Backend, BackendOptions, Library};

const CONTEXT: u32 = 32;
const TOTALS: [u32; 2] = [4, 8];

fn model() -> TestModel {
    TestModel::tiny(Family::Llama)
}

struct Place {
    _folder: tempfile::TempDir,
    backend: Arc<Backend>,
    plain: EngineConfig,
    fused: [EngineConfig; 3],
}

const UPDATES: [PdUpdate; 3] = [PdUpdate::Host, PdUpdate::Graph, PdUpdate::Op];

fn place(weights: Option<Weights>) -> Place {
    place_of(Precision::F32, weights, KvCacheType::Plain)
}

fn place_of(precision: Precision, weights: Option<Weights>, cache: KvCacheType) -> Place {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = folder.path().join("model");
    model().write(&checkpoint).unwrap();
    let library = Library::linked(qnn_host::providers()).unwrap();
    let backend = Backend::new(&library, &BackendOptions::default()).unwrap();
    let bundle = |name: &str, pd: Option<PdGraphs>, cache: (KvCacheType, Option<KvPeaks>)| {
        let mut options = CompileOptions::new(&checkpoint, folder.path().join(name));
        (options.ars, options.cls, options.precision) = (vec![1, 8], vec![CONTEXT], precision);
        (options.weights, options.kinds.pd) = (weights, pd);
        (options.kinds.kv_cache, options.kv_peaks) = cache;
        compile(&options, &backend, &mut Silent).unwrap();
        let rope = RopeConfig::new(model().head_dim / 2, model().rope_theta).with_scaling(model().scaling);
        EngineConfig { rope: Some(rope), ..EngineConfig::new([folder.path().join(name).join("model.bin")]) }
    };
    let peaks = (cache == KvCacheType::U8).then(|| {
        let mut engine = Engine::open(&bundle("floats", None, (KvCacheType::Plain, None)), &backend).unwrap();
        engine.process(&ids(0, CONTEXT as usize - 1)).unwrap();
        KvPeaks::new(engine::kv_peaks(&engine.snapshot().unwrap().image)).unwrap()
    });
    let cache = (cache, peaks);
    let fused = UPDATES.map(|update| {
        let pd = PdGraphs { total_lens: TOTALS.to_vec(), update, only: true };
        let mut config = bundle(&format!("{update:?}"), Some(pd), cache.clone());
        config.pd = Some(PairConfig { last_row_unused: update != PdUpdate::Op, ..PairConfig::default() });
        config
    });
    let plain = bundle("plain", None, cache);
    Place { backend, plain, fused, _folder: folder }
}

impl Place {
    fn runner(&self, update: usize) -> PairRunner {
        PairRunner::open(&self.fused[update], &self.backend).unwrap().expect("it has fused graphs")
    }

    fn alone(&self) -> Engine {
        Engine::open(&self.plain, &self.backend).unwrap()
    }
}

fn ids(seed: usize, n: usize) -> Vec<TokenId> {
    (0..n).map(|i| TokenId(((i * 7 + seed * 13 + 3) % 50) as u32)).collect()
}

/// Logits of a request's last token when it is alone.
fn reference(engine: &mut Engine, tokens: &[TokenId]) -> Vec<f32> {
    engine.reset().unwrap();
    engine.process(tokens).unwrap().to_vec()
}

fn check_near(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    let largest = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
    let worst = found.iter().zip(expected).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
    assert!(worst <= tolerance * largest.max(1.0), "{what}: {worst} off, largest {largest}");
}

/// Takes tokens of several requests and compares each row of logits with the request alone.
fn take(
    runner: &mut PairRunner,
    engine: &mut Engine,
    known: &mut [Vec<TokenId>],
    new: &[(usize, Vec<TokenId>)],
    tolerance: f32,
) {
    let inputs: Vec<_> = new.iter().map(|(s, tokens)| SeqTokens { seq: SeqId(*s as u8), tokens }).collect();
    let mut rows = vec![Vec::new(); new.len()];
    runner.process_batch(&inputs, &mut |i, logits| rows[i] = logits.to_vec()).unwrap();
    for ((s, tokens), row) in new.iter().zip(&rows) {
        known[*s].extend(tokens);
        check_near(
            row,
            &reference(engine, &known[*s]),
            tolerance,
            &format!("request {s} of {} tokens", known[*s].len()),
        );
        assert_eq!(runner.transcript_of(SeqId(*s as u8)).unwrap().tokens(), known[*s]);
    }
}

/// What may happen to one of three requests: new tokens (one is a decode row), or a cancel.
fn happenings() -> impl Strategy<Value = Vec<Vec<(usize, usize)>>> {
    prop::collection::vec(prop::collection::vec((0usize..3, 0usize..14), 1..4), 1..8)
}

#[test]
fn any_interleaving_equals_each_request_alone_and_three_updates_are_one() {
    let place = place(None);
    let engine = std::cell::RefCell::new(place.alone());
    let config = ProptestConfig { cases: 40, ..ProptestConfig::default() };
    let mut runners: Vec<PairRunner> = (0..3).map(|update| place.runner(update)).collect();
    // The two that write rows themselves again, each updated past in a buffer of its own.
    for update in [1, 2] {
        let mut config = place.fused[update].clone();
        config.pd.as_mut().unwrap().in_place = false;
        runners.push(PairRunner::open(&config, &place.backend).unwrap().unwrap());
    }
    let runners = std::cell::RefCell::new(runners);
    proptest!(config, |(happenings in happenings())| {
        let (mut engine, mut runners) = (engine.borrow_mut(), runners.borrow_mut());
        let mut known = vec![Vec::new(); 3];
        runners.iter_mut().for_each(|r| r.reset().unwrap());
        for (at, tick) in happenings.into_iter().enumerate() {
            let mut new: Vec<(usize, Vec<TokenId>)> = Vec::new();
            for (s, n) in tick {
                if n == 13 {
                    known[s].clear();
                    runners.iter_mut().for_each(|r| { r.remove(SeqId(s as u8), 0..usize::MAX).unwrap(); });
                    new.retain(|(other, _)| *other != s);
                } else if n > 0 && known[s].len() + n < CONTEXT as usize && new.iter().all(|(other, _)| *other != s) {
                    new.push((s, ids(at * 3 + s, n)));
                }
            }
            if new.is_empty() {
                continue;
            }
            let before = known.clone();
            for runner in runners.iter_mut() {
                known = before.clone();
                take(runner, &mut engine, &mut known, &new, 1e-4);
            }
            let (first, others) = runners.split_first().unwrap();
            for s in 0..3u8 {
                for tensor in 0..first.layout().tensors.len() {
                    let rows = first.rows_of(SeqId(s), tensor);
                    for (i, other) in others.iter().enumerate() {
                        // The graphs choose other widths where a row is not used, so only runs of the same steps have the same bits.
                        if other.limits() == first.limits() {
                            prop_assert_eq!(&other.rows_of(SeqId(s), tensor), &rows, "runner {}", i + 1);
                        }
                    }
                    prop_assert_eq!(others[0].rows_of(SeqId(s), tensor), others[2].rows_of(SeqId(s), tensor));
                }
            }
        }
    });
}

#[test]
fn quantised_weights_stay_within_the_tolerance_of_their_kernels() {
    let place = place(Some(Weights::W8));
    let (mut runner, mut engine) = (place.runner(0), place.alone());
    let prompts = [ids(1, 9), ids(2, 1), ids(3, 5)];
    let inputs: Vec<_> =
        prompts.iter().enumerate().map(|(s, tokens)| SeqTokens { seq: SeqId(s as u8), tokens }).collect();
    let mut rows = vec![Vec::new(); 3];
    runner.process_batch(&inputs, &mut |i, logits| rows[i] = logits.to_vec()).unwrap();
    for (row, prompt) in rows.iter().zip(&prompts) {
        // Kernels differ by width: up to two hundredths of the largest logit.
        check_near(row, &reference(&mut engine, prompt), 2e-2, "quantised");
    }
}

/// Fault 1: fusing cut the rows of a decode request beyond CL - N.
#[test]
fn a_decode_row_beyond_the_fused_past_runs_alone_and_loses_nothing() {
    let place = place(None);
    for update in 0..3 {
        let (mut runner, mut engine, mut known) = (place.runner(update), place.alone(), vec![Vec::new(); 2]);
        take(&mut runner, &mut engine, &mut known, &[(0, ids(0, 29))], 1e-4);
        runner.clear_steps();
        take(&mut runner, &mut engine, &mut known, &[(0, ids(5, 1)), (1, ids(1, 6))], 1e-4);
        assert_eq!(runner.steps().to_string(), "model.0.s1 x1, model.0.pd.s8 x1");
        take(&mut runner, &mut engine, &mut known, &[(0, ids(6, 1)), (1, ids(2, 1))], 1e-4);
    }
}

/// Fault 2: positions of long prompts were clamped, and garbage followed.
#[test]
fn a_long_prompt_goes_on_token_by_token_and_one_too_long_is_refused_before_it_runs() {
    let place = place(None);
    for update in 0..3 {
        let (mut runner, mut engine, mut known) = (place.runner(update), place.alone(), vec![Vec::new(); 1]);
        take(&mut runner, &mut engine, &mut known, &[(0, ids(0, 31))], 1e-4);
        let (one, too_many) = (ids(1, 1), ids(2, 32));
        let full = runner.process(&one).unwrap_err();
        assert!(
            matches!(full, EngineError::Overflow(Overflow::ContextExceeded { n_past: 31, n_new: 1, limit: 31 })),
            "{full}"
        );
        runner.reset().unwrap();
        runner.clear_steps();
        assert!(matches!(runner.process(&too_many), Err(EngineError::Overflow(_))));
        assert!(runner.steps().is_empty() && runner.n_past() == 0);
    }
}

/// Fault 3: only the front of the decode queue ran. Fault 5: a step without a prompt took the widest graph.
#[test]
fn every_decode_row_gets_its_turn_and_one_alone_takes_the_narrowest_graph() {
    let place = place(None);
    let (mut runner, mut engine, mut known) = (place.runner(0), place.alone(), vec![Vec::new(); 3]);
    take(&mut runner, &mut engine, &mut known, &[(0, ids(0, 4)), (1, ids(1, 3)), (2, ids(2, 5))], 1e-4);
    runner.clear_steps();
    let each_one: Vec<_> = (0..3).map(|s| (s, ids(9 + s, 1))).collect();
    take(&mut runner, &mut engine, &mut known, &each_one, 1e-4);
    assert_eq!(runner.steps().to_string(), "model.0.s1 x3");
}

/// Fault 4: an inactive half with an output of its own was left undefined.
#[test]
fn an_inactive_half_keeps_its_rows() {
    let place = place(None);
    for update in [1, 2] {
        for in_place in [true, false] {
            let mut config = place.fused[update].clone();
            config.pd.as_mut().unwrap().in_place = in_place;
            let mut runner = PairRunner::open(&config, &place.backend).unwrap().unwrap();
            let (mut engine, mut known) = (place.alone(), vec![Vec::new(); 2]);
            take(&mut runner, &mut engine, &mut known, &[(0, ids(0, 5))], 1e-4);
            let before: Vec<_> = (0..runner.layout().tensors.len()).map(|t| runner.rows_of(SeqId(0), t)).collect();
            take(&mut runner, &mut engine, &mut known, &[(1, ids(1, 6))], 1e-4);
            let after: Vec<_> = (0..before.len()).map(|t| runner.rows_of(SeqId(0), t)).collect();
            assert_eq!(before, after, "update {update}, in place {in_place}");
            take(&mut runner, &mut engine, &mut known, &[(0, ids(3, 1))], 1e-4);
        }
    }
}

/// Fault 3, its other half: requests and caches were never freed.
#[test]
fn caches_of_finished_requests_are_taken_again() {
    let place = place(None);
    let mut runner = place.runner(1);
    let round = |runner: &mut PairRunner| {
        for s in 0..4u8 {
            let tokens = ids(usize::from(s), 6);
            runner.process_batch(&[SeqTokens { seq: SeqId(s), tokens: &tokens }], &mut |_, _| ()).unwrap();
        }
        assert_eq!(runner.n_sequences(), 4);
        (0..4).for_each(|s| assert_eq!(runner.remove(SeqId(s), 0..usize::MAX).unwrap(), 6));
        (runner.cache_bytes(), runner.n_sequences())
    };
    let first = round(&mut runner);
    assert!((0..20).all(|_| round(&mut runner) == first) && first.1 == 0);
}

/// A request that goes from prefill to decode is bound to the other half: no byte moves.
#[test]
fn going_from_prefill_to_decode_moves_no_byte() {
    let place = place(None);
    let (mut runner, mut engine, mut known) = (place.runner(1), place.alone(), vec![Vec::new(); 2]);
    take(&mut runner, &mut engine, &mut known, &[(0, ids(0, 7))], 1e-4);
    let moved = runner.moved_bytes();
    take(&mut runner, &mut engine, &mut known, &[(0, ids(1, 1)), (1, ids(2, 7))], 1e-4);
    assert_eq!(runner.moved_bytes(), moved);
}

#[test]
fn a_sequence_is_taken_out_and_put_back() {
    let place = place(None);
    let (mut runner, mut engine, mut known) = (place.runner(0), place.alone(), vec![Vec::new(); 3]);
    take(&mut runner, &mut engine, &mut known, &[(1, ids(0, 9))], 1e-4);
    let saved = runner.snapshot_of(SeqId(1)).unwrap();
    runner.remove(SeqId(1), 0..usize::MAX).unwrap();
    runner.restore_sequence(SeqId(2), &saved).unwrap();
    known.swap(1, 2);
    take(&mut runner, &mut engine, &mut known, &[(2, ids(4, 1))], 1e-4);
    assert!(runner.restore_sequence(SeqId(2), &saved).unwrap_err().to_string().contains("has tokens already"));
}

/// Rows of plain graphs lie where other sequences left room, later ones before earlier ones.
#[test]
fn rows_in_any_order_are_put_back_by_position() {
    let place = place(None);
    let (mut runner, mut engine, mut known) = (place.runner(0), place.alone(), vec![Vec::new(); 2]);
    take(&mut runner, &mut engine, &mut known, &[(1, ids(0, 9))], 1e-4);
    let mut saved = runner.snapshot_of(SeqId(1)).unwrap();
    // The last three rows before the others.
    let image = &mut saved.image;
    image.groups[0].cells.rotate_right(3);
    for (tensor, data) in image.tensors.iter().zip(&mut image.data) {
        let line = data.len() / tensor.n_lines();
        data.chunks_exact_mut(line).for_each(|line| line.rotate_right(3 * tensor.unit_bytes()));
    }
    saved.sequences[0].tokens.rotate_right(3);
    runner.remove(SeqId(1), 0..usize::MAX).unwrap();
    runner.restore_sequence(SeqId(1), &saved).unwrap();
    take(&mut runner, &mut engine, &mut known, &[(1, ids(4, 1))], 1e-4);
    saved.image.groups[0].cells[0].pos = 0;
    runner.remove(SeqId(1), 0..usize::MAX).unwrap();
    let error = runner.restore_sequence(SeqId(1), &saved).unwrap_err().to_string();
    assert!(error.contains("a row for each position from 0 to 9"), "{error}");
}

#[test]
fn weights_are_in_the_file_once() {
    let place = place(None);
    let bytes = |config: &EngineConfig| std::fs::metadata(&config.ctx_bins[0]).unwrap().len();
    let (plain, fused) = (bytes(&place.plain), bytes(&place.fused[0]));
    let weights = std::fs::metadata(
        Path::new(&place.plain.ctx_bins[0]).parent().unwrap().parent().unwrap().join("model/model.safetensors"),
    )
    .unwrap()
    .len();
    assert!(fused < plain + weights / 2, "{fused} beside {plain}, weights {weights}");
}

/// One trace through whole bundles: host, native ops and the package's op leave the same bytes in every cache, where an updated past is bound
/// to the buffer of the past and where it has one of its own.
fn updates_are_one(precision: Precision, cache: KvCacheType) {
    let place = place_of(precision, None, cache);
    let mut runners: Vec<(String, PairRunner)> = Vec::new();
    for (update, name) in UPDATES.iter().enumerate() {
        for in_place in [true, false] {
            let mut config = place.fused[update].clone();
            config.pd.as_mut().unwrap().in_place = in_place;
            let runner = PairRunner::open(&config, &place.backend).unwrap().unwrap();
            assert_eq!(runner.layout().updates, update > 0);
            runners.push((format!("{name:?}, in place {in_place}"), runner));
        }
    }
    let runners = std::cell::RefCell::new(runners);
    // Up to 20 tokens: where a row of the past is not used, all widths are still open, so every bundle takes the same steps.
    const MOST: usize = 20;
    let config = ProptestConfig { cases: 24, ..ProptestConfig::default() };
    proptest!(config, |(happenings in happenings())| {
        let mut runners = runners.borrow_mut();
        let mut known = [0usize; 3];
        runners.iter_mut().for_each(|(_, r)| { r.reset().unwrap(); r.clear_steps(); });
        for (at, tick) in happenings.into_iter().enumerate() {
            let mut new: Vec<(usize, Vec<TokenId>)> = Vec::new();
            for (s, n) in tick {
                if n == 13 {
                    known[s] = 0;
                    new.retain(|(other, _)| *other != s);
                    runners.iter_mut().for_each(|(_, r)| assert!(r.remove(SeqId(s as u8), 0..usize::MAX).is_ok()));
                } else if n > 0 && known[s] + n <= MOST && new.iter().all(|(other, _)| *other != s) {
                    new.push((s, ids(at * 5 + s, n)));
                }
            }
            new.iter().for_each(|(s, tokens)| known[*s] += tokens.len());
            let inputs: Vec<_> = new.iter().map(|(s, tokens)| SeqTokens { seq: SeqId(*s as u8), tokens }).collect();
            let mut first: Option<(String, Vec<Vec<u8>>, Vec<u32>)> = None;
            for (name, runner) in runners.iter_mut() {
                let mut logits = Vec::new();
                runner.process_batch(&inputs, &mut |_, row| logits.extend(row.iter().map(|x| x.to_bits()))).unwrap();
                let tensors = runner.layout().tensors.len();
                let rows = (0..3u8).flat_map(|s| (0..tensors).map(move |t| (s, t)));
                let bytes: Vec<Vec<u8>> = rows.map(|(s, t)| runner.rows_of(SeqId(s), t)).collect();
                let steps = runner.steps().to_string();
                match &first {
                    None => first = Some((steps, bytes, logits)),
                    Some((of_first, wanted, of_logits)) => {
                        prop_assert_eq!(of_first, &steps);
                        prop_assert!(wanted == &bytes, "{}: other bytes in a cache", name);
                        prop_assert!(of_logits == &logits, "{}: other logits", name);
                    }
                }
            }
        }
    });
}

#[test]
fn three_updates_leave_the_same_bytes_in_float32() {
    updates_are_one(Precision::F32, KvCacheType::Plain);
}

#[test]
fn three_updates_leave_the_same_bytes_in_float16() {
    updates_are_one(Precision::F16, KvCacheType::Plain);
}

#[test]
fn three_updates_leave_the_same_bytes_in_uint8() {
    updates_are_one(Precision::F32, KvCacheType::U8);
}

#[test]
fn three_updates_leave_the_same_bytes_in_uint8_of_float16_graphs() {
    updates_are_one(Precision::F16, KvCacheType::U8);
}

/// Codes of 8 bits: attention sees what they stand for in fused and plain graphs alike. A number that lies between two codes may be given
/// the other one where graphs of another width add it up in another order, hence a tolerance above that of floats.
#[test]
fn fused_graphs_with_uint8_caches_equal_the_requests_alone() {
    let place = place_of(Precision::F32, None, KvCacheType::U8);
    for update in 0..3 {
        let (mut runner, mut engine, mut known) = (place.runner(update), place.alone(), vec![Vec::new(); 3]);
        for tensor in &runner.layout().tensors {
            assert_eq!((tensor.dtype, tensor.quant.per_tensor().unwrap().1), (Dtype::UFixed8, -128));
        }
        take(&mut runner, &mut engine, &mut known, &[(0, ids(0, 9))], 2e-3);
        take(&mut runner, &mut engine, &mut known, &[(0, ids(1, 1)), (1, ids(2, 6))], 2e-3);
        take(&mut runner, &mut engine, &mut known, &[(1, ids(3, 1)), (0, ids(4, 4)), (2, ids(5, 11))], 2e-3);
        take(&mut runner, &mut engine, &mut known, &[(0, ids(6, 1)), (1, ids(7, 1)), (2, ids(8, 1))], 2e-3);
        // Rows that are no row of zeros, and use the codes' range.
        let rows = runner.rows_of(SeqId(0), 0);
        let (least, most) = (rows.iter().min().unwrap(), rows.iter().max().unwrap());
        assert!(*least < 64 && *most > 192, "codes from {least} to {most}");
    }
}

/// Every chunk and every other prompt's tail, in every graph: a decode row beside each, then both alone again.
#[test]
fn every_chunk_in_every_graph_equals_the_requests_alone() {
    let place = place(None);
    for update in 0..3 {
        let (mut runner, mut engine) = (place.runner(update), place.alone());
        for total in TOTALS {
            for m in 1..total as usize {
                let mut known = vec![Vec::new(); 2];
                runner.reset().unwrap();
                take(&mut runner, &mut engine, &mut known, &[(0, ids(m, 3))], 1e-4);
                // A prompt's first chunk is never one token: that is a decode row.
                let prompt = ids(total as usize, m.max(2));
                take(&mut runner, &mut engine, &mut known, &[(0, ids(m + 1, 1)), (1, prompt)], 1e-4);
                // They change places: the one that decoded takes a chunk.
                take(&mut runner, &mut engine, &mut known, &[(1, ids(m + 2, 1)), (0, ids(m + 3, m.max(2)))], 1e-4);
                take(&mut runner, &mut engine, &mut known, &[(0, ids(m + 4, 1)), (1, ids(m + 5, 1))], 1e-4);
            }
        }
    }
}

/// Fault 7: outputs were bound by kind, but came by layer. Here they are bound by name: whatever order a binary has, updated pasts land in the
/// caches they come from.
#[test]
fn updated_pasts_are_bound_by_name_in_any_order() {
    let place = place(None);
    for update in [1, 2] {
        let runner = place.runner(update);
        for graph in runner.layout().graphs() {
            let mut shuffled = graph.info.clone();
            shuffled.outputs.reverse();
            shuffled.inputs.rotate_left(3);
            let others = runner.layout().graphs().filter(|other| other.info.name != graph.info.name);
            let graphs = others.map(|other| other.info.clone()).chain([shuffled]).collect();
            let binary = nsp_graph::BinaryGraphs { source: "model.bin".into(), graphs };
            let layout = nsp_graph::pd::analyze(&[binary], None).unwrap().unwrap();
            let read = layout.graphs().find(|found| found.info.name == graph.info.name).unwrap();
            for (info, role) in graph.info.outputs.iter().zip(&graph.outputs) {
                let at = read.info.outputs.iter().position(|found| found.name == info.name).unwrap();
                assert_eq!(read.outputs[at], *role, "{}", info.name);
                if let nsp_graph::pd::Output::Updated(slot, tensor) = role {
                    let past =
                        read.inputs.iter().position(|r| *r == nsp_graph::pd::Input::Past(*slot, *tensor)).unwrap();
                    assert_eq!(format!("updated_{}", read.info.inputs[past].name), info.name);
                }
            }
        }
    }
}

/// Fault 8: binaries whose tensors have numbers for names were bound by their order. They are refused by name.
#[test]
fn a_fused_graph_with_numbers_for_names_is_refused() {
    let place = place(None);
    let runner = place.runner(1);
    let graphs = runner.layout().graphs().map(|graph| {
        let mut info = graph.info.clone();
        for (i, tensor) in info.inputs.iter_mut().chain(&mut info.outputs).enumerate() {
            tensor.name = format!("{}", 1000 + i);
        }
        info
    });
    let binary = nsp_graph::BinaryGraphs { source: "model.bin".into(), graphs: graphs.collect() };
    let error = nsp_graph::analyze(&[binary], &nsp_graph::Options::default()).unwrap_err().to_string();
    assert!(error.contains("`model.0.pd.s4`") && error.contains("`1000`") && error.contains("by name"), "{error}");
}
