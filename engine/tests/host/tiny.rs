//! A tiny Llama with pseudo-random weights: its numbers, and what it says without cache, graphs or backend.

/// Layers.
pub const LAYERS: usize = 2;
/// Width of the residual stream.
pub const HIDDEN: usize = 32;
/// Query heads.
pub const HEADS: usize = 4;
/// Key and value heads.
pub const KV_HEADS: usize = 2;
/// Width of a head.
pub const HEAD_DIM: usize = 8;
/// Width of the feed-forward part.
pub const FFN: usize = 48;
/// Vocabulary.
pub const VOCAB: usize = 56;
/// Base of the rotary frequencies.
pub const THETA: f64 = 10_000.0;
/// Of the norms.
pub const EPSILON: f32 = 1e-5;

/// A matrix `[rows, columns]`, row-major.
#[derive(Clone)]
pub struct Matrix {
    /// Rows, columns; a vector has one row.
    pub dims: [usize; 2],
    /// Elements.
    pub data: Vec<f32>,
}

/// The weights of one layer, `[out, in]`.
pub struct Layer {
    /// Before attention.
    pub norm1: Matrix,
    /// Query projection, with 1/sqrt(head_dim) folded in.
    pub q: Matrix,
    /// Key projection.
    pub k: Matrix,
    /// Value projection.
    pub v: Matrix,
    /// Output projection.
    pub o: Matrix,
    /// Before the feed-forward part.
    pub norm2: Matrix,
    /// Gate.
    pub gate: Matrix,
    /// Up.
    pub up: Matrix,
    /// Down.
    pub down: Matrix,
}

/// All weights.
pub struct Tiny {
    /// Embeddings `[vocab, hidden]`.
    pub embed: Matrix,
    /// Layers.
    pub layers: Vec<Layer>,
    /// Last norm.
    pub norm: Matrix,
    /// LM head `[vocab, hidden]`.
    pub head: Matrix,
}

impl Tiny {
    /// The same weights every time; `round` is applied to each (float16 models round to float16).
    pub fn new(round: impl Fn(f32) -> f32) -> Self {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        let mut matrix = |rows: usize, columns: usize, base: f32, spread: f32| Matrix {
            dims: [rows, columns],
            data: (0..rows * columns).map(|_| round(base + spread * draw())).collect(),
        };
        let scale = 1.7 / (HIDDEN as f32).sqrt();
        let embed = matrix(VOCAB, HIDDEN, 0.0, 1.0);
        let layers = (0..LAYERS)
            .map(|_| Layer {
                norm1: matrix(1, HIDDEN, 1.0, 0.2),
                q: matrix(HEADS * HEAD_DIM, HIDDEN, 0.0, scale / (HEAD_DIM as f32).sqrt() * 2.0),
                k: matrix(KV_HEADS * HEAD_DIM, HIDDEN, 0.0, scale * 2.0),
                v: matrix(KV_HEADS * HEAD_DIM, HIDDEN, 0.0, scale),
                o: matrix(HIDDEN, HEADS * HEAD_DIM, 0.0, scale),
                norm2: matrix(1, HIDDEN, 1.0, 0.2),
                gate: matrix(FFN, HIDDEN, 0.0, scale),
                up: matrix(FFN, HIDDEN, 0.0, scale),
                down: matrix(HIDDEN, FFN, 0.0, scale),
            })
            .collect();
        Self { embed, layers, norm: matrix(1, HIDDEN, 1.0, 0.2), head: matrix(VOCAB, HIDDEN, 0.0, scale) }
    }

    /// Logits of the last token, in double, over all tokens at once.
    pub fn logits(&self, tokens: &[u32]) -> Vec<f64> {
        self.logits_with(tokens, |x| x)
    }

    /// The same with every number of keys and values changed, as a cache that rounds would.
    pub fn logits_with(&self, tokens: &[u32], cached: impl Fn(f64) -> f64) -> Vec<f64> {
        let cached = |row: Vec<f64>| -> Vec<f64> { row.into_iter().map(&cached).collect() };
        let row = |m: &Matrix, i: usize| -> Vec<f64> {
            m.data[i * m.dims[1]..(i + 1) * m.dims[1]].iter().map(|&x| x.into()).collect()
        };
        let mut x: Vec<Vec<f64>> = tokens.iter().map(|&t| row(&self.embed, t as usize)).collect();
        for layer in &self.layers {
            let h: Vec<_> = x.iter().map(|x| norm(x, &layer.norm1)).collect();
            let q: Vec<_> = h.iter().enumerate().map(|(p, h)| rotate(&mul(&layer.q, h), p)).collect();
            let k: Vec<_> = h.iter().enumerate().map(|(p, h)| cached(rotate(&mul(&layer.k, h), p))).collect();
            let v: Vec<_> = h.iter().map(|h| cached(mul(&layer.v, h))).collect();
            for p in 0..x.len() {
                let mut mixed = vec![0.0; HEADS * HEAD_DIM];
                for head in 0..HEADS {
                    let kv = head / (HEADS / KV_HEADS) * HEAD_DIM;
                    let at = head * HEAD_DIM;
                    let score = |s: usize| (0..HEAD_DIM).map(|d| q[p][at + d] * k[s][kv + d]).sum::<f64>();
                    let scores: Vec<f64> = (0..=p).map(score).collect();
                    let top = scores.iter().copied().fold(f64::MIN, f64::max);
                    let shares: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
                    let total: f64 = shares.iter().sum();
                    for (s, share) in shares.iter().enumerate() {
                        (0..HEAD_DIM).for_each(|d| mixed[at + d] += share / total * v[s][kv + d]);
                    }
                }
                add(&mut x[p], &mul(&layer.o, &mixed));
            }
            for x in &mut x {
                let h = norm(x, &layer.norm2);
                let gate = mul(&layer.gate, &h);
                let up = mul(&layer.up, &h);
                let act: Vec<f64> = gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
                add(x, &mul(&layer.down, &act));
            }
        }
        mul(&self.head, &norm(x.last().expect("at least one token"), &self.norm))
    }
}

fn mul(m: &Matrix, x: &[f64]) -> Vec<f64> {
    m.data.chunks(m.dims[1]).map(|row| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum()).collect()
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

fn norm(x: &[f64], gamma: &Matrix) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + f64::from(EPSILON)).sqrt();
    x.iter().zip(&gamma.data).map(|(x, g)| x * scale * f64::from(*g)).collect()
}

/// Rotates the pairs `(j, j + half)` of every head.
fn rotate(x: &[f64], position: usize) -> Vec<f64> {
    let half = HEAD_DIM / 2;
    let mut out = x.to_vec();
    for head in out.chunks_mut(HEAD_DIM) {
        for j in 0..half {
            let (sin, cos) = (position as f64 * THETA.powf(-(j as f64) / half as f64)).sin_cos();
            let (a, b) = (head[j], head[j + half]);
            head[j] = a * cos - b * sin;
            head[j + half] = a * sin + b * cos;
        }
    }
    out
}
