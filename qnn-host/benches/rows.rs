//! Row kernels and the pool's round trip: ids `<op>/<shape>/<type>`.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use qnn_host::kernels::{Floats, Isa, Rope, elementwise, rms_norm, rope, softmax};
use qnn_host::pool::{Pool, PoolOptions};

fn benches(c: &mut Criterion) {
    let isa = Isa::detect();
    let x: Vec<f32> = (0..8192).map(|i| (i % 31) as f32 / 8.0 - 2.0).collect();
    let mut y = x.clone();
    c.bench_function("rms_norm/1x2048/f32", |b| {
        b.iter(|| rms_norm(isa, black_box(&x[..2048]), 2048, Floats::f32(&x[..2048]), None, 1e-5, &mut y[..2048]));
    });
    c.bench_function("softmax/1x4096/f32", |b| {
        b.iter(|| softmax(isa, black_box(&x[..4096]), 4096, 1.0, &mut y[..4096]))
    });
    c.bench_function("silu_mul/8192/f32", |b| b.iter(|| elementwise::silu_mul(isa, black_box(&x), &x, &mut y)));
    c.bench_function("rope/1x32x64/f32", |b| {
        let shape = Rope::by_row(1, 32, 64, Floats::f32(&x[..32]), Floats::f32(&x[32..64]));
        // The vectors keep turning; their lengths depend on the table, so start from the same vectors each time.
        b.iter(|| {
            y[..2048].copy_from_slice(&x[..2048]);
            rope(isa, &shape, black_box(&mut y[..2048]));
        });
    });
    let pool = Pool::new(&PoolOptions::default()).expect("threads start");
    c.bench_function("pool/run/empty", |b| b.iter(|| pool.run(&|_| {})));
    c.bench_function("pool/run/100_barriers", |b| b.iter(|| pool.run(&|w| (0..100).for_each(|_| w.barrier()))));
}

criterion_group!(rows, benches);
criterion_main!(rows);
