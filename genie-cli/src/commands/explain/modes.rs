//! The cache as it fills, in each mode: where the rows lie behind a step, and how many bytes its update moves, counted by the cache itself.

use anyhow::Result;
use engine::TokenModel;
use genie_types::TokenId;
use kvmanager::ModeKind;
use open_genie::sampler::most_likely;
use open_genie::{Bundle, Options};
use serde::Serialize;

/// Modes of caches whose rows lie in lines; tiles are of the Hexagon matrix unit alone.
const MODES: [ModeKind; 3] = [ModeKind::SMART_MASK, ModeKind::SHIFT_CONCAT, ModeKind::POINTER_SHIFT];
/// Columns of a drawn strip.
const STRIP: usize = 48;

/// One mode.
#[derive(Debug, Serialize)]
pub struct ModeFill {
    pub mode: &'static str,
    /// Why these graphs have no such cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// A prompt, then a token each.
    pub steps: Vec<FillStep>,
}

/// The cache behind a step.
#[derive(Debug, Serialize)]
pub struct FillStep {
    /// Tokens that the step took.
    pub tokens: usize,
    /// Rows that it found.
    pub rows_before: usize,
    /// Bytes of keys and of values that its update moved, over all layers.
    pub key_bytes: u64,
    pub value_bytes: u64,
    /// Rows that the past of the graph of one token has.
    pub past: usize,
}

impl FillStep {
    pub fn rows(&self) -> usize {
        self.rows_before + self.tokens
    }
}

/// Opens the bundle in each mode, and runs the prompt and `n` greedy tokens.
pub fn gather(bundle: &Bundle, options: &Options, prompt: &[TokenId], n: usize) -> Result<Vec<ModeFill>> {
    MODES.into_iter().map(|mode| fill(bundle, options, mode, prompt, n)).collect()
}

fn fill(bundle: &Bundle, options: &Options, mode: ModeKind, prompt: &[TokenId], n: usize) -> Result<ModeFill> {
    let mut model = match bundle.clone().open(&options.clone().kv_mode(mode)) {
        Ok(model) => model,
        Err(error) => {
            return Ok(ModeFill { mode: mode.name(), refused: Some(error.to_string()), steps: Vec::new() });
        }
    };
    let engine = model.engine_mut();
    let mut input = prompt.to_vec();
    let mut steps = Vec::new();
    for _ in 0..=n {
        if engine.n_past() + input.len() > engine.context_size() {
            break;
        }
        let rows_before = engine.n_past();
        let before = engine.moved_bytes()?;
        let next = most_likely(engine.process(&input)?);
        let after = engine.moved_bytes()?;
        let single = engine.layout().variants.iter().filter(|variant| variant.ar().get() == 1);
        let pasts = single.map(|variant| variant.cl().get() - 1).filter(|&past| past >= engine.n_past());
        let past = pasts.min().unwrap_or(engine.n_past());
        steps.push(FillStep {
            tokens: input.len(),
            rows_before,
            key_bytes: after.keys - before.keys,
            value_bytes: after.values - before.values,
            past,
        });
        input = vec![next];
    }
    Ok(ModeFill { mode: mode.name(), refused: None, steps })
}

/// Where rows lie behind the first step, one in the middle and the last: a strip of the cache's memory for each, scaled.
pub fn strips(fill: &ModeFill) -> Vec<String> {
    let chosen = [0, fill.steps.len() / 2, fill.steps.len().saturating_sub(1)];
    let length = |step: &FillStep| match fill.mode {
        // The window of the past moves over a longer buffer.
        "pointer-shift" => 2 * step.past,
        _ => step.past,
    };
    chosen
        .into_iter()
        .filter_map(|i| fill.steps.get(i))
        .map(|step| {
            let (rows, past) = (step.rows(), step.past);
            let (first, window) = match fill.mode {
                "smart-mask" => (0, 0..past),
                "shift-concat" => (past - rows.min(past), 0..past),
                _ => (past, rows..past + rows),
            };
            let cell = |at: usize| match at {
                at if (first..first + rows).contains(&at) => '#',
                at if window.contains(&at) => '.',
                _ => ' ',
            };
            let all = length(step).max(1);
            let line: String = (0..STRIP).map(|i| cell(i * all / STRIP)).collect();
            format!("{:>14}  {rows:>5} rows  |{line}|", fill.mode)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_lie_left_right_or_behind_a_window_that_moves() {
        let of = |mode, steps| strips(&ModeFill { mode, refused: None, steps }).swap_remove(0);
        let [a, b, c] = ["smart-mask", "shift-concat", "pointer-shift"].map(|mode| {
            let step = FillStep { tokens: 8, rows_before: 0, key_bytes: 0, value_bytes: 0, past: 24 };
            of(mode, vec![step])
        });
        assert!(a.ends_with(&format!("|{}{}|", "#".repeat(16), ".".repeat(32))), "{a}");
        assert!(b.ends_with(&format!("|{}{}|", ".".repeat(32), "#".repeat(16))), "{b}");
        assert!(
            c.ends_with(&format!("|{}{}{}{}|", " ".repeat(8), ".".repeat(16), "#".repeat(8), " ".repeat(16))),
            "{c}"
        );
    }
}
