//! The cache as an engine uses it, checked against rows that follow from their token.

use super::*;
use crate::tensor_buf::Op;
use crate::worker::Ops;
use crate::{
    CacheGroup, Columns, InferenceStep, KvDtype, KvForm, KvGeometry, KvKind, KvLayout, KvTensor, SplitGeometry,
};
use genie_types::SplitIdx;

fn spec(ar: u32, cl: u32) -> Variant {
    Variant::new(ar, cl).unwrap()
}

fn geometry() -> KvGeometry {
    let layers = |range: std::ops::Range<usize>, dtype| {
        let kinds = [KvKind::Key, KvKind::Value];
        range.flat_map(|l| kinds.map(|kind| KvTensor::new(kind, l, 2, 4, dtype).with_quant(0.1, -128))).collect()
    };
    let lut = SplitGeometry::default();
    KvGeometry {
        splits: vec![
            lut.clone(),
            SplitGeometry { tensors: layers(0..3, KvDtype::U8) },
            SplitGeometry { tensors: layers(3..4, KvDtype::F16) },
            lut,
        ],
    }
}

/// The byte that element (head, dim) of token `t` has in a tensor, first of its element.
fn byte(tensor: &KvTensor, t: usize, head: usize, dim: usize) -> u8 {
    let kind = if tensor.kind == KvKind::Key { 0 } else { 101 };
    (t * 31 + head * 7 + dim * 3 + tensor.layer.0 * 57 + kind) as u8
}

fn index(tensor: &KvTensor, n: usize, row: usize, head: usize, dim: usize) -> usize {
    let elem = match tensor.layout {
        KvLayout::HeadDimSeq => (head * tensor.head_dim + dim) * n + row,
        KvLayout::HeadSeqDim => (head * n + row) * tensor.head_dim + dim,
    };
    elem * tensor.dtype.size_bytes()
}

fn each_element(tensor: &KvTensor, mut f: impl FnMut(usize, usize)) {
    (0..tensor.n_heads).for_each(|head| (0..tensor.head_dim).for_each(|dim| f(head, dim)));
}

/// Plays the graph: checks that the past holds tokens `0..n_valid_kv`, writes the step's rows and rubbish after them.
fn run_split(running: &mut Step<'_>, split: SplitIdx, step: &InferenceStep) {
    let past_len = running.variants().groups()[0].past_len(step.variant);
    let mut guard = running.split(split).unwrap();
    for view in guard.views() {
        let spec = *view.spec;
        assert_eq!(view.past.len(), spec.rows_bytes(past_len));
        assert_eq!(view.new.len(), spec.rows_bytes(step.ar()));
        for row in 0..step.n_valid_kv {
            each_element(&spec, |head, dim| {
                let at = index(&spec, past_len, step.past_idx.0 + row, head, dim);
                assert_eq!(view.past[at], byte(&spec, row, head, dim), "{} row {row} of {step}", spec.name());
            });
        }
        view.new.fill(0xEE);
        for i in 0..step.n_process() {
            each_element(&spec, |head, dim| {
                view.new[index(&spec, step.ar(), i, head, dim)] = byte(&spec, step.n_past() + i, head, dim);
            });
        }
    }
}

const A: SeqId = SeqId(0);

/// Runs one step; `then` is the variant of the next.
fn run(kv: &mut KvCache, step: &InferenceStep, keep: Keep<'_>, then: Option<Variant>) {
    let mut running = kv.begin(step).unwrap();
    then.into_iter().for_each(|next| running.then(next).unwrap());
    for split in (0..running.n_splits()).map(SplitIdx) {
        run_split(&mut running, split, step);
        running.commit(split, keep).unwrap();
    }
    running.finish().unwrap();
}

fn process(kv: &mut KvCache, n: usize, policy: &Policy) -> String {
    let plan = kv.plan(&[(A, n)], policy).unwrap();
    plan.steps().iter().for_each(|step| run(kv, step, Keep::All, None));
    let ran = plan.steps().iter().map(|step| format!("{}/{}", step.ar(), step.cl()));
    ran.collect::<Vec<_>>().join(" ")
}

/// A step of one token in a variant, to look at the past that it lends.
fn look(kv: &KvCache, ar: u32, cl: u32) -> InferenceStep {
    kv.step(spec(ar, cl), Columns::of(A, kv.next_pos(A), 1))
}

fn grid(ars: &[u32], cls: &[u32], form: KvForm) -> Variants {
    let specs = cls.iter().flat_map(|&cl| ars.iter().map(move |&ar| spec(ar, cl)));
    Variants::new(specs, form, None).unwrap()
}

fn manager(variants: Variants, n_threads: usize) -> KvCache {
    KvCache::new(&geometry(), variants, KvOptions { n_threads, ..KvOptions::default() }).unwrap()
}

#[test]
fn rows_survive_prefill_decode_and_every_change_of_shape() {
    for form in [KvForm::Concat, KvForm::Scatter] {
        for n_threads in [0, 1, 3] {
            let mut kv = manager(grid(&[1, 8, 32], &[64, 128], form), n_threads);
            assert_eq!(process(&mut kv, 41, &Policy::Lenient), "32/64 32/128");
            for _ in 41..127 {
                process(&mut kv, 1, &Policy::Lenient);
            }
            kv.rewind(A, 70).unwrap();
            assert_eq!(process(&mut kv, 20, &Policy::Lenient), "32/128");
            kv.rewind(A, 10).unwrap();
            assert_eq!(process(&mut kv, 2, &Policy::Lenient), "8/64");
            assert_eq!(kv.state(), KvState { variant: Some(spec(8, 64)), ..KvState::at(12) });
        }
    }
}

#[test]
fn the_last_step_of_a_full_context_keeps_its_rows() {
    let mut kv = manager(grid(&[1, 32], &[64, 128], KvForm::Concat), 2);
    assert_eq!(process(&mut kv, 128, &Policy::Lenient), "32/64 32/128 32/128 32/128");
    assert_eq!(kv.state().n_valid_kv, 128);
    // AR-32 had room for 96 rows; all 127 are there for AR-1.
    kv.rewind(A, 127).unwrap();
    assert_eq!(process(&mut kv, 1, &Policy::Lenient), "1/128");
    kv.rewind(A, 40).unwrap();
    assert_eq!(process(&mut kv, 3, &Policy::Lenient), "32/128");
}

#[test]
fn a_graph_without_past_fills_the_cache_for_the_others() {
    let variants = Variants::new([spec(1, 32), spec(48, 48)], KvForm::Concat, None).unwrap();
    let mut kv = manager(variants, 0);
    assert_eq!(process(&mut kv, 33, &Policy::Lenient), "48/48");
    kv.rewind(A, 20).unwrap();
    assert_eq!(process(&mut kv, 2, &Policy::Lenient), "1/32 1/32");
    kv.rewind(A, 2).unwrap();
    // 40 tokens are more than AR-1 at CL-32 can reach: all 42 run again without past.
    assert_eq!(process(&mut kv, 40, &Policy::Lenient), "48/48");
    assert_eq!(kv.state().n_past, 42);
}

#[test]
fn full_context_only_keeps_no_rows() {
    let variants = Variants::new([spec(16, 16), spec(32, 32)], KvForm::Concat, None).unwrap();
    let mut kv = manager(variants, 2);
    assert_eq!(process(&mut kv, 5, &Policy::Lenient), "16/16");
    assert_eq!(process(&mut kv, 12, &Policy::Lenient), "32/32");
    assert_eq!(kv.state(), KvState { n_past: 17, variant: Some(spec(32, 32)), ..KvState::default() });
    kv.rewind(A, 3).unwrap();
    assert_eq!(process(&mut kv, 1, &Policy::Lenient), "16/16");
    assert_eq!(kv.state().n_past, 4);
}

#[test]
fn a_step_can_end_in_the_variant_of_the_next() {
    let mut kv = manager(grid(&[1, 8], &[32, 64], KvForm::Concat), 2);
    let plan = kv.plan(&[(A, 41)], &Policy::Lenient).unwrap();
    for (i, step) in plan.steps().iter().enumerate() {
        run(&mut kv, step, Keep::All, plan.steps().get(i + 1).map(|next| next.variant));
    }
    assert_eq!(process(&mut kv, 1, &Policy::Lenient), "1/64");
}

#[test]
fn selected_rows_close_up() {
    let mut kv = manager(grid(&[1, 8], &[32], KvForm::Concat), 1);
    process(&mut kv, 3, &Policy::Lenient);
    let step = kv.plan(&[(A, 6)], &Policy::Lenient).unwrap().steps()[0].clone();
    run(&mut kv, &step, Keep::Rows(&[true, true, false, false, true]), None);
    assert_eq!((kv.next_pos(A), kv.state().n_valid_kv), (8, 6), "each row at the position of its column");
    let step = look(&kv, 1, 32);
    let mut running = kv.begin(&step).unwrap();
    for view in running.split(SplitIdx(1)).unwrap().views() {
        let tokens: Vec<_> = (0..6).map(|row| view.past[index(view.spec, 31, row, 1, 2)]).collect();
        assert_eq!(tokens, [0, 1, 2, 3, 4, 7].map(|t| byte(view.spec, t, 1, 2)));
    }
}

#[test]
fn cleared_rows_hold_the_pad_value() {
    let mut kv = manager(grid(&[1, 8], &[32], KvForm::Concat), 2);
    process(&mut kv, 12, &Policy::Lenient);
    kv.clear().unwrap();
    let step = look(&kv, 1, 32);
    let mut running = kv.begin(&step).unwrap();
    for (split, pad) in [(1, 128), (2, 0)] {
        let mut guard = running.split(SplitIdx(split)).unwrap();
        assert!(guard.views().all(|view| view.past.iter().all(|&b| b == pad)), "split {split}");
    }
    drop(running);
    assert_eq!(process(&mut kv, 9, &Policy::Lenient), "8/32 1/32");
}

#[test]
fn a_step_that_is_dropped_or_rolled_back_leaves_no_row() {
    for form in [KvForm::Concat, KvForm::Scatter] {
        let mut kv = manager(grid(&[1, 8], &[32], form), 2);
        process(&mut kv, 5, &Policy::Lenient);
        let before = kv.export().unwrap();
        for n_committed in 0..=kv.n_splits() {
            for by_drop in [false, true] {
                let step = kv.plan(&[(A, 8)], &Policy::Lenient).unwrap().steps()[0].clone();
                let mut running = kv.begin(&step).unwrap();
                for split in (0..n_committed).map(SplitIdx) {
                    run_split(&mut running, split, &step);
                    running.commit(split, Keep::All).unwrap();
                }
                if by_drop {
                    drop(running)
                } else {
                    running.rollback().unwrap()
                }
                assert_eq!(kv.export().unwrap(), before, "{n_committed} splits committed");
            }
        }
        // A guard that is never dropped is rolled back when the next step begins.
        let step = kv.plan(&[(A, 1)], &Policy::Lenient).unwrap().steps()[0].clone();
        let mut running = kv.begin(&step).unwrap();
        running.commit(SplitIdx(1), Keep::All).unwrap();
        std::mem::forget(running);
        assert_eq!(process(&mut kv, 1, &Policy::Lenient), "1/32");
    }
}

#[test]
fn refusals_name_what_differs() {
    let mut kv = manager(grid(&[1, 8], &[32], KvForm::Concat), 1);
    let err = kv.set_variant(spec(4, 32)).unwrap_err();
    assert_eq!(err.to_string(), "no graph of variant ar4_cl32: the cache can take ar1_cl32, ar8_cl32");
    let step = kv.plan(&[(A, 1)], &Policy::Lenient).unwrap().steps()[0].clone();
    let mut running = kv.begin(&step).unwrap();
    assert_eq!(running.split(SplitIdx(9)).map(|_| ()).unwrap_err().to_string(), "no split 9: the cache has 4");
    drop(running);
    process(&mut kv, 28, &Policy::Lenient);
    let err = kv.set_variant(spec(8, 32)).unwrap_err();
    assert_eq!(err.to_string(), "ar8_cl32 holds 24 rows of past, the cache has 28");
    let err = kv.rewind(A, 29).unwrap_err();
    assert_eq!(
        err.to_string(),
        "cannot rewind to 29: the cache stands at 28 tokens with 28 rows; only backwards is possible"
    );
    let ahead = kv.step(spec(1, 32), Columns::of(A, 29, 1));
    let err = kv.begin(&ahead).map(|_| ()).unwrap_err();
    assert_eq!(err.to_string(), "step does not fit the cache: n_past is 29, expected 28");
    let err = kv.begin(&InferenceStep { n_valid_kv: 3, ..look(&kv, 1, 32) }).map(|_| ()).unwrap_err();
    assert_eq!(err.to_string(), "step does not fit the cache: n_valid_kv is 3, expected 28");
    let step = look(&kv, 1, 32);
    let mut running = kv.begin(&step).unwrap();
    running.commit(SplitIdx(1), Keep::All).unwrap();
    let again =
        "split 1 is committed: lend splits and fill masks before the commits, and commit each split once per step";
    assert_eq!(running.commit(SplitIdx(1), Keep::All).unwrap_err().to_string(), again);
    assert_eq!(running.split(SplitIdx(1)).map(|_| ()).unwrap_err().to_string(), again);
    assert_eq!(running.fill_mask(0, 0, 1, &mut [0; 32]).unwrap_err().to_string(), again);
    assert_eq!(running.then(spec(8, 32)).unwrap_err().to_string(), again);
    assert_eq!(
        running.finish().unwrap_err().to_string(),
        "split 2 is not committed: a step ends when every split with cache tensors is"
    );
    assert_eq!(kv.state().n_past, 28, "rolled back");
}

#[test]
fn pointer_shift_appends_no_bytes_of_values() {
    // One tensor per head, 4 dimensions, CL-64: keys take (4 + 1) * (64 - 1) elements.
    let kinds = [KvKind::Key, KvKind::Value];
    let heads =
        kinds.iter().flat_map(|&kind| (0..2).map(move |h| KvTensor::new(kind, 0, 1, 4, KvDtype::U8).for_head(h)));
    let geometry = KvGeometry { splits: vec![SplitGeometry { tensors: heads.collect() }] };
    let keys = KvGeometry { splits: vec![SplitGeometry { tensors: geometry.splits[0].tensors[..1].to_vec() }] };
    let variants = || grid(&[1], &[64], KvForm::Concat);
    let new_columns = 4;
    assert_eq!(KvCache::required_bytes(&keys, &variants(), ModeKind::POINTER_SHIFT), (4 + 1) * (64 - 1) + new_columns);

    for n_threads in [0, 2] {
        let options = KvOptions { mode: ModeKind::POINTER_SHIFT, n_threads, ..KvOptions::default() };
        let mut kv = KvCache::new(&geometry, variants(), options).unwrap();
        for n in 1..=63 {
            process(&mut kv, 1, &Policy::Lenient);
            let keys = 2 * 4 * n;
            assert_eq!(kv.moved_bytes().unwrap(), MovedBytes { keys, values: 0 }, "{n} tokens");
        }
        // The 64th row has no graph to go to: the buffer becomes a plain store, and that does move.
        process(&mut kv, 1, &Policy::Lenient);
        let image = kv.export().unwrap();
        assert_eq!(image.groups[0].cells.len(), 64);
        kv.clear().unwrap();
        assert_eq!(kv.moved_bytes().unwrap(), MovedBytes::default());
    }
    // Smart mask copies the same keys and all the values.
    let mut kv = KvCache::new(&geometry, variants(), KvOptions::default()).unwrap();
    process(&mut kv, 5, &Policy::Lenient);
    assert_eq!(kv.moved_bytes().unwrap(), MovedBytes { keys: 2 * 4 * 5, values: 2 * 4 * 5 });
}

#[test]
fn what_a_cache_will_take_is_known_before() {
    for mode in [ModeKind::SMART_MASK, ModeKind::SHIFT_CONCAT, ModeKind::POINTER_SHIFT] {
        for form in [KvForm::Concat, KvForm::Scatter] {
            let variants = grid(&[1, 8], &[32, 64], form);
            let expected = KvCache::required_bytes(&geometry(), &variants, mode);
            match KvCache::new(&geometry(), variants, KvOptions { mode, n_threads: 3, ..KvOptions::default() }) {
                Ok(mut kv) => assert_eq!(kv.buffer_bytes().unwrap(), expected, "{}", mode.name()),
                Err(e) => assert!(form == KvForm::Scatter && mode != ModeKind::SMART_MASK, "{e}"),
            }
        }
    }
}

#[test]
fn transposed_values_and_a_type_for_each_tensor_live_side_by_side() {
    // Keys and values of each layer in types of their own, the values of layer 1 with the sequence last.
    let tensors = vec![
        KvTensor::new(KvKind::Key, 0, 2, 4, KvDtype::U8).with_quant(0.1, -128),
        KvTensor::new(KvKind::Value, 0, 2, 4, KvDtype::U16).with_quant(0.1, -32_768),
        KvTensor::new(KvKind::Key, 1, 2, 4, KvDtype::F16),
        KvTensor::new(KvKind::Value, 1, 2, 4, KvDtype::F32).transposed(),
    ];
    let geometry = KvGeometry { splits: vec![SplitGeometry { tensors }] };
    let mut flat = geometry.clone();
    flat.splits[0].tensors[3] = flat.splits[0].tensors[3].canonical();
    for mode in [ModeKind::SMART_MASK, ModeKind::SHIFT_CONCAT, ModeKind::POINTER_SHIFT] {
        let options = || KvOptions { mode, n_threads: 1, ..KvOptions::default() };
        let mut kv = KvCache::new(&geometry, grid(&[1, 8], &[32, 64], KvForm::Concat), options()).unwrap();
        process(&mut kv, 41, &Policy::Lenient);
        kv.rewind(A, 20).unwrap();
        process(&mut kv, 3, &Policy::Lenient);
        // Images know one layout, so rows go over to a model whose values are not transposed, and back.
        let image = kv.export().unwrap();
        let mut other = KvCache::new(&flat, grid(&[4], &[48], KvForm::Concat), options()).unwrap();
        other.import(&image).unwrap();
        process(&mut other, 2, &Policy::Lenient);
        other.rewind(A, 23).unwrap();
        assert_eq!(other.export().unwrap(), image);
        kv.clear().unwrap();
        kv.import(&image).unwrap();
        process(&mut kv, 5, &Policy::Lenient);
    }
}

#[test]
fn rows_in_blocks_move_with_their_scales() {
    let geometry = KvGeometry::in_blocks(2, 2, 64);
    let floats = KvGeometry::uniform(2, 2, 64, KvDtype::F16);
    assert_eq!(geometry.rows_bytes(16), floats.rows_bytes(16) * 17 / 32, "8.5 bits for 16");
    let variants = || grid(&[1, 8], &[32, 64], KvForm::Concat);
    for mode in [ModeKind::SMART_MASK, ModeKind::SHIFT_CONCAT, ModeKind::POINTER_SHIFT] {
        for n_threads in [0, 2] {
            let mut kv =
                KvCache::new(&geometry, variants(), KvOptions { mode, n_threads, ..KvOptions::default() }).unwrap();
            assert_eq!(kv.buffer_bytes().unwrap(), KvCache::required_bytes(&geometry, &kv.variants, mode));
            process(&mut kv, 41, &Policy::Lenient);
            kv.rewind(A, 20).unwrap();
            process(&mut kv, 3, &Policy::Lenient);
            let image = kv.export().unwrap();
            kv.clear().unwrap();
            kv.import(&image).unwrap();
            process(&mut kv, 5, &Policy::Lenient);
            kv.rewind(A, 23).unwrap();
            assert_eq!(kv.export().unwrap(), image);
            // Rows of floats are not those of blocks.
            let error = image.converted(&floats.splits[0].tensors, None).unwrap_err().to_string();
            assert!(error.contains("in blocks with scales"), "{error}");
        }
    }
}

#[test]
fn what_reads_keys_is_refused_where_they_are_in_blocks() {
    let geometry = KvGeometry::in_blocks(1, 2, 64);
    let specs = || [spec(1, 32), spec(8, 32)];
    let tiles = KvOptions { mode: ModeKind::NATIVE_KV, ..KvOptions::default() };
    let error = KvCache::new(&geometry, Variants::new(specs(), KvForm::Concat, None).unwrap(), tiles).unwrap_err();
    assert!(error.to_string().contains("native-kv cannot keep `past_key"), "{error}");
    let long = Eviction::KeyDiff { sinks: 1, update_every: 1 };
    let group = CacheGroup { long, ..CacheGroup::plain(KvForm::Concat) };
    let variants = Variants::with_groups(specs(), vec![group], Some(100)).unwrap();
    let error = KvCache::new(&geometry, variants, KvOptions::default()).unwrap_err();
    assert!(error.to_string().contains("keys are kept in blocks with scales"), "{error}");
    let rope = Some(RopeSpec { frequencies: vec![1.0; 32], pairs: Default::default() });
    let variants = Variants::new(specs(), KvForm::Concat, None).unwrap();
    let mut kv = KvCache::new(&geometry, variants, KvOptions { rope, ..KvOptions::default() }).unwrap();
    process(&mut kv, 9, &Policy::Lenient);
    let error = kv.divide(A, 0..9, 2).unwrap_err();
    assert!(error.to_string().contains("keys are kept in blocks with scales"), "{error}");
}

#[test]
fn a_split_waits_for_its_own_jobs_only() {
    let mut kv = manager(grid(&[1, 8], &[32], KvForm::Concat), 3);
    process(&mut kv, 11, &Policy::Lenient);
    kv.set_variant(spec(1, 32)).unwrap();
    kv.wait_all().unwrap();
    // A job of split 1 does not end before split 2 has been lent; if that waited too, the clock would end it.
    let (held, until) = crossbeam::channel::bounded::<()>(0);
    let (lent, is_lent) = crossbeam::channel::bounded::<()>(1);
    let step = look(&kv, 1, 32);
    let mut running = kv.begin(&step).unwrap();
    running.start_job(1, Ops::one(Op::Hold(until))).unwrap();
    let releaser = std::thread::spawn(move || {
        let in_time = is_lent.recv_timeout(std::time::Duration::from_secs(60)).is_ok();
        drop(held);
        in_time
    });
    let first = running.split(SplitIdx(2)).unwrap().views().next().unwrap().past[0];
    lent.send(()).unwrap();
    assert!(releaser.join().unwrap(), "split 2 waited for a job of split 1");
    assert_eq!(first, byte(&geometry().splits[2].tensors[0], 0, 0, 0));
    assert!(running.split(SplitIdx(1)).is_ok(), "and split 1 for its own");
}

#[test]
fn a_job_that_fails_is_reported_and_clear_recovers() {
    for n_threads in [0, 2] {
        let mut kv = manager(grid(&[1, 8], &[32], KvForm::Concat), n_threads);
        process(&mut kv, 5, &Policy::Lenient);
        let step = look(&kv, 1, 32);
        let mut running = kv.begin(&step).unwrap();
        running.start_job(1, Ops::one(Op::Fail)).unwrap();
        let error = running.split(SplitIdx(1)).map(|_| ()).unwrap_err().to_string();
        assert_eq!(error, "cache worker: a job on split 1 failed: asked to fail; call `clear` to recover");
        assert!(running.split(SplitIdx(2)).is_ok());
        drop(running);
        assert!(kv.export().is_err());
        kv.clear().unwrap();
        assert_eq!(process(&mut kv, 9, &Policy::Lenient), "8/32 1/32");
    }
}
