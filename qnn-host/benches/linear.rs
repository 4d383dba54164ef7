//! Linear layers of the Llama-3.2-1B and SmolLM2-135M shapes: ids `linear/<m>x<n>x<k>/<type>`, throughput in bytes of weights
//! for one row, in multiplications and additions for many. `QNN_HOST_UNIT=avx2` (plain, avx2vnni, avx512vnni, ..) takes another unit than the best.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use qnn_host::kernels::linear::{Linear, linear_on};
use qnn_host::kernels::packed::{Bits, Packed, Packing};
use qnn_host::kernels::{Float, Floats, Isa, Mat};
use qnn_host::pool::{Pool, PoolOptions};

const SHAPES: [(usize, usize); 4] = [(2048, 2048), (8192, 2048), (2048, 8192), (1536, 576)];

fn benches(c: &mut Criterion) {
    let pool = Pool::new(&PoolOptions::default()).expect("threads start");
    let unit = std::env::var("QNN_HOST_UNIT");
    let isa = unit.map_or_else(
        |_| Isa::detect(),
        |unit| Isa::available().find(|isa| isa.name() == unit).expect("QNN_HOST_UNIT names a unit that this CPU has"),
    );
    let mut scratch = Vec::new();
    let mut group = c.benchmark_group("linear");
    for m in [1, 2, 4, 8, 16, 32, 128, 512] {
        for (n, k) in SHAPES {
            let x: Vec<f32> = (0..m * k).map(|i| (i % 17) as f32 / 8.0 - 1.0).collect();
            let mut out = vec![0.0; m * n];
            let mut run = |name: &str, mat: Mat<'_>, bytes: usize| {
                group.throughput(match m {
                    1 => Throughput::Bytes(bytes as u64),
                    _ => Throughput::Elements(2 * (m * n * k) as u64),
                });
                group.bench_function(BenchmarkId::new(format!("{m}x{n}x{k}"), name), |b| {
                    b.iter(|| linear_on(&pool, isa, black_box(&x), m, |o| Linear::new(mat, o), &mut out, &mut scratch));
                });
            };
            for ty in [Float::F32, Float::F16] {
                // Small positive numbers in either type; written, so that every page is a real one.
                let bytes: Vec<u8> = (0..n * k * ty.size_bytes()).map(|i| (i % 48) as u8).collect();
                run(&format!("{ty:?}").to_lowercase(), Mat::new(Floats::new(&bytes, ty), n, k), bytes.len());
            }
            let names = [
                "q4_0", "q8_0", "w4", "w8", "q6_k", "q4_k", "q5_k", "iq4_xs", "q5_0", "iq4_nl", "q3_k", "q2_k", "mxfp4",
            ];
            for (name, packing) in names.into_iter().zip(Packing::ALL) {
                let made = |packing: Packing, cols: usize| -> Vec<u8> {
                    let len = packing.size_bytes(n, cols).expect("a real shape");
                    // Beside floats a scale is an exponent: 2^-27 to 2^20, as numbers that are not normal take longer.
                    let least = if packing.bits == Bits::FloatFour { 100 } else { 0 };
                    (0..len).map(|i| least + (i % 48) as u8).collect()
                };
                let bytes = made(packing, k);
                let packed = Packed::new(&bytes, packing, n, k);
                let Some(format) = packing.minima() else {
                    run(name, packed.into(), bytes.len());
                    continue;
                };
                let minima = made(format, k.div_ceil(packing.minimum_cols()));
                run(name, packed.with_minima(&minima).into(), bytes.len() + minima.len());
            }
        }
    }
    group.finish();
}

criterion_group!(linear, benches);
criterion_main!(linear);
