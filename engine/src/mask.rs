//! The attention mask, kept up to date by writing only the columns that change.
//!
//! *Shapes*: `[AR, CL]`, row-major. *Units and dtype*: floats 0 = visible, -1000 = hidden; quantised: the type's largest =
//! visible, 0 = hidden, whatever scale the tensor claims.
//! *Invariant*: after [`Mask::update`], row `i < n_process` sees the valid past and the new columns up to its own; rows
//! of padding see what the last token sees ([`Padding::AsLast`]) or nothing.

use std::ops::Range;

use genie_types::Dtype;
use half::f16;
use kvmanager::{InferenceStep, KvError, Step};

use crate::buffer::elements_mut;

/// Additive value of a hidden column, as libGenie feeds it.
pub(crate) const HIDDEN: f32 = -1000.0;

/// The element type of a mask, and so the two values it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaskDtype {
    F32,
    F16,
    U8,
    U16,
}

impl MaskDtype {
    /// `None` for an element type that masks do not have.
    pub(crate) fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F32 => Some(Self::F32),
            Dtype::F16 => Some(Self::F16),
            Dtype::U8 | Dtype::UFixed8 => Some(Self::U8),
            Dtype::U16 | Dtype::UFixed16 => Some(Self::U16),
            _ => None,
        }
    }

    /// Bytes of an element.
    const fn size_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::U16 => 2,
            Self::U8 => 1,
        }
    }

    /// Writes a group's mask for a step from the cache's cells, whatever was there before.
    fn fill(self, bytes: &mut [u8], step: &Step<'_>, group: usize) -> Result<(), KvError> {
        let n = step.variant().ar().get() * step.mask_width(group);
        match self {
            Self::F32 => step.fill_mask(group, HIDDEN, 0.0, &mut elements_mut::<f32>(bytes)[..n]),
            Self::F16 => step.fill_mask(group, f16::from_f32(HIDDEN), f16::ZERO, &mut elements_mut(bytes)[..n]),
            Self::U8 => step.fill_mask(group, 0, u8::MAX, &mut bytes[..n]),
            Self::U16 => step.fill_mask(group, 0, u16::MAX, &mut elements_mut(bytes)[..n]),
        }
    }
}

/// What rows without a token see; their results are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Padding {
    /// What the last token sees: a softmax over hidden columns alone weighs all of them, so a row that sees nothing costs as
    /// much as one that sees the whole context.
    AsLast,
    /// Nothing, as libGenie writes it.
    Hidden,
}

/// The mask of a cache group, and what its buffer holds now.
#[derive(Debug)]
pub(crate) struct Mask {
    group: usize,
    dtype: MaskDtype,
    /// The step whose mask the buffer holds, and what its padding sees, if it was written by columns.
    held: Option<(InferenceStep, Padding)>,
}

impl Mask {
    pub(crate) fn new(group: usize, dtype: MaskDtype) -> Self {
        Self { group, dtype, held: None }
    }

    /// The element type; what the buffer holds is no longer known.
    pub(crate) fn forget(&mut self) -> MaskDtype {
        self.held = None;
        self.dtype
    }

    /// The cache group.
    pub(crate) const fn group(&self) -> usize {
        self.group
    }

    /// The element type.
    pub(crate) const fn dtype(&self) -> MaskDtype {
        self.dtype
    }

    /// Makes the buffer's first `AR * CL` elements the mask of a step: only the columns that change where every token sees
    /// the whole past, else all of it from the cache's cells.
    pub(crate) fn fill(
        &mut self,
        bytes: &mut [u8],
        step: &Step<'_>,
        planned: &InferenceStep,
        padding: Padding,
    ) -> Result<(), KvError> {
        if self.group == 0 && step.sees_whole_past() {
            self.update(bytes, planned, padding);
            return Ok(());
        }
        self.held = None;
        self.dtype.fill(bytes, step, self.group)?;
        if padding == Padding::AsLast {
            let row = step.mask_width(self.group) * self.dtype.size_bytes();
            let (last, ar) = (planned.n_process().saturating_sub(1) * row, planned.ar());
            (planned.n_process()..ar).for_each(|pad| bytes.copy_within(last..last + row, pad * row));
        }
        Ok(())
    }

    /// Writes the columns in which the mask of a step differs from the one held.
    fn update(&mut self, bytes: &mut [u8], step: &InferenceStep, padding: Padding) {
        match self.dtype {
            MaskDtype::F32 => self.write(elements_mut::<f32>(bytes), step, padding, 0.0, HIDDEN),
            MaskDtype::F16 => self.write(elements_mut(bytes), step, padding, f16::ZERO, f16::from_f32(HIDDEN)),
            MaskDtype::U8 => self.write(bytes, step, padding, u8::MAX, 0),
            MaskDtype::U16 => self.write(elements_mut(bytes), step, padding, u16::MAX, 0),
        }
    }

    fn write<T: Copy>(&mut self, mask: &mut [T], step: &InferenceStep, padding: Padding, shown: T, hidden: T) {
        let (ar, cl) = (step.ar(), step.cl());
        let held = self.held.take().filter(|(held, _)| held.variant == step.variant);
        if held.is_none() {
            mask[..ar * cl].fill(hidden);
        }
        for (row, columns) in mask[..ar * cl].chunks_exact_mut(cl).enumerate() {
            let before = held.as_ref().map_or([0..0, 0..0], |(held, padding)| visible(held, row, *padding));
            let now = visible(step, row, padding);
            difference(&before, &now, |span| columns[span].fill(hidden));
            difference(&now, &before, |span| columns[span].fill(shown));
        }
        self.held = Some((step.clone(), padding));
    }
}

/// The columns that a row sees: of the past and of the new tokens.
fn visible(step: &InferenceStep, row: usize, padding: Padding) -> [Range<usize>; 2] {
    let row = match (padding, step.n_process()) {
        (_, n) if row < n => row,
        (Padding::AsLast, n) if n > 0 => n - 1,
        _ => return [0..0, 0..0],
    };
    let (past, new) = (step.past_idx.0, step.new_idx.0);
    [past..past + step.n_valid_kv, new..new + row + 1]
}

/// The parts of `a` that are not in `b`.
fn difference(a: &[Range<usize>; 2], b: &[Range<usize>; 2], mut each: impl FnMut(Range<usize>)) {
    let (first, second) = if b[0].start <= b[1].start { (&b[0], &b[1]) } else { (&b[1], &b[0]) };
    for span in a {
        let mut at = span.start;
        for cut in [first, second] {
            if cut.is_empty() {
                continue;
            }
            let end = cut.start.min(span.end);
            if at < end {
                each(at..end);
            }
            at = at.max(cut.end);
        }
        if at < span.end {
            each(at..span.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use genie_types::Variant;
    use kvmanager::{Columns, MaskCol, SeqId};
    use proptest::prelude::*;

    use super::*;
    use crate::buffer::{Buffer, elements};

    fn step(ar: u32, cl: u32, n_valid_kv: usize, n_process: usize, scatter: bool) -> InferenceStep {
        let variant = Variant::new(ar, cl).unwrap();
        let new_idx = MaskCol(if scatter { n_valid_kv } else { variant.past_capacity() });
        let columns = Columns::of(SeqId(0), n_valid_kv, n_process);
        InferenceStep { variant, columns, n_valid_kv, past_idx: MaskCol(0), new_idx }
    }

    #[test]
    fn a_concat_step_in_f16() {
        let mut buffer = Buffer::zeroed(2 * 3 * 8);
        let mut mask = Mask::new(0, MaskDtype::F16);
        mask.update(buffer.bytes_mut(), &step(3, 8, 2, 2, false), Padding::Hidden);
        assert_eq!(picture(&buffer), ["oo...o..", "oo...oo.", "........"]);
        mask.update(buffer.bytes_mut(), &step(3, 8, 4, 1, false), Padding::AsLast);
        assert_eq!(picture(&buffer), ["oooo.o..", "oooo.o..", "oooo.o.."]);
    }

    fn picture(buffer: &Buffer) -> Vec<String> {
        elements::<f16>(buffer.bytes())
            .chunks(8)
            .map(|row| {
                row.iter()
                    .map(|x| {
                        if x.to_f32() == 0.0 {
                            'o'
                        } else if x.to_f32() == -1000.0 {
                            '.'
                        } else {
                            '?'
                        }
                    })
                    .collect()
            })
            .collect()
    }

    #[test]
    fn a_quantised_scatter_step() {
        for (dtype, shown) in [(Dtype::UFixed8, 255), (Dtype::UFixed16, 65535)] {
            let mut buffer = Buffer::zeroed(dtype.size_bytes() * 2 * 8);
            Mask::new(0, MaskDtype::of(dtype).unwrap()).update(
                buffer.bytes_mut(),
                &step(2, 8, 3, 2, true),
                Padding::Hidden,
            );
            let values: Vec<u32> = match dtype {
                Dtype::UFixed8 => buffer.bytes().iter().map(|&c| c.into()).collect(),
                _ => elements::<u16>(buffer.bytes()).iter().map(|&c| c.into()).collect(),
            };
            let want: Vec<u32> = [1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0].iter().map(|v| v * shown).collect();
            assert_eq!(values, want);
        }
        assert!(MaskDtype::of(Dtype::I32).is_none());
    }

    proptest! {
        /// Whatever came before, an update leaves what a mask from nothing would be.
        #[test]
        fn updates_equal_fresh_masks(steps in prop::collection::vec((0usize..4, 0usize..=15, 1usize..=4, any::<bool>(), any::<bool>()), 1..20)) {
            const SHAPES: [(u32, u32); 4] = [(1, 8), (4, 8), (1, 16), (4, 16)];
            let mut kept = Buffer::zeroed(4 * 4 * 16);
            let mut mask = Mask::new(0, MaskDtype::F32);
            for (shape, n_valid, n_process, scatter, as_last) in steps {
                let (ar, cl) = SHAPES[shape];
                let n_valid = n_valid.min((cl - ar) as usize);
                let step = step(ar, cl, n_valid, n_process.min(ar as usize), scatter);
                let padding = if as_last { Padding::AsLast } else { Padding::Hidden };
                mask.update(kept.bytes_mut(), &step, padding);
                for (i, &x) in elements::<f32>(kept.bytes())[..(ar * cl) as usize].iter().enumerate() {
                    let (row, col) = (i / cl as usize, i % cl as usize);
                    let new = step.new_idx.0..=step.new_idx.0 + row.min(step.n_process() - 1);
                    let want = (as_last || row < step.n_process()) && (col < n_valid || new.contains(&col));
                    prop_assert_eq!(x, if want { 0.0 } else { -1000.0 }, "row {} column {} of {}", row, col, step);
                }
            }
        }
    }
}
