//! The cache's byte moves in GB/s next to `memcpy` of as many bytes, for two Llama geometries at CL 4,096.
//!
//! Ids: `operation/model/dtype`; the `memcpy` row of each group copies the bytes the operation has to move, in one
//! block, in the same run.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use genie_types::{Ar, Cl, SplitIdx, VariantSpec};
use kvmanager::{InferenceStep, KvDtype, KvForm, KvGeometry, KvManager, KvOptions, MaskCol, Variants};
use std::time::{Duration, Instant};

struct Model {
    name: &'static str,
    geometry: KvGeometry,
}

/// KV shapes of Llama 3.2 1B and Llama 3.1 8B.
fn models() -> Vec<Model> {
    let dtypes = [("u8", KvDtype::U8), ("f16", KvDtype::F16)];
    let shapes = [("1B", 16, 8, 64), ("8B", 32, 8, 128)];
    let mut models = Vec::new();
    for (model, layers, heads, dim) in shapes {
        for (name, dtype) in dtypes {
            let name: &'static str = format!("{model}/{name}").leak();
            models.push(Model { name, geometry: KvGeometry::uniform(layers, heads, dim, dtype) });
        }
    }
    models
}

fn spec(ar: u32, cl: u32) -> VariantSpec {
    VariantSpec::new(Ar::new(ar).unwrap(), Cl::new(cl).unwrap()).unwrap()
}

fn manager(model: &Model) -> KvManager {
    let specs = [1024, 4096].iter().flat_map(|&cl| [spec(1, cl), spec(128, cl)]);
    let variants = Variants::new(specs, KvForm::Concat, None).unwrap();
    KvManager::new(&model.geometry, variants, KvOptions { n_threads: 0, ..KvOptions::default() }).unwrap()
}

fn step(spec: VariantSpec, n_past: usize, n_process: usize) -> InferenceStep {
    let new_idx = MaskCol(spec.past_capacity());
    InferenceStep { spec, n_past, n_valid_kv: n_past, n_process, past_idx: MaskCol(0), new_idx }
}

/// Fills the cache with `n` rows by steps of 128.
fn fill(kv: &mut KvManager, spec: VariantSpec, n: usize) {
    let at = kv.state().n_past;
    kv.set_variant(spec).unwrap();
    for past in (at..n).step_by(128) {
        let step = step(spec, past, 128.min(n - past));
        kv.commit(SplitIdx(0), &step).unwrap();
        kv.advance(&step).unwrap();
    }
}

fn memcpy(group: &mut criterion::BenchmarkGroup<'_, criterion::measurement::WallTime>, model: &Model, bytes: usize) {
    let (src, mut dst) = (vec![1u8; bytes], vec![0u8; bytes]);
    group.bench_function(BenchmarkId::new("memcpy", model.name), |b| {
        b.iter(|| std::hint::black_box(&mut dst).copy_from_slice(std::hint::black_box(&src)));
    });
}

fn cache(c: &mut Criterion) {
    for model in &models() {
        let mut kv = manager(model);

        for (ar, base) in [(128, 2048), (1, 2048)] {
            let (spec, n) = (spec(ar, 4096), ar as usize);
            let bytes = model.geometry.rows_bytes(n);
            let mut group = c.benchmark_group(format!("append{ar}"));
            group.throughput(Throughput::Bytes(bytes as u64)).warm_up_time(Duration::from_millis(300));
            group.measurement_time(Duration::from_secs(1)).sample_size(10);
            kv.clear().unwrap();
            fill(&mut kv, self::spec(128, 4096), base);
            kv.set_variant(spec).unwrap();
            let step = step(spec, base, n);
            group.bench_function(BenchmarkId::new("smart-mask", model.name), |b| {
                b.iter_custom(|iters| {
                    let mut took = Duration::ZERO;
                    for _ in 0..iters {
                        let start = Instant::now();
                        kv.commit(SplitIdx(0), &step).unwrap();
                        kv.advance(&step).unwrap();
                        took += start.elapsed();
                        kv.rewind(base).unwrap();
                    }
                    took
                });
            });
            memcpy(&mut group, model, bytes);
            group.finish();
        }

        for (name, from, to, rows) in [
            ("switch128to1", spec(128, 4096), spec(1, 4096), 2048),
            ("switch1024to4096", spec(128, 1024), spec(128, 4096), 896),
        ] {
            let bytes = model.geometry.rows_bytes(rows);
            let mut group = c.benchmark_group(name);
            group.throughput(Throughput::Bytes(bytes as u64)).warm_up_time(Duration::from_millis(300));
            group.measurement_time(Duration::from_secs(1)).sample_size(10);
            kv.clear().unwrap();
            fill(&mut kv, from, rows);
            group.bench_function(BenchmarkId::new("smart-mask", model.name), |b| {
                b.iter_custom(|iters| {
                    let mut took = Duration::ZERO;
                    for _ in 0..iters {
                        kv.set_variant(from).unwrap();
                        let start = Instant::now();
                        kv.set_variant(to).unwrap();
                        took += start.elapsed();
                    }
                    took
                });
            });
            memcpy(&mut group, model, bytes);
            group.finish();
        }
    }
}

criterion_group!(benches, cache);
criterion_main!(benches);
