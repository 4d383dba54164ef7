//! What to train, on what, for how long.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::{Result, TrainError};

/// The architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// GPT-2: learned positions, LayerNorm, GELU, biases.
    Gpt2,
    /// Llama: rotary positions, RMSNorm, SwiGLU, grouped keys and values.
    Llama,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gpt2 => "gpt2",
            Self::Llama => "llama",
        })
    }
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vocabulary {
    /// A byte: a character, or a part of one outside of ASCII.
    Characters,
    /// Byte-level BPE with this many tokens, learned from the text.
    Bpe(usize),
}

/// A run. Two runs with equal options and text end with the same weights.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainOptions {
    /// The text, UTF-8.
    pub text: PathBuf,
    /// The folder to write; it may not be there yet, unless `resume`.
    pub output: PathBuf,
    /// The architecture.
    pub family: Family,
    /// What a token is.
    pub vocabulary: Vocabulary,
    /// Decoder layers.
    pub layers: usize,
    /// Numbers of a hidden row.
    pub width: usize,
    /// Heads of attention; they divide the width.
    pub heads: usize,
    /// Heads of keys and values, which divide the heads (GPT-2: as many as heads).
    pub kv_heads: usize,
    /// Tokens that the model sees at once.
    pub context: usize,
    /// How often the text is gone through. One pass is as many steps as take its number of tokens.
    pub epochs: usize,
    /// Windows of the text per step.
    pub batch: usize,
    /// Learning rate at its highest.
    pub learning_rate: f64,
    /// Part of the steps in which it rises from 0, 0 to 1.
    pub warm_up: f64,
    /// Weight decay of matrices.
    pub weight_decay: f64,
    /// Of weights and windows.
    pub seed: u64,
    /// Part of the text, from its end, that is not trained on but measured, 0 to 0.5.
    pub held_out: f64,
    /// Steps from one saved state, and one measure of the held-out text, to the next.
    pub save_every: usize,
    /// Go on from the state in the output folder.
    pub resume: bool,
}

impl TrainOptions {
    /// A small model of that family, for a text of some kilobytes.
    pub fn new(family: Family, text: impl Into<PathBuf>, output: impl Into<PathBuf>) -> Self {
        Self {
            text: text.into(),
            output: output.into(),
            family,
            vocabulary: Vocabulary::Characters,
            layers: 2,
            width: 64,
            heads: 4,
            kv_heads: 4,
            context: 64,
            epochs: 200,
            batch: 8,
            learning_rate: 3e-3,
            warm_up: 0.05,
            weight_decay: 0.01,
            seed: 0,
            held_out: 0.1,
            save_every: 100,
            resume: false,
        }
    }

    /// Refuses numbers that no model or run can have.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |name, expected: &str, found: String| {
            Err(TrainError::Option { name, expected: expected.to_owned(), found })
        };
        for (name, n) in [
            ("layers", self.layers),
            ("width", self.width),
            ("heads", self.heads),
            ("kv-heads", self.kv_heads),
            ("epochs", self.epochs),
            ("batch", self.batch),
            ("save-every", self.save_every),
        ] {
            if n == 0 {
                return refuse(name, "at least 1", "0".to_owned());
            }
        }
        if self.context < 2 {
            return refuse("context", "at least 2 tokens", self.context.to_string());
        }
        if !self.width.is_multiple_of(self.heads) {
            return refuse("heads", &format!("a divisor of the width {}", self.width), self.heads.to_string());
        }
        if !self.heads.is_multiple_of(self.kv_heads) || (self.family == Family::Gpt2 && self.kv_heads != self.heads) {
            let expected = match self.family {
                Family::Gpt2 => format!("as many as heads for gpt2, {}", self.heads),
                Family::Llama => format!("a divisor of the heads {}", self.heads),
            };
            return refuse("kv-heads", &expected, self.kv_heads.to_string());
        }
        if self.family == Family::Llama && !(self.width / self.heads).is_multiple_of(2) {
            let found = format!("{} / {}", self.width, self.heads);
            return refuse("width", "an even number per head, for rotary positions", found);
        }
        for (name, x, range) in [
            ("learning-rate", self.learning_rate, 1e-9..=10.0),
            ("warm-up", self.warm_up, 0.0..=1.0),
            ("weight-decay", self.weight_decay, 0.0..=1.0),
            ("held-out", self.held_out, 0.0..=0.5),
        ] {
            if !range.contains(&x) {
                return refuse(name, &format!("{} to {}", range.start(), range.end()), x.to_string());
            }
        }
        Ok(())
    }

    /// The options that decide the weights, as a saved state keeps them: name and value.
    pub(crate) fn identity(&self, text_hash: u64, vocabulary: usize) -> Vec<(String, String)> {
        let list: [(&str, String); 15] = [
            ("text", format!("{text_hash:016x}")),
            ("family", self.family.to_string()),
            ("vocabulary", vocabulary.to_string()),
            ("layers", self.layers.to_string()),
            ("width", self.width.to_string()),
            ("heads", self.heads.to_string()),
            ("kv-heads", self.kv_heads.to_string()),
            ("context", self.context.to_string()),
            ("epochs", self.epochs.to_string()),
            ("batch", self.batch.to_string()),
            ("learning-rate", self.learning_rate.to_string()),
            ("warm-up", self.warm_up.to_string()),
            ("weight-decay", self.weight_decay.to_string()),
            ("seed", self.seed.to_string()),
            ("held-out", self.held_out.to_string()),
        ];
        list.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_numbers_are_refused_by_name() {
        let good = TrainOptions::new(Family::Llama, "t", "o");
        assert!(good.check().is_ok());
        for (bad, name) in [
            (TrainOptions { layers: 0, ..good.clone() }, "layers"),
            (TrainOptions { heads: 5, ..good.clone() }, "heads"),
            (TrainOptions { kv_heads: 3, ..good.clone() }, "kv-heads"),
            (TrainOptions { kv_heads: 2, family: Family::Gpt2, ..good.clone() }, "kv-heads"),
            (TrainOptions { width: 12, ..good.clone() }, "width"),
            (TrainOptions { context: 1, ..good.clone() }, "context"),
            (TrainOptions { learning_rate: f64::NAN, ..good.clone() }, "learning-rate"),
            (TrainOptions { held_out: 0.9, ..good }, "held-out"),
        ] {
            let error = bad.check().unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}`")), "{error}");
        }
    }
}
