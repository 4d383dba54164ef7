//! Operations of a model's linear layers and of its attention, from its shape.
//!
//! *Units*: operations; a multiplication and the addition behind it are two. Norms, activations and softmax are left out: they are far
//! below one percent.

use super::Shape;
use core::ops::Add;
use serde::Serialize;

/// Operations by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Operations {
    /// Q, K, V and output projections.
    pub projections: u64,
    /// Products of queries with keys, and of shares with values.
    pub attention: u64,
    /// The feed-forward part.
    pub ffn: u64,
    /// The LM head.
    pub head: u64,
}

impl Operations {
    /// All of them.
    pub const fn total(&self) -> u64 {
        self.projections + self.attention + self.ffn + self.head
    }

    /// Those of one step: `rows` tokens that attend to `columns` in sum, `logits` rows through the head.
    pub const fn of_step(shape: &Shape, rows: u64, columns: u64, logits: u64) -> Self {
        let (q, kv) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
        Self {
            projections: 2 * shape.layers * rows * (shape.hidden * q + 2 * shape.hidden * kv + q * shape.hidden),
            attention: 4 * shape.layers * q * columns,
            ffn: 2 * shape.layers * rows * shape.ffn_matrices * shape.hidden * shape.ffn,
            head: 2 * logits * shape.head_weights(),
        }
    }

    /// Those of a padded graph: all of its rows attend to all of its columns.
    pub const fn of_graph(shape: &Shape, ar: u64, cl: u64, logits: u64) -> Self {
        Self::of_step(shape, ar, ar * cl, logits)
    }

    /// `tokens` new tokens behind `past` cached ones: each attends to those before it and to itself.
    pub const fn of_tokens(shape: &Shape, past: u64, tokens: u64) -> Self {
        Self::of_step(shape, tokens, past * tokens + tokens * (tokens + 1) / 2, 1)
    }

    /// A reply of `generated` tokens with a cache.
    pub fn with_cache(shape: &Shape, prompt: u64, generated: u64) -> Self {
        if generated == 0 {
            return Self::default();
        }
        let decode = (0..generated - 1).map(|i| Self::of_tokens(shape, prompt + i, 1));
        decode.fold(Self::of_tokens(shape, 0, prompt), Add::add)
    }

    /// The same without one: each step takes all tokens so far.
    pub fn without_cache(shape: &Shape, prompt: u64, generated: u64) -> Self {
        (0..generated).map(|i| Self::of_tokens(shape, 0, prompt + i)).fold(Self::default(), Add::add)
    }

    /// The notebook's simple formula for generating a sequence of `n` tokens: attention alone, `n` columns and `d` numbers for each of the
    /// rows of a step. With a cache a step has one row, without one it has as many as there are tokens.
    pub const fn simple(layers: u64, hidden: u64, n: u64) -> (u64, u64) {
        // Sums of i and of i squared for i to n.
        let (once, squared) = (n * (n + 1) / 2, n * (n + 1) * (2 * n + 1) / 6);
        (layers * hidden * once, layers * hidden * squared)
    }
}

impl Add for Operations {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            projections: self.projections + other.projections,
            attention: self.attention + other.attention,
            ffn: self.ffn + other.ffn,
            head: self.head + other.head,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One layer, two heads of two over one key head, hidden four, feed-forward eight with a gate, ten tokens.
    fn tiny() -> Shape {
        Shape { layers: 1, hidden: 4, heads: 2, kv_heads: 1, head_dim: 2, ffn: 8, vocab: 10, ..Shape::LLAMA_2_7B }
    }

    #[test]
    fn a_step_is_what_one_counts_by_hand() {
        // Q 4x4, K and V 4x2 each, O 4x4: 48 weights; three matrices of 4x8: 96; the head 4x10: 40.
        let ops = Operations::of_tokens(&tiny(), 3, 1);
        assert_eq!((ops.projections, ops.ffn, ops.head), (2 * 48, 2 * 96, 2 * 40));
        // Four columns, two heads of two numbers, twice (scores and mix), two operations each.
        assert_eq!(ops.attention, 4 * 4 * 2 * 2);
        assert_eq!(ops.total(), 96 + 192 + 80 + 64);
    }

    #[test]
    fn replies_are_sums_of_steps() {
        let shape = tiny();
        // Prompt of 3 sees 1 + 2 + 3 columns, then two tokens see 4 and 5.
        let cached = Operations::with_cache(&shape, 3, 3);
        assert_eq!(cached.attention, 16 * (1 + 2 + 3 + 4 + 5));
        assert_eq!((cached.projections, cached.head), (96 * 5, 80 * 3));
        let naive = Operations::without_cache(&shape, 3, 3);
        assert_eq!(naive.attention, 16 * (6 + 10 + 15));
        assert_eq!((naive.projections, naive.head), (96 * (3 + 4 + 5), 80 * 3));
        assert_eq!(Operations::with_cache(&shape, 3, 0), Operations::default());
    }

    #[test]
    fn a_padded_graph_computes_rows_that_no_token_has() {
        let shape = tiny();
        let graph = Operations::of_graph(&shape, 8, 16, 1);
        assert_eq!(graph.attention, 16 * 8 * 16);
        assert_eq!(graph.projections, 96 * 8);
    }

    #[test]
    fn the_simple_formula_is_a_sum_of_squares() {
        let (cached, naive) = Operations::simple(2, 64, 32);
        assert_eq!(cached, 2 * 64 * (1..=32u64).sum::<u64>());
        assert_eq!(naive, 2 * 64 * (1..=32u64).map(|i| i * i).sum::<u64>());
    }
}
