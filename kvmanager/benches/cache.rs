//! The cache's byte moves by criterion, in bytes/s, next to `memcpy` of as many bytes: `operation/who/model/dtype`.
//! What they have to be compared with is noise-free in the bench `side_by_side`.

mod cases;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::{Duration, Instant};

fn cache(c: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    for model in &cases::models() {
        for mut case in cases::cases(model, dir.path(), "") {
            let mut group = c.benchmark_group(case.op);
            group.throughput(Throughput::Bytes(case.bytes as u64)).warm_up_time(Duration::from_millis(200));
            group.measurement_time(Duration::from_millis(600)).sample_size(10);
            group.bench_function(BenchmarkId::new(case.who, &model.name), |b| {
                b.iter_custom(|iters| {
                    let mut took = Duration::ZERO;
                    for _ in 0..iters {
                        let start = Instant::now();
                        (case.run)(&mut case.kv);
                        took += start.elapsed();
                        (case.reset)(&mut case.kv);
                    }
                    took
                });
            });
            for (what, bytes) in [("memcpy", Some(case.bytes)), ("memcpy of the cache lines", case.lines_bytes)] {
                let Some(bytes) = bytes else { continue };
                let (src, mut dst) = (vec![1u8; bytes], vec![0u8; bytes]);
                group.bench_function(BenchmarkId::new(format!("{what} for {}", case.who), &model.name), |b| {
                    b.iter(|| black_box(&mut dst).copy_from_slice(black_box(&src)));
                });
            }
            group.finish();
        }
    }
}

criterion_group!(benches, cache);
criterion_main!(benches);
