//! The decoder's weights, and its logits in double precision without cache, graphs or backend.

use genie_types::Dtype;

/// Extents of a decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the feed-forward part.
    pub ffn: usize,
    /// Entries of the vocabulary.
    pub vocab: usize,
    /// Base of the rotary frequencies.
    pub theta: f64,
}

impl Size {
    /// Small enough for thousands of steps.
    pub const TINY: Self =
        Self { layers: 2, hidden: 32, heads: 4, kv_heads: 2, head_dim: 8, ffn: 48, vocab: 56, theta: 1e4 };

    /// The extents of the bundles that were recorded with libGenie, with a smaller vocabulary.
    pub const RECORDED: Self =
        Self { layers: 2, hidden: 64, heads: 4, kv_heads: 2, head_dim: 32, ffn: 128, vocab: 128, theta: 1e4 };

    /// Pairs that are rotated in a head.
    pub const fn rope_dim(&self) -> usize {
        self.head_dim / 2
    }
}

/// A matrix `[rows, columns]`, row-major; a vector has one row.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Rows, columns.
    pub dims: [usize; 2],
    /// Elements.
    pub data: Vec<f32>,
}

/// The weights of one layer, `[out, in]`.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the names are those of every decoder
pub struct Layer {
    pub norm1: Matrix,
    /// With 1/sqrt(head_dim) folded in.
    pub q: Matrix,
    pub k: Matrix,
    pub v: Matrix,
    pub o: Matrix,
    pub norm2: Matrix,
    pub gate: Matrix,
    pub up: Matrix,
    pub down: Matrix,
}

/// All weights.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// Extents.
    pub size: Size,
    /// Embeddings `[vocab, hidden]`.
    pub embed: Matrix,
    /// Layers.
    pub layers: Vec<Layer>,
    /// Last norm.
    pub norm: Matrix,
    /// LM head `[vocab, hidden]`.
    pub head: Matrix,
}

/// Keys and values: by layer, then by position.
pub type Rows = Vec<Vec<(Vec<f64>, Vec<f64>)>>;

/// Of the norms.
pub(super) const EPSILON: f32 = 1e-5;

impl Decoder {
    /// Seed of the tests that need no other one.
    pub const SEED: u64 = 0x4232_db54_aa7f_b6e9;

    /// The same weights for the same seed; `round` is applied to each.
    pub fn random(size: Size, seed: u64, round: impl Fn(f32) -> f32) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
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
        let Size { hidden, heads, kv_heads, head_dim, ffn, vocab, .. } = size;
        let scale = 1.7 / (hidden as f32).sqrt();
        let embed = matrix(vocab, hidden, 0.0, 1.0);
        let layers = (0..size.layers)
            .map(|_| Layer {
                norm1: matrix(1, hidden, 1.0, 0.2),
                q: matrix(heads * head_dim, hidden, 0.0, scale / (head_dim as f32).sqrt() * 2.0),
                k: matrix(kv_heads * head_dim, hidden, 0.0, scale * 2.0),
                v: matrix(kv_heads * head_dim, hidden, 0.0, scale),
                o: matrix(hidden, heads * head_dim, 0.0, scale),
                norm2: matrix(1, hidden, 1.0, 0.2),
                gate: matrix(ffn, hidden, 0.0, scale),
                up: matrix(ffn, hidden, 0.0, scale),
                down: matrix(hidden, ffn, 0.0, scale),
            })
            .collect();
        Self { size, embed, layers, norm: matrix(1, hidden, 1.0, 0.2), head: matrix(vocab, hidden, 0.0, scale) }
    }

    /// Weights as a graph of that type holds them.
    pub fn for_type(size: Size, seed: u64, dtype: Dtype) -> Self {
        Self::random(size, seed, |x| if dtype == Dtype::F16 { half::f16::from_f32(x).to_f32() } else { x })
    }

    /// Logits of the last token, over all tokens at once: full recomputation.
    pub fn logits(&self, tokens: &[u32]) -> Vec<f64> {
        self.logits_kept(tokens, |x| x)
    }

    /// The same where keys and values are rounded by `kept`, as a cache rounds them.
    pub fn logits_kept(&self, tokens: &[u32], kept: impl Fn(f64) -> f64) -> Vec<f64> {
        let all: Vec<Vec<usize>> = (0..tokens.len()).map(|p| (0..=p).collect()).collect();
        self.logits_seeing(tokens, kept, |_, p| &all[p])
    }

    /// The same where keys and values are rounded by `kept`, and the token at position `p` sees, in a layer, only some
    /// positions.
    pub fn logits_seeing<'a>(
        &self,
        tokens: &[u32],
        kept: impl Fn(f64) -> f64,
        sees: impl Fn(usize, usize) -> &'a [usize],
    ) -> Vec<f64> {
        let mut x: Vec<Vec<f64>> = tokens.iter().map(|&t| self.embedding(t)).collect();
        for (l, layer) in self.layers.iter().enumerate() {
            let mut qkv: Vec<_> = x.iter().enumerate().map(|(p, x)| self.project(layer, x, p)).collect();
            qkv.iter_mut().for_each(|(_, k, v)| k.iter_mut().chain(v).for_each(|x| *x = kept(*x)));
            for (p, x) in x.iter_mut().enumerate() {
                let rows = sees(l, p).iter().map(|&s| (qkv[s].1.as_slice(), qkv[s].2.as_slice()));
                self.finish(layer, x, &qkv[p].0, &rows.collect::<Vec<_>>());
            }
        }
        self.head(x.last().expect("at least one token"))
    }

    /// Logits of the last token where the layers attend to `kept` rows, and the rows that they project. `step_of` has the step
    /// of each token: rows of a token's own step are attended to as they are projected if `own_unrounded`. So a cache whose
    /// values were rounded otherwise is distinguished from a graph that computes wrongly.
    pub fn logits_attending(
        &self,
        tokens: &[u32],
        kept: &Rows,
        step_of: &[usize],
        own_unrounded: bool,
    ) -> (Vec<f64>, Rows) {
        let mut x: Vec<Vec<f64>> = tokens.iter().map(|&t| self.embedding(t)).collect();
        let mut projected = Rows::new();
        for (layer, kept) in self.layers.iter().zip(kept) {
            let (queries, rows): (Vec<_>, Vec<_>) = x
                .iter()
                .enumerate()
                .map(|(p, x)| self.project(layer, x, p))
                .map(|(query, key, value)| (query, (key, value)))
                .unzip();
            for (p, x) in x.iter_mut().enumerate() {
                let seen = |s: usize| if own_unrounded && step_of[s] == step_of[p] { &rows[s] } else { &kept[s] };
                let seen: Vec<_> = (0..=p).map(seen).map(|(k, v)| (k.as_slice(), v.as_slice())).collect();
                self.finish(layer, x, &queries[p], &seen);
            }
            projected.push(rows);
        }
        (self.head(x.last().expect("at least one token")), projected)
    }

    pub(super) fn embedding(&self, token: u32) -> Vec<f64> {
        let width = self.size.hidden;
        self.embed.data[token as usize * width..][..width].iter().map(|&x| x.into()).collect()
    }

    /// Query, key and value of a token, query and key rotated to a position.
    pub(super) fn project(&self, layer: &Layer, x: &[f64], position: usize) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let h = norm(x, &layer.norm1);
        let rotated = |m: &Matrix| {
            let mut y = mul(m, &h);
            self.rotate(&mut y, position as f64);
            y
        };
        (rotated(&layer.q), rotated(&layer.k), mul(&layer.v, &h))
    }

    /// Rotates the pairs `(j, j + half)` of every head by a number of positions.
    pub(super) fn rotate(&self, x: &mut [f64], positions: f64) {
        let half = self.size.rope_dim();
        for head in x.chunks_mut(self.size.head_dim) {
            for j in 0..half {
                let (sin, cos) = (positions * self.size.theta.powf(-(j as f64) / half as f64)).sin_cos();
                let (a, b) = (head[j], head[j + half]);
                head[j] = a * cos - b * sin;
                head[j + half] = a * sin + b * cos;
            }
        }
    }

    /// Attention over the rows `(key, value)` and the feed-forward part, added to `x`.
    pub(super) fn finish(&self, layer: &Layer, x: &mut [f64], q: &[f64], rows: &[(&[f64], &[f64])]) {
        let Size { heads, kv_heads, head_dim, .. } = self.size;
        let mut mixed = vec![0.0; heads * head_dim];
        for head in 0..heads {
            let (kv, at) = (head / (heads / kv_heads) * head_dim, head * head_dim);
            let score = |k: &[f64]| (0..head_dim).map(|d| q[at + d] * k[kv + d]).sum::<f64>();
            let scores: Vec<f64> = rows.iter().map(|(k, _)| score(k)).collect();
            let top = scores.iter().copied().fold(f64::MIN, f64::max);
            let shares: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
            let total: f64 = shares.iter().sum();
            for ((_, v), share) in rows.iter().zip(&shares) {
                (0..head_dim).for_each(|d| mixed[at + d] += share / total * v[kv + d]);
            }
        }
        add(x, &mul(&layer.o, &mixed));
        let h = norm(x, &layer.norm2);
        let (gate, up) = (mul(&layer.gate, &h), mul(&layer.up, &h));
        let act: Vec<f64> = gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
        add(x, &mul(&layer.down, &act));
    }

    pub(super) fn head(&self, x: &[f64]) -> Vec<f64> {
        mul(&self.head, &norm(x, &self.norm))
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
