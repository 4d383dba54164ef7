//! The cache's byte moves in GB/s next to `memcpy` of as many bytes, for two Llama geometries at CL 4,096.
//!
//! Ids: `operation/who/model/dtype`; the `memcpy` row of each group copies the bytes that the operation has to move, in
//! one block, in the same run. Trap: a decode step's keys are one element in each of `heads * head_dim` lines, so an
//! append of one token touches a cache line for each; no layout with the sequence last can come near a block copy there.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use genie_types::{Ar, Cl, SplitIdx, VariantSpec};
use kvmanager::{
    CacheGroup, InferenceStep, KvDtype, KvForm, KvGeometry, KvKind, KvManager, KvOptions, KvTensor, LongContext,
    MaskCol, ModeKind, ModelHash, Snapshot, Variants,
};
use std::hint::black_box;
use std::time::{Duration, Instant};

struct Model {
    name: String,
    geometry: KvGeometry,
    /// One tensor a head, as pointer shift wants it.
    by_head: KvGeometry,
}

/// KV shapes of Llama 3.2 1B and Llama 3.1 8B.
fn models() -> Vec<Model> {
    let dtypes = [("u8", KvDtype::U8), ("f16", KvDtype::F16)];
    let mut models = Vec::new();
    for (model, layers, heads, dim) in [("1B", 16, 8, 64), ("8B", 32, 8, 128)] {
        for (name, dtype) in dtypes {
            let geometry = KvGeometry::uniform(layers, heads, dim, dtype);
            let mut by_head = geometry.clone();
            let tensors = std::mem::take(&mut by_head.splits[0].tensors);
            by_head.splits[0].tensors =
                tensors.iter().flat_map(|t| (0..heads).map(|h| t.for_head(h)).collect::<Vec<KvTensor>>()).collect();
            models.push(Model { name: format!("{model}/{name}"), geometry, by_head });
        }
    }
    models
}

fn spec(ar: u32, cl: u32) -> VariantSpec {
    VariantSpec::new(Ar::new(ar).unwrap(), Cl::new(cl).unwrap()).unwrap()
}

fn manager(geometry: &KvGeometry, mode: ModeKind, long: LongContext) -> KvManager {
    let specs = [1024, 4096].iter().flat_map(|&cl| [spec(1, cl), spec(128, cl)]);
    let group = CacheGroup { long, ..CacheGroup::plain(KvForm::Concat) };
    let size = (long != LongContext::None).then_some(1 << 30);
    let variants = Variants::with_groups(specs, vec![group], size).unwrap();
    KvManager::new(geometry, variants, KvOptions { mode, n_threads: 0 }).unwrap()
}

fn step(spec: VariantSpec, n_past: usize, n_process: usize) -> InferenceStep {
    let new_idx = MaskCol(spec.past_capacity());
    InferenceStep { spec, n_past, n_valid_kv: n_past, n_process, past_idx: MaskCol(0), new_idx }
}

fn push(kv: &mut KvManager, step: &InferenceStep) {
    kv.commit(SplitIdx(0), step).unwrap();
    kv.advance(step).unwrap();
}

/// Fills the cache with `n` rows by steps of 128 of CL 4,096, then takes a shape.
fn filled(kv: &mut KvManager, n: usize, shape: VariantSpec) {
    kv.clear().unwrap();
    let wide = spec(128, 4096);
    kv.set_variant(wide).unwrap();
    (0..n).step_by(128).for_each(|past| push(kv, &step(wide, past, 128.min(n - past))));
    kv.set_variant(shape).unwrap();
}

fn group<'c>(c: &'c mut Criterion, name: &str, bytes: usize) -> BenchmarkGroup<'c, WallTime> {
    let mut group = c.benchmark_group(name);
    group.throughput(Throughput::Bytes(bytes as u64)).warm_up_time(Duration::from_millis(300));
    group.measurement_time(Duration::from_secs(1)).sample_size(10);
    group
}

fn memcpy(group: &mut BenchmarkGroup<'_, WallTime>, model: &Model, bytes: usize) {
    let (src, mut dst) = (vec![1u8; bytes], vec![0u8; bytes]);
    group.bench_function(BenchmarkId::new("memcpy", &model.name), |b| {
        b.iter(|| black_box(&mut dst).copy_from_slice(black_box(&src)));
    });
}

/// Times `run`, not `reset`.
fn timed(
    group: &mut BenchmarkGroup<'_, WallTime>,
    id: BenchmarkId,
    kv: &mut KvManager,
    run: impl Fn(&mut KvManager),
    reset: impl Fn(&mut KvManager),
) {
    group.bench_function(id, |b| {
        b.iter_custom(|iters| {
            let mut took = Duration::ZERO;
            for _ in 0..iters {
                let start = Instant::now();
                run(kv);
                took += start.elapsed();
                reset(kv);
            }
            took
        });
    });
}

fn append(c: &mut Criterion, model: &Model) {
    for n in [128, 1] {
        let (shape, base) = (spec(n as u32, 4096), 2048);
        let step = step(shape, base, n);
        let bytes = model.geometry.rows_bytes(n);
        let mut group = group(c, &format!("append{n}"), bytes);
        for mode in [ModeKind::SMART_MASK, ModeKind::POINTER_SHIFT, ModeKind::SHIFT_CONCAT] {
            let geometry = if mode == ModeKind::POINTER_SHIFT { &model.by_head } else { &model.geometry };
            let mut kv = manager(geometry, mode, LongContext::None);
            filled(&mut kv, base, shape);
            let id = BenchmarkId::new(mode.name(), &model.name);
            timed(&mut group, id, &mut kv, |kv| push(kv, &step), |kv| kv.rewind(base).unwrap());
        }
        memcpy(&mut group, model, bytes);
        group.finish();
    }
    // Values alone: pointer shift has nothing to do.
    let mut values = model.by_head.clone();
    values.splits[0].tensors.retain(|t| t.kind == KvKind::Value);
    let mut group = group(c, "append128values", values.rows_bytes(128));
    let mut kv = manager(&values, ModeKind::POINTER_SHIFT, LongContext::None);
    filled(&mut kv, 2048, spec(128, 4096));
    let (step, id) = (step(spec(128, 4096), 2048, 128), BenchmarkId::new("pointer-shift", &model.name));
    timed(&mut group, id, &mut kv, |kv| push(kv, &step), |kv| kv.rewind(2048).unwrap());
    memcpy(&mut group, model, values.rows_bytes(128));
    group.finish();
}

fn moves(c: &mut Criterion, model: &Model) {
    let mut kv = manager(&model.geometry, ModeKind::SMART_MASK, LongContext::None);
    for (name, from, to, rows) in [
        ("switch128to1", spec(128, 4096), spec(1, 4096), 2048),
        ("switch1024to4096", spec(128, 1024), spec(128, 4096), 896),
    ] {
        let bytes = model.geometry.rows_bytes(rows);
        let mut group = group(c, name, bytes);
        filled(&mut kv, rows, from);
        let id = BenchmarkId::new("smart-mask", &model.name);
        let (run, reset) =
            (|kv: &mut KvManager| kv.set_variant(to).unwrap(), |kv: &mut KvManager| kv.set_variant(from).unwrap());
        timed(&mut group, id, &mut kv, run, reset);
        memcpy(&mut group, model, bytes);
        group.finish();
    }
    // Rewinding moves nothing in this mode; the row says so by its time.
    let mut group = group(c, "rewind128", model.geometry.rows_bytes(128));
    let shape = spec(128, 4096);
    filled(&mut kv, 2176, shape);
    let step = step(shape, 2048, 128);
    let id = BenchmarkId::new("smart-mask", &model.name);
    timed(&mut group, id, &mut kv, |kv| kv.rewind(2048).unwrap(), |kv| push(kv, &step));
    memcpy(&mut group, model, model.geometry.rows_bytes(128));
    group.finish();
}

fn window(c: &mut Criterion, model: &Model) {
    // A full ring: each step of 128 overwrites the oldest 128 rows.
    let bytes = model.geometry.rows_bytes(128);
    let mut group = group(c, "ring128", bytes);
    let mut kv = manager(&model.geometry, ModeKind::SMART_MASK, LongContext::Ring { sinks: 4 });
    let shape = spec(128, 4096);
    filled(&mut kv, 4096, shape);
    let id = BenchmarkId::new("smart-mask", &model.name);
    let next = |kv: &mut KvManager| {
        let step = step(shape, kv.state().n_past, 128);
        push(kv, &step);
    };
    timed(&mut group, id, &mut kv, next, |_| {});
    memcpy(&mut group, model, bytes);
    group.finish();
}

fn snapshots(c: &mut Criterion, model: &Model) {
    let rows = 1024;
    let bytes = model.geometry.rows_bytes(rows);
    let mut kv = manager(&model.geometry, ModeKind::SMART_MASK, LongContext::None);
    filled(&mut kv, rows, spec(128, 4096));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bench.kvs");
    let save = |kv: &mut KvManager| Snapshot::take(kv, ModelHash::default(), &[]).unwrap().write(&path).unwrap();
    let mut saving = group(c, "save1024", bytes);
    timed(&mut saving, BenchmarkId::new("fsync", &model.name), &mut kv, save, |_| {});
    memcpy(&mut saving, model, bytes);
    saving.finish();
    let mut restoring = group(c, "restore1024", bytes);
    let restore = |kv: &mut KvManager| Snapshot::read(&path).unwrap().restore(kv, ModelHash::default()).unwrap();
    timed(&mut restoring, BenchmarkId::new("smart-mask", &model.name), &mut kv, restore, |_| {});
    memcpy(&mut restoring, model, bytes);
    restoring.finish();
}

fn cache(c: &mut Criterion) {
    for model in &models() {
        append(c, model);
        moves(c, model);
        window(c, model);
        snapshots(c, model);
    }
}

criterion_group!(benches, cache);
criterion_main!(benches);
