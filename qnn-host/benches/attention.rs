//! Attention of the Llama-3.2-1B shape: ids `attention/<rows>+<visible past>of<past>/<type of the past>`, with `x<layers>` where
//! layers alternate, so that the caches stream from memory; a time is that of one layer. Decode throughput is bytes of visible
//! keys and values.
//!
//! `<rows>seq+<visible past>of<past>` is a step of batched serving: each row is a token of another sequence and sees that sequence's
//! columns alone: one stretch, or with `paged+` pages that 8 sequences took in turn. Where the kernel skips the columns of
//! others, a row costs what its own columns do: 8 rows of 511 columns are as many bytes as one row that sees all 4,088.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use qnn_host::kernels::attention::{Attention, BLOCK, BlockRows, QuantisedRows, Rows, Span, attention_on};
use qnn_host::kernels::{Float, Floats, Isa};
use qnn_host::pool::{Pool, PoolOptions};

const HEADS: usize = 32;
const KV_HEADS: usize = 8;
const DIM: usize = 64;

/// Slots of a page of a sequence, as `kvmanager::PAGE`.
const PAGE: usize = 64;

/// Which columns of the past a row sees.
#[derive(Clone, Copy)]
enum Past {
    /// All rows the first ones.
    First(usize),
    /// Row `r` those of sequence `r` of 8.
    OfSequence { n: usize, paged: bool },
}

impl Past {
    const SEQUENCES: usize = 8;

    fn n(self) -> usize {
        match self {
            Self::First(n) | Self::OfSequence { n, .. } => n,
        }
    }

    fn sees(self, row: usize, column: usize) -> bool {
        match self {
            Self::First(n) => column < n,
            Self::OfSequence { n, paged: false } => column / n == row,
            Self::OfSequence { n, paged: true } => {
                let (page, in_page) = (column / PAGE, column % PAGE);
                page % Self::SEQUENCES == row && page / Self::SEQUENCES * PAGE + in_page < n
            }
        }
    }

    fn is_of_sequence(self) -> bool {
        matches!(self, Self::OfSequence { .. })
    }
}

/// Steps of `rows`, behind that number of columns of the past.
const CASES: &[(usize, usize, usize, Past)] = &[
    // Layers, rows, past, seen of it.
    (1, 1, 4095, Past::First(100)),
    (1, 1, 4095, Past::First(4000)),
    (16, 1, 4095, Past::First(4000)),
    (1, 32, 992, Past::First(200)),
    (1, 128, 1920, Past::First(0)),
    (1, 128, 3968, Past::First(3000)),
    (16, 1, 4088, Past::First(4088)),
    (16, 8, 4088, Past::First(4088)),
    (16, 1, 4088, Past::OfSequence { n: 511, paged: false }),
    (16, 4, 4088, Past::OfSequence { n: 511, paged: false }),
    (16, 8, 4088, Past::OfSequence { n: 511, paged: false }),
    (16, 4, 4088, Past::OfSequence { n: 504, paged: true }),
    (16, 8, 4088, Past::OfSequence { n: 504, paged: true }),
    (16, 8, 4088, Past::OfSequence { n: 128, paged: true }),
];

/// Keys or values of `layers` layers in half precision: 0.25.
fn cache(layers: usize, len: usize) -> Vec<u8> {
    0x3400u16.to_ne_bytes().repeat(layers * KV_HEADS * DIM * len)
}

/// Bytes as a type of keys and values.
fn read_as<'a>(ty: &str, bytes: &'a [u8]) -> Rows<'a> {
    match ty {
        "u8" => Rows::Quantised(QuantisedRows { bytes, scale: 0.01, offset: -128 }),
        "q8_0" => {
            let (bytes, scales) = bytes.split_at(bytes.len() / (BLOCK + 2) * BLOCK);
            Rows::Blocks(BlockRows { bytes, scales, offset: -128 })
        }
        _ => Floats::new(bytes, Float::F16).into(),
    }
}

fn benches(c: &mut Criterion) {
    let pool = Pool::new(&PoolOptions::default()).expect("threads start");
    let isa = Isa::detect();
    let mut scratch = Vec::new();
    let mut group = c.benchmark_group("attention");
    for &(layers, rows, past, seen) in CASES {
        let visible = seen.n();
        let total = past + rows;
        let (past_bytes, new_bytes) = (cache(2 * layers, past), cache(1, rows));
        let mut mask = vec![-1000.0f32; rows * total];
        for (row, mask) in mask.chunks_exact_mut(total).enumerate() {
            let (of_past, new) = mask.split_at_mut(past);
            of_past.iter_mut().enumerate().filter(|(at, _)| seen.sees(row, *at)).for_each(|(_, m)| *m = 0.0);
            // A row sees those before it where they are of its sequence.
            let first = if seen.is_of_sequence() { row } else { 0 };
            new[first..=row].fill(0.0);
        }
        let q = vec![0.1f32; rows * HEADS * DIM];
        let mut out = vec![0.0; q.len()];
        for (ty, size) in [("f16", 2), ("u8", 1), ("q8_0", 1)] {
            // Blocks have two bytes more.
            let scales = if ty == "q8_0" { KV_HEADS * DIM * past / BLOCK * 2 } else { 0 };
            let past_len = |size: usize| size * KV_HEADS * DIM * past + scales;
            let caches: Vec<_> = past_bytes.chunks_exact(past_len(size)).map(|b| read_as(ty, b)).collect();
            let new = read_as("f16", &new_bytes);
            let mut turns = (0..layers).cycle();
            if rows == 1 || seen.is_of_sequence() {
                let bytes = rows * 2 * KV_HEADS * DIM * (size * visible + 2);
                group.throughput(Throughput::Bytes(bytes as u64));
            } else {
                group.throughput(Throughput::Elements(rows as u64));
            }
            let turn = if layers > 1 { format!("x{layers}") } else { String::new() };
            let sign = match seen {
                Past::First(_) => "+",
                Past::OfSequence { paged: false, .. } => "seq+",
                Past::OfSequence { paged: true, .. } => "paged+",
            };
            group.bench_function(BenchmarkId::new(format!("{rows}{sign}{visible}of{past}{turn}"), ty), |b| {
                b.iter(|| {
                    let layer = turns.next().unwrap_or(0);
                    let spans = [
                        Span { keys: caches[2 * layer], values: caches[2 * layer + 1], len: past },
                        Span { keys: new, values: new, len: rows },
                    ];
                    let job = |out| Attention {
                        q: &q,
                        q_row_stride: HEADS * DIM,
                        q_head_stride: DIM,
                        rows,
                        heads: HEADS,
                        kv_heads: KV_HEADS,
                        dim: DIM,
                        scale: 1.0,
                        keys_by_row: ty == "q8_0",
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
    }
    group.finish();
}

criterion_group!(attention, benches);
criterion_main!(attention);
