//! The byte moves on rows, in any layout: re-stride, transfer between buffers, move within one.
//!
//! *Units*: rows and units (a unit is a row's share of a line). See [`RowLayout`] for the picture. Dense layouts run the
//! [`CopyPlan`] that [`copy_plan`](crate::copy_plan) plans; tiles move whole tiles when the shape changes and single elements
//! otherwise. Each move returns the bytes it moved.

use crate::copy_plan::{self, CopyPlan};
use crate::geometry::KvTensor;
use crate::mode::RowLayout;
use std::ops::Range;

/// Moves rows `0..n` of all lines from one place to another within a buffer.
pub(crate) fn relocate(tensor: &KvTensor, bytes: &mut [u8], n: usize, from: RowLayout, to: RowLayout) -> usize {
    run_within(bytes, &copy_plan::reshape(tensor, n, from, to))
}

/// Rows in a buffer: where a transfer reads or writes.
pub(crate) struct Rows<B> {
    pub(crate) bytes: B,
    pub(crate) place: RowLayout,
    pub(crate) row: usize,
}

/// Copies `n` rows from one buffer to another.
pub(crate) fn transfer(tensor: &KvTensor, src: &Rows<&[u8]>, dst: &mut Rows<&mut [u8]>, n: usize) -> usize {
    if n == 0 {
        return 0;
    }
    if src.place.tile.is_some() || dst.place.tile.is_some() {
        return transfer_elements(tensor, tensor, src, dst, n);
    }
    let plan = copy_plan::transfer(tensor, n, (src.place, src.row), (dst.place, dst.row));
    run_between(src.bytes, dst.bytes, &plan);
    plan.bytes()
}

fn run_within(bytes: &mut [u8], plan: &CopyPlan) -> usize {
    let mut moved = 0;
    for (src, dst) in plan.order() {
        bytes.copy_within(src..src + plan.len, dst);
        moved += plan.len;
    }
    moved
}

/// Runs a plan from one buffer to another.
fn run_between(src: &[u8], dst: &mut [u8], plan: &CopyPlan) {
    run_in_each(std::iter::once((src, dst)), plan);
}

/// Runs a plan in each pair of buffers. Fixed lengths compile to plain loads and stores, which matters when there are ten thousand runs
/// of a cache line or two.
pub(crate) fn run_in_each<'b>(pairs: impl Iterator<Item = (&'b [u8], &'b mut [u8])>, plan: &CopyPlan) {
    match plan.len {
        1 => pairs.for_each(|(src, dst)| interleaved::<1>(src, dst, plan)),
        2 => pairs.for_each(|(src, dst)| interleaved::<2>(src, dst, plan)),
        4 if plan.n > LANES => pairs.for_each(|(src, dst)| interleaved::<4>(src, dst, plan)),
        4 => pairs.for_each(|(src, dst)| fixed::<4>(src, dst, plan)),
        8 => pairs.for_each(|(src, dst)| fixed::<8>(src, dst, plan)),
        16 => pairs.for_each(|(src, dst)| fixed::<16>(src, dst, plan)),
        32 => pairs.for_each(|(src, dst)| fixed::<32>(src, dst, plan)),
        64 => pairs.for_each(|(src, dst)| fixed::<64>(src, dst, plan)),
        128 => pairs.for_each(|(src, dst)| fixed::<128>(src, dst, plan)),
        256 => pairs.for_each(|(src, dst)| fixed::<256>(src, dst, plan)),
        512 => pairs.for_each(|(src, dst)| fixed::<512>(src, dst, plan)),
        len => pairs.for_each(|(src, dst)| {
            for (from, to) in runs(plan) {
                dst[to..to + len].copy_from_slice(&src[from..from + len]);
            }
        }),
    }
}

fn runs(plan: &CopyPlan) -> impl Iterator<Item = (usize, usize)> {
    let (mut from, mut to) = (plan.src, plan.dst);
    (0..plan.n).map(move |_| {
        let at = (from, to);
        from += plan.src_step;
        to += plan.dst_step;
        at
    })
}

fn fixed<const N: usize>(src: &[u8], dst: &mut [u8], plan: &CopyPlan) {
    for (from, to) in runs(plan) {
        copy::<N>(src, from, dst, to);
    }
}

/// Past lengths are just below powers of two, so the columns of neighbouring lines lie a page apart, except for a byte or
/// two. A processor distinguishes pending stores by the low 12 bits of their addresses, in words of 8 bytes: such
/// neighbours wait for one another. Lines eight apart do not.
const LANES: usize = 8;

/// One element a line, the decode step's case: every eighth line first, then their neighbours.
fn interleaved<const N: usize>(src: &[u8], dst: &mut [u8], plan: &CopyPlan) {
    for lane in 0..LANES.min(plan.n) {
        let (mut from, mut to) = (plan.src + lane * plan.src_step, plan.dst + lane * plan.dst_step);
        for _ in 0..(plan.n - lane).div_ceil(LANES) {
            copy::<N>(src, from, dst, to);
            from += LANES * plan.src_step;
            to += LANES * plan.dst_step;
        }
    }
}

fn copy<const N: usize>(src: &[u8], from: usize, dst: &mut [u8], to: usize) {
    dst[to..to + N].copy_from_slice(&src[from..from + N]);
}

/// Copies rows element by element; the two sides may differ in layout.
pub(crate) fn transfer_elements(
    from: &KvTensor,
    to: &KvTensor,
    src: &Rows<&[u8]>,
    dst: &mut Rows<&mut [u8]>,
    n: usize,
) -> usize {
    let size = from.dtype.size_bytes();
    for_each_element(from, 0..n, |head, dim, i| {
        let read = src.place.element(from, head, dim, src.row + i) * size;
        let write = dst.place.element(to, head, dim, dst.row + i) * size;
        dst.bytes[write..write + size].copy_from_slice(&src.bytes[read..read + size]);
    });
    from.rows_bytes(n)
}

/// Moves rows within a buffer, of one head or of all; ranges may overlap, the source keeps its bytes elsewhere.
pub(crate) fn move_within(
    tensor: &KvTensor,
    bytes: &mut [u8],
    place: RowLayout,
    head: Option<usize>,
    src: Range<usize>,
    dst: usize,
) -> usize {
    let n = src.len();
    if n == 0 || src.start == dst {
        return 0;
    }
    if head.is_none() && place.tile.is_none() {
        return run_within(bytes, &copy_plan::shift_rows(tensor, n, place, src.start, dst));
    }
    let heads = head.map_or(0..tensor.n_heads, |head| head..head + 1);
    if place.tile.is_none() {
        let (unit, per_head) = (tensor.unit_bytes(), tensor.n_lines() / tensor.n_heads);
        for line in heads.start * per_head..heads.end * per_head {
            let from = place.unit(line, src.start) * unit;
            bytes.copy_within(from..from + n * unit, place.unit(line, dst) * unit);
        }
        return tensor.rows_bytes(n) / tensor.n_heads;
    }
    let size = tensor.dtype.size_bytes();
    let mut row = |i: usize| {
        for head in heads.clone() {
            for dim in 0..tensor.head_dim {
                let from = place.element(tensor, head, dim, src.start + i) * size;
                bytes.copy_within(from..from + size, place.element(tensor, head, dim, dst + i) * size);
            }
        }
    };
    if dst < src.start {
        (0..n).for_each(&mut row)
    } else {
        (0..n).rev().for_each(&mut row)
    }
    tensor.rows_bytes(n) / tensor.n_heads * heads.len()
}

/// Visits all elements of some rows.
pub(crate) fn for_each_element(tensor: &KvTensor, rows: Range<usize>, mut f: impl FnMut(usize, usize, usize)) {
    for head in 0..tensor.n_heads {
        for dim in 0..tensor.head_dim {
            rows.clone().for_each(|row| f(head, dim, row));
        }
    }
}
