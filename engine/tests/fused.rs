//! Fused graphs against full runs of each request alone, on the embedded backend: every update of the cache, every width, any order of prompts,
//! decode rows, cancels; and each fault of the system that these graphs come from.

use std::path::Path;
use std::sync::Arc;

use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family, KvCacheType, KvPeaks, PdGraphs, PdUpdate, Precision, Silent, Weights, compile};
use engine::{
    Engine, EngineConfig, EngineError, LogitsRequest, Overflow, PairConfig, PairRunner, RopeConfig, SeqId, SeqRows,
    SeqTokens, SequenceModel, TokenModel,
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
    place_with(&TOTALS, precision, weights, cache)
}

fn place_with(totals: &[u32], precision: Precision, weights: Option<Weights>, cache: KvCacheType) -> Place {
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
        let pd = PdGraphs { total_lens: totals.to_vec(), update, only: true };
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

/// As [`take`], one execution after the other: every row of logits that a graph gives is compared, not only those of ends. `prompts` says of
/// an input whether it is a prompt.
fn take_by_step(
    runner: &mut PairRunner,
    engine: &mut Engine,
    known: &mut [Vec<TokenId>],
    new: &[(usize, Vec<TokenId>)],
    prompts: impl Fn(&[TokenId]) -> bool,
    tolerance: f32,
) {
    let mut rest: Vec<(usize, &[TokenId], bool)> =
        new.iter().map(|(s, tokens)| (*s, &tokens[..], prompts(tokens))).collect();
    while !rest.is_empty() {
        let mut inputs: Vec<_> = rest
            .iter()
            .map(|&(s, tokens, prompt)| SeqRows { seq: SeqId(s as u8), tokens, wanted: LogitsRequest::Last, prompt })
            .collect();
        let counts = runner.tokens_of_first_step(&inputs);
        inputs.iter_mut().zip(&counts).for_each(|(input, n)| input.tokens = &input.tokens[..*n]);
        let taken: Vec<_> = inputs.into_iter().filter(|input| !input.tokens.is_empty()).collect();
        let n_steps = runner.steps().len();
        let mut found = vec![Vec::new(); taken.len()];
        runner.process_mixed(&taken, &mut |i, _, logits| found[i] = logits.to_vec()).unwrap();
        assert_eq!(runner.steps().len(), n_steps + 1, "one execution for {counts:?}");
        for (input, row) in taken.iter().zip(&found) {
            let known = &mut known[usize::from(input.seq.0)];
            known.extend(input.tokens);
            check_near(row, &reference(engine, known), tolerance, &format!("a step of {counts:?}"));
        }
        rest.iter_mut().zip(counts).for_each(|((_, tokens, _), n)| *tokens = &tokens[n..]);
        rest.retain(|(_, tokens, _)| !tokens.is_empty());
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
    proptest!(config, |(happenings in happenings(), by_step: bool)| {
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
            for (i, runner) in runners.iter_mut().enumerate() {
                known = before.clone();
                match by_step && i == 0 {
                    true => take_by_step(runner, &mut engine, &mut known, &new, |tokens| tokens.len() > 1, 1e-4),
                    false => take(runner, &mut engine, &mut known, &new, 1e-4),
                }
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

/// Kernels differ by width: up to two hundredths of the largest logit, so a token is the same where the best leads by twice that.
#[test]
fn quantised_weights_stay_within_the_tolerance_of_their_kernels() {
    const TOLERANCE: f32 = 2e-2;
    let (mut n_sure, mut n_all) = (0, 0);
    for weights in [Weights::W8, Weights::Q8_0, Weights::Q4_0] {
        let place = place(Some(weights));
        for update in 0..3 {
            let (mut runner, mut engine, mut known) = (place.runner(update), place.alone(), vec![Vec::new(); 3]);
            for round in [
                vec![(0, ids(1, 9)), (1, ids(2, 1)), (2, ids(3, 5))],
                vec![(0, ids(4, 1)), (1, ids(5, 6))],
                vec![(2, ids(6, 1)), (0, ids(7, 4)), (1, ids(8, 1))],
                vec![(0, ids(9, 1)), (1, ids(10, 1)), (2, ids(11, 7))],
            ] {
                let inputs: Vec<_> =
                    round.iter().map(|(s, tokens)| SeqTokens { seq: SeqId(*s as u8), tokens }).collect();
                let mut rows = vec![Vec::new(); inputs.len()];
                runner.process_batch(&inputs, &mut |i, logits| rows[i] = logits.to_vec()).unwrap();
                for ((s, tokens), row) in round.iter().zip(&rows) {
                    known[*s].extend(tokens);
                    let alone = reference(&mut engine, &known[*s]);
                    check_near(row, &alone, TOLERANCE, &format!("{weights:?}"));
                    let best = |row: &[f32]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
                    let (first, largest) = (best(&alone), alone.iter().fold(1f32, |m, x| m.max(x.abs())));
                    let others = alone.iter().enumerate().filter(|(i, _)| *i != first);
                    let lead = alone[first] - others.fold(f32::MIN, |m, (_, x)| m.max(*x));
                    n_all += 1;
                    if lead > 2.0 * TOLERANCE * largest {
                        n_sure += 1;
                        assert_eq!(best(row), first, "{weights:?}: the best leads by {lead}");
                    }
                }
            }
        }
    }
    assert!(2 * n_sure > n_all, "{n_sure} of {n_all} tokens are sure");
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

/// A dialog that is restored again and again: rows of the one before are not seen.
#[test]
fn a_dialog_is_restored_over_another() {
    let place = place(None);
    let (mut runner, mut engine, mut known) = (place.runner(0), place.alone(), vec![Vec::new(); 1]);
    take(&mut runner, &mut engine, &mut known, &[(0, ids(0, 9))], 1e-4);
    let saved = runner.snapshot().unwrap();
    let before = known.clone();
    for _ in 0..3 {
        take(&mut runner, &mut engine, &mut known, &[(0, ids(4, 5))], 1e-4);
        runner.restore_snapshot(&saved).unwrap();
        known.clone_from(&before);
        take(&mut runner, &mut engine, &mut known, &[(0, ids(7, 1))], 1e-4);
    }
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

/// Every chunk in every graph, also those that a narrower one would take: a decode row beside each, then both alone again.
#[test]
fn every_chunk_in_every_graph_equals_the_requests_alone() {
    for total in TOTALS {
        let place = place_with(&[total], Precision::F32, None, KvCacheType::Plain);
        for update in 0..3 {
            let (mut runner, mut engine) = (place.runner(update), place.alone());
            let graph = format!("model.0.pd.s{total} x1");
            for m in 1..total as usize {
                let mut known = vec![Vec::new(); 2];
                runner.reset().unwrap();
                let mut take = |new: &[(usize, Vec<TokenId>)], prompt: Option<usize>| {
                    runner.clear_steps();
                    let is_prompt = |tokens: &[TokenId]| prompt.is_some_and(|i| tokens == new[i].1);
                    take_by_step(&mut runner, &mut engine, &mut known, new, is_prompt, 1e-4);
                    runner.steps().to_string()
                };
                take(&[(0, ids(m, 3))], Some(0));
                assert_eq!(take(&[(0, ids(m + 1, 1)), (1, ids(total as usize, m))], Some(1)), graph);
                // They change places: the one that decoded takes a chunk.
                assert_eq!(take(&[(1, ids(m + 2, 1)), (0, ids(m + 3, m))], Some(1)), graph);
                assert_eq!(take(&[(0, ids(m + 4, 1)), (1, ids(m + 5, 1))], None), "model.0.s1 x2");
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
