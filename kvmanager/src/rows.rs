//! The byte moves on rows, in any layout: re-stride, transfer between buffers, move within one.
//!
//! *Units*: rows and units (a unit is a row's share of a line). See [`Place`] for the picture. Dense layouts move
//! lines of bytes; tiles move whole tiles when the shape changes and single elements otherwise.

use crate::geometry::KvTensor;
use crate::mode::Place;
use std::ops::Range;

/// Moves rows `0..n` of all lines from one place to another within a buffer.
///
/// A line never overtakes one that has not moved yet: towards a longer stride the last line goes first.
pub(crate) fn relocate(tensor: &KvTensor, bytes: &mut [u8], n: usize, from: Place, to: Place) {
    if n == 0 || from == to {
        return;
    }
    // Tiles move as blocks of tokens: lines of their own, in larger units.
    let (n_lines, unit, n, from, to) = match from.tile {
        None => (tensor.n_lines(), tensor.unit_bytes(), n, from, to),
        Some(tile) => {
            let (n_lines, block_elems, tokens) = tile.lines(tensor);
            let blocks = |place: Place| Place::dense(place.stride / tokens);
            (n_lines, block_elems * tensor.dtype.size_bytes(), n.div_ceil(tokens), blocks(from), blocks(to))
        }
    };
    let len = n * unit;
    let mut line = |l: usize| {
        let (src, dst) = (from.unit(l, 0) * unit, to.unit(l, 0) * unit);
        if src != dst {
            bytes.copy_within(src..src + len, dst);
        }
    };
    if to.stride >= from.stride { (0..n_lines).rev().for_each(&mut line) } else { (0..n_lines).for_each(&mut line) }
}

/// Rows in a buffer: where a transfer reads or writes.
pub(crate) struct Rows<B> {
    pub(crate) bytes: B,
    pub(crate) place: Place,
    pub(crate) row: usize,
}

/// Copies `n` rows from one buffer to another.
pub(crate) fn transfer(tensor: &KvTensor, src: &Rows<&[u8]>, dst: &mut Rows<&mut [u8]>, n: usize) {
    if n == 0 {
        return;
    }
    if src.place.tile.is_some() || dst.place.tile.is_some() {
        return transfer_elements(tensor, src, dst, n);
    }
    let unit = tensor.unit_bytes();
    let (mut from, from_step) = (src.place.unit(0, src.row) * unit, src.place.stride * unit);
    let (mut to, to_step) = (dst.place.unit(0, dst.row) * unit, dst.place.stride * unit);
    let mut lines = |copy: &mut dyn FnMut(usize, usize)| {
        for _ in 0..tensor.n_lines() {
            copy(from, to);
            from += from_step;
            to += to_step;
        }
    };
    // One element a line is the decode step's case: fixed widths compile to plain loads and stores.
    match n * unit {
        1 => scatter::<1>(tensor.n_lines(), (src.bytes, from, from_step), (dst.bytes, to, to_step)),
        2 => scatter::<2>(tensor.n_lines(), (src.bytes, from, from_step), (dst.bytes, to, to_step)),
        4 => scatter::<4>(tensor.n_lines(), (src.bytes, from, from_step), (dst.bytes, to, to_step)),
        len => lines(&mut |from, to| dst.bytes[to..to + len].copy_from_slice(&src.bytes[from..from + len])),
    }
}

fn scatter<const N: usize>(n_lines: usize, src: (&[u8], usize, usize), dst: (&mut [u8], usize, usize)) {
    let ((src, mut from, from_step), (dst, mut to, to_step)) = (src, dst);
    for _ in 0..n_lines {
        dst[to..to + N].copy_from_slice(&src[from..from + N]);
        from += from_step;
        to += to_step;
    }
}

fn transfer_elements(tensor: &KvTensor, src: &Rows<&[u8]>, dst: &mut Rows<&mut [u8]>, n: usize) {
    let size = tensor.dtype.size_bytes();
    for_each_element(tensor, 0..n, |head, dim, i| {
        let from = src.place.element(tensor, head, dim, src.row + i) * size;
        let to = dst.place.element(tensor, head, dim, dst.row + i) * size;
        dst.bytes[to..to + size].copy_from_slice(&src.bytes[from..from + size]);
    });
}

/// Moves rows within a buffer, of one head or of all; ranges may overlap, the source keeps its bytes elsewhere.
pub(crate) fn move_within(
    tensor: &KvTensor,
    bytes: &mut [u8],
    place: Place,
    head: Option<usize>,
    src: Range<usize>,
    dst: usize,
) {
    let n = src.len();
    if n == 0 || src.start == dst {
        return;
    }
    let heads = head.map_or(0..tensor.n_heads, |head| head..head + 1);
    if place.tile.is_none() {
        let (unit, per_head) = (tensor.unit_bytes(), tensor.n_lines() / tensor.n_heads);
        for line in heads.start * per_head..heads.end * per_head {
            let from = place.unit(line, src.start) * unit;
            bytes.copy_within(from..from + n * unit, place.unit(line, dst) * unit);
        }
        return;
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
    if dst < src.start { (0..n).for_each(&mut row) } else { (0..n).rev().for_each(&mut row) }
}

/// Visits all elements of some rows.
pub(crate) fn for_each_element(tensor: &KvTensor, rows: Range<usize>, mut f: impl FnMut(usize, usize, usize)) {
    for head in 0..tensor.n_heads {
        for dim in 0..tensor.head_dim {
            rows.clone().for_each(|row| f(head, dim, row));
        }
    }
}
