//! Attention of the Llama-3.2-1B shape: ids `attention/<rows>+<visible past>of<past>/<type>`. Decode throughput is bytes of visible
//! keys and values.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use qnn_host::kernels::attention::{Attention, Span, attention_on};
use qnn_host::kernels::{Float, Floats, Isa};
use qnn_host::pool::{Pool, PoolOptions};

const HEADS: usize = 32;
const KV_HEADS: usize = 8;
const DIM: usize = 64;

/// Half precision: 0.25.
fn cache(len: usize) -> Vec<u8> {
    0x3400u16.to_ne_bytes().repeat(KV_HEADS * DIM * len)
}

fn benches(c: &mut Criterion) {
    let pool = Pool::new(&PoolOptions::default()).expect("threads start");
    let isa = Isa::detect();
    let mut scratch = Vec::new();
    let mut group = c.benchmark_group("attention");
    for (rows, past, visible) in [(1, 4095, 100), (1, 4095, 4000), (32, 992, 200), (128, 1920, 0), (128, 3968, 3000)] {
        let total = past + rows;
        let (past_bytes, new_bytes) = (cache(past), cache(rows));
        let mut mask = vec![-1000.0f32; rows * total];
        for (row, mask) in mask.chunks_exact_mut(total).enumerate() {
            mask[..visible].fill(0.0);
            mask[past..=past + row].fill(0.0);
        }
        let q = vec![0.1f32; rows * HEADS * DIM];
        let mut out = vec![0.0; q.len()];
        let f16 = |bytes| Floats::new(bytes, Float::F16);
        let spans = [
            Span { keys: f16(&past_bytes), values: f16(&past_bytes), len: past },
            Span { keys: f16(&new_bytes), values: f16(&new_bytes), len: rows },
        ];
        if rows == 1 {
            group.throughput(Throughput::Bytes((4 * KV_HEADS * DIM * (visible + 1)) as u64));
        } else {
            group.throughput(Throughput::Elements(rows as u64));
        }
        group.bench_function(BenchmarkId::new(format!("{rows}+{visible}of{past}"), "f16"), |b| {
            b.iter(|| {
                let job = |out| Attention {
                    q: &q,
                    q_row_stride: HEADS * DIM,
                    q_head_stride: DIM,
                    rows,
                    heads: HEADS,
                    kv_heads: KV_HEADS,
                    dim: DIM,
                    scale: 1.0,
                    spans: &spans,
                    mask: Some(Floats::f32(&mask)),
                    out,
                    out_row_stride: HEADS * DIM,
                    out_head_stride: DIM,
                };
                attention_on(&pool, isa, job, &mut out, &mut scratch);
            });
        });
    }
    group.finish();
}

criterion_group!(attention, benches);
criterion_main!(attention);
