//! Weights that come from memory, as in decode: one layer of 768 MB in huge pages, for few rows. Ids `streams/<m>x<n>x<k>/<type>`,
//! throughput in bytes of weights.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use memmap2::{Advice, MmapMut};
use qnn_host::kernels::linear::{Linear, linear_on};
use qnn_host::kernels::packed::{Packed, Packing};
use qnn_host::kernels::{Float, Floats, Isa, Mat};
use qnn_host::pool::{Pool, PoolOptions};

/// Bytes of the layer, about: more than a machine's caches hold for one of its users.
const BYTES: usize = 768 << 20;
/// Of a huge page.
const PAGE: usize = 2 << 20;
const K: usize = 2048;

fn benches(c: &mut Criterion) {
    let pool = Pool::new(&PoolOptions::default()).expect("threads start");
    let isa = Isa::detect();
    let mut memory = MmapMut::map_anon(BYTES + PAGE).expect("memory for the layer");
    // Where the system has none, pages stay small, and the figures say so.
    let _ = memory.advise(Advice::HugePage);
    let at = memory.as_ptr().align_offset(PAGE);
    // Normal numbers in each format, as others take longer: a scale may be a float16 or an exponent of two.
    memory[at..].iter_mut().enumerate().for_each(|(i, byte)| *byte = 64 + (i % 48) as u8);
    let bytes = &memory[at..at + BYTES];
    let mut scratch = Vec::new();
    let mut group = c.benchmark_group("streams");
    group.sample_size(10);
    for m in [1, 2, 4, 8, 12, 16, 32] {
        let x: Vec<f32> = (0..m * K).map(|i| (i % 17) as f32 / 8.0 - 1.0).collect();
        let mut run = |name: &str, mat: Mat<'_>, n: usize, len: usize| {
            let mut out = vec![0.0; m * n];
            group.throughput(Throughput::Bytes(len as u64));
            group.bench_function(BenchmarkId::new(format!("{m}x{n}x{K}"), name), |b| {
                b.iter(|| linear_on(&pool, isa, black_box(&x), m, |o| Linear::new(mat, o), &mut out, &mut scratch));
            });
        };
        let (n, len) = (BYTES / (2 * K), BYTES);
        run("f16", Mat::new(Floats::new(bytes, Float::F16), n, K), n, len);
        let names =
            ["q4_0", "q8_0", "w4", "w8", "q6_k", "q4_k", "q5_k", "iq4_xs", "q5_0", "iq4_nl", "q3_k", "q2_k", "mxfp4"];
        for (name, packing) in names.into_iter().zip(Packing::ALL) {
            let size = |packing: Packing, n: usize, cols: usize| packing.size_bytes(n, cols).expect("a real shape");
            let minima = packing.minima().map(|minima| (minima, K.div_ceil(packing.minimum_cols())));
            let of_minima = |n: usize| minima.map_or(0, |(minima, cols)| size(minima, n, cols));
            let n = BYTES / (size(packing, 16, K) + of_minima(16)) * 16;
            let (len, of_minima) = (size(packing, n, K), of_minima(n));
            let mut packed = Packed::new(&bytes[..len], packing, n, K);
            if of_minima > 0 {
                packed = packed.with_minima(&bytes[len..len + of_minima]);
            }
            run(name, packed.into(), n, len + of_minima);
        }
    }
    group.finish();
}

criterion_group!(streams, benches);
criterion_main!(streams);
