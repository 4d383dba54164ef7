//! The small inputs of one graph: ids, positions, the six words, the mask. Rows that a step does not use are written as well, where an
//! earlier step has used them.
//!
//! *Units and dtype*: the mask as in [`crate::mask`]; ids and positions int32, 0 in unused rows.

use std::ops::Range;

use genie_types::TokenId;
use half::f16;
use nsp_graph::pd::{CTRL_WORDS, Input, PairGraph};

use crate::EngineError;
use crate::buffer::{Buffer, elements_mut};
use crate::mask::{HIDDEN, MaskDtype};

/// What a row sees: the first rows of its own past, and a range of the step's new rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sees {
    past: usize,
    new: Range<usize>,
}

/// Buffers of one graph's small inputs.
#[derive(Debug)]
pub(super) struct Feeds {
    rows: usize,
    /// Rows of the past.
    past_len: usize,
    dtype: MaskDtype,
    pub(super) ids: Buffer,
    pub(super) positions: Buffer,
    pub(super) ctrl: Buffer,
    pub(super) mask: Buffer,
    pub(super) overrides: Buffer,
    /// What each row of the mask says now.
    written: Vec<Sees>,
}

/// One half of a step: tokens, and the rows before them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Half<'a> {
    pub(super) n_past: usize,
    pub(super) tokens: &'a [TokenId],
}

impl Feeds {
    pub(super) fn new(graph: &PairGraph, context: usize) -> Result<Self, EngineError> {
        let of = |role: Input| graph.inputs.iter().position(|found| *found == role).map(|i| &graph.info.inputs[i]);
        let mask = of(Input::Mask).expect("the layout has checked it");
        let dtype = MaskDtype::of(mask.dtype).expect("the layout has checked it");
        let rows = graph.rows;
        let mut overrides = Buffer::zeroed(size_of::<i32>());
        elements_mut::<i32>(overrides.bytes_mut()).fill(-1);
        let mut feeds = Self {
            rows,
            past_len: context - rows,
            dtype,
            ids: Buffer::zeroed(rows * size_of::<i32>()),
            positions: Buffer::zeroed(rows * size_of::<i32>()),
            ctrl: Buffer::zeroed(CTRL_WORDS * size_of::<i32>()),
            mask: Buffer::zeroed(mask.size_bytes()),
            overrides,
            written: vec![Sees::default(); rows],
        };
        (0..rows).for_each(|row| feeds.paint(row, 0..context, false));
        Ok(feeds)
    }

    /// Writes a step: the chunk of a prompt before the last row, right-aligned, and the decode row in the last one.
    pub(super) fn write(&mut self, prompt: Option<Half<'_>>, decode: Option<Half<'_>>) {
        let last = self.rows - 1;
        let chunk = prompt.map_or(0, |half| half.tokens.len());
        let first = last - chunk;
        for row in 0..self.rows {
            let (token, position, sees) = match (row.checked_sub(first), prompt, decode) {
                (_, _, Some(half)) if row == last => {
                    (half.tokens[0], half.n_past, Sees { past: half.n_past, new: last..last + 1 })
                }
                (Some(i), Some(half), _) if row < last => {
                    (half.tokens[i], half.n_past + i, Sees { past: half.n_past, new: first..row + 1 })
                }
                _ => (TokenId(0), 0, Sees::default()),
            };
            elements_mut::<u32>(self.ids.bytes_mut())[row] = token.0;
            elements_mut::<i32>(self.positions.bytes_mut())[row] = position as i32;
            self.see(row, sees);
        }
        let n_past = |half: Option<Half<'_>>| half.map_or(0, |half| half.n_past as i32);
        let words =
            [i32::from(chunk > 0), i32::from(decode.is_some()), chunk as i32, 0, n_past(prompt), n_past(decode)];
        elements_mut::<i32>(self.ctrl.bytes_mut()).copy_from_slice(&words);
    }

    /// Makes a row of the mask say what it is to see, by what differs from what it says.
    fn see(&mut self, row: usize, sees: Sees) {
        let old = std::mem::replace(&mut self.written[row], sees.clone());
        if old.past < sees.past {
            self.paint(row, old.past..sees.past, true);
        } else {
            self.paint(row, sees.past..old.past, false);
        }
        if old.new != sees.new {
            let at = self.past_len;
            self.paint(row, at + old.new.start..at + old.new.end, false);
            self.paint(row, at + sees.new.start..at + sees.new.end, true);
        }
    }

    fn paint(&mut self, row: usize, columns: Range<usize>, seen: bool) {
        let context = self.past_len + self.rows;
        let range = row * context + columns.start..row * context + columns.end;
        let bytes = self.mask.bytes_mut();
        match self.dtype {
            MaskDtype::F32 => elements_mut::<f32>(bytes)[range].fill(if seen { 0.0 } else { HIDDEN }),
            MaskDtype::F16 => {
                elements_mut::<f16>(bytes)[range].fill(if seen { f16::ZERO } else { f16::from_f32(HIDDEN) });
            }
            MaskDtype::U8 => bytes[range].fill(if seen { u8::MAX } else { 0 }),
            MaskDtype::U16 => elements_mut::<u16>(bytes)[range].fill(if seen { u16::MAX } else { 0 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::elements;
    use genie_types::{Dtype, GraphIdx, GraphInfo, TensorInfo};
    use proptest::prelude::*;

    fn feeds(rows: usize, context: usize, dtype: Dtype) -> Feeds {
        let mask = TensorInfo::new("attention_mask", vec![1, 1, rows, context], dtype);
        let info = GraphInfo { name: "g".into(), inputs: vec![mask], outputs: Vec::new() };
        let (inputs, outputs) = (vec![Input::Mask], Vec::new());
        let graph = PairGraph { binary: 0, graph: GraphIdx(0), info, rows, n_logits: 2, inputs, outputs };
        Feeds::new(&graph, context).unwrap()
    }

    /// Fault 6: mask rows that a step does not use kept what an earlier one had written.
    #[test]
    fn no_row_of_the_mask_is_stale() {
        proptest!(|(steps in prop::collection::vec((0usize..8, 0usize..24, prop::option::of(0usize..24)), 1..20))| {
            let (rows, context) = (8, 32);
            let mut feeds = feeds(rows, context, Dtype::UFixed16);
            for (m, n_past, decode) in steps {
                let tokens: Vec<TokenId> = (0..m as u32).map(|t| TokenId(t + 100)).collect();
                let prompt = (m > 0).then_some(Half { n_past, tokens: &tokens });
                let one = [TokenId(7)];
                feeds.write(prompt, decode.map(|n_past| Half { n_past, tokens: &one }));
                let first = rows - 1 - m;
                for row in 0..rows {
                    for column in 0..context {
                        let new = column.checked_sub(context - rows);
                        let sees = if row == rows - 1 {
                            decode.is_some_and(|n| new.map_or(column < n, |new| new == row))
                        } else {
                            row >= first && new.map_or(column < n_past, |new| (first..=row).contains(&new))
                        };
                        let code = elements::<u16>(feeds.mask.bytes())[row * context + column];
                        prop_assert_eq!(code, if sees { 65535 } else { 0 }, "row {}, column {}", row, column);
                    }
                    let id = elements::<u32>(feeds.ids.bytes())[row];
                    let position = elements::<i32>(feeds.positions.bytes())[row] as usize;
                    let expected = match decode {
                        Some(n) if row == rows - 1 => (7, n),
                        _ if row >= first && row < rows - 1 => (100 + (row - first) as u32, n_past + row - first),
                        _ => (0, 0),
                    };
                    prop_assert_eq!((id, position), expected, "row {}", row);
                }
                let words: [usize; 6] = [usize::from(m > 0), usize::from(decode.is_some()), m, 0, if m > 0 { n_past } else { 0 }, decode.unwrap_or(0)];
                let found = elements::<i32>(feeds.ctrl.bytes());
                prop_assert!(found.iter().zip(words).all(|(a, b)| *a as usize == b), "{:?}", found);
            }
        });
    }

    #[test]
    fn floats_hide_by_a_large_negative_number() {
        let one = [TokenId(5)];
        let mut f32s = feeds(2, 6, Dtype::F32);
        f32s.write(None, Some(Half { n_past: 2, tokens: &one }));
        let hidden = [-1000.0f32; 6];
        assert_eq!(elements::<f32>(f32s.mask.bytes())[..6], hidden);
        assert_eq!(elements::<f32>(f32s.mask.bytes())[6..], [0.0, 0.0, -1000.0, -1000.0, -1000.0, 0.0]);
        let mut halves = feeds(2, 6, Dtype::F16);
        halves.write(None, Some(Half { n_past: 2, tokens: &one }));
        assert_eq!(elements::<f16>(halves.mask.bytes())[8], f16::from_f32(-1000.0));
    }
}
