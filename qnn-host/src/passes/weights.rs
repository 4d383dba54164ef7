//! Which weights the vector kernels take as they are, and packing those that they take in a form of their own.
//!
//! Blocks of quantised values ([`Quant::Block`] along a row, blocks of a multiple of 32, scales that `float16` holds, or powers of two) are
//! packed once per context, in the fewest bits that hold them, and so are 6-bit and 3-bit values in blocks of 16 with scales of two levels, and values of 4 or
//! 5 bits with such scales; see [`crate::kernels::packed`]. Values with a scale for each row are read in place.

use std::ops::Range;
use std::thread;

use crate::bytes::Bytes;
use crate::graph::op::Op;
use crate::graph::shared::{Derived, SharedConstants};
use crate::graph::typed::{Constant, Source, TypedGraph, Value, ValueId};
use crate::ir::{BlockScales, Dtype, Quant};
use crate::kernels::half_blocks::{self, STRETCH, SUB, factors, factors_of};
use crate::kernels::packed::{BLOCK, Bits, GROUP, Packer, Packing, Scales};
use crate::kernels::{block_values, k_blocks};

/// Minima of weights with scales for each 16 that share a unit.
const MINIMA_OF_HALVES: usize = STRETCH / SUB;

/// Packs the weights of linear layers and the tables of look-ups where that can be done without loss.
pub(crate) fn pack(net: &mut TypedGraph, shared: &SharedConstants) {
    for index in 0..net.nodes.len() {
        let slots = match net.nodes[index].op {
            Op::Linear { .. } => 1..2,
            Op::GatedLinear { .. } => 1..3,
            Op::Gather { axis: 0 } => 0..1,
            _ => continue,
        };
        // A layer and its gate go together.
        let operand = |slot: usize| packed(net, net.nodes[index].inputs[slot], shared).filter(is_weights);
        let packed: Option<Vec<Value>> = slots.clone().map(operand).collect();
        let packed =
            packed.filter(|values| values.windows(2).all(|pair| is_by_halves(&pair[0]) == is_by_halves(&pair[1])));
        for (slot, value) in slots.zip(packed.into_iter().flatten()) {
            net.nodes[index].inputs[slot] = net.add_value(value);
        }
    }
}

/// Whether a packed operand has scales for each 16.
fn is_by_halves(value: &Value) -> bool {
    matches!(&value.source, Source::Const(Constant { packing: Some(packing), .. }) if packing.by_halves())
}

/// Whether a packed operand can be multiplied with: minima are only taken off.
fn is_weights(value: &Value) -> bool {
    !matches!(&value.source, Source::Const(Constant { packing: Some(packing), .. }) if packing.is_minima())
}

/// A constant in packed form, if it has one.
pub(super) fn packed(net: &TypedGraph, id: ValueId, shared: &SharedConstants) -> Option<Value> {
    let (value, constant) = (net.value(id), net.constant(id)?);
    let &[rows, cols] = value.shape.as_slice() else { return None };
    if constant.packing.is_some() {
        return Some(Value { source: Source::Const(constant.clone()), ..value.clone() });
    }
    let known = Packing::ALL.into_iter().find(|&p| shared.find(constant, &value.shape, Derived::Packed(p)).is_some());
    let packing = match known {
        Some(packing) => packing,
        None => packing_of(constant, rows, cols, &mut || true)?,
    };
    let make = || packed_bytes(constant, packing, rows, cols);
    let bytes = shared.get(constant, &value.shape, Derived::Packed(packing), make);
    let packed = Constant { packing: Some(packing), ..Constant::new(bytes, constant.dtype, constant.quant.clone()) };
    Some(Value { source: Source::Const(packed), ..value.clone() })
}

/// Values or scales that are looked at between two questions whether to go on; whole stretches of any kind.
const PART: usize = 1 << 20;

/// Whether `n` values or scales fit, looked at in parts; not once `go_on` says no.
fn all_fit(n: usize, go_on: &mut dyn FnMut() -> bool, fit: impl Fn(Range<usize>) -> bool) -> bool {
    (0..n).step_by(PART).all(|from| go_on() && fit(from..n.min(from + PART)))
}

/// The packing that keeps blocks bit for bit. It looks at all values, so `go_on` is asked every few milliseconds; none once that says no.
pub(crate) fn packing_of(
    constant: &Constant,
    rows: usize,
    cols: usize,
    go_on: &mut dyn FnMut() -> bool,
) -> Option<Packing> {
    let Quant::Block { block_dims, scales, offsets } = &constant.quant else { return None };
    let &[1, block] = block_dims.as_ref() else { return None };
    let block = block as usize;
    let packing = |bits| Packing { bits, scales: Scales::Block };
    // What has scales of two levels is tried first: it takes fewer bytes.
    let by_levels = match (constant.dtype, block) {
        (Dtype::SFixed8, SUB) => {
            let bits = [Bits::Three, Bits::Six];
            return bits.into_iter().find(|&bits| fits_halves(constant, bits, cols, go_on)).map(packing);
        }
        (Dtype::UFixed4, SUB) => {
            return fits_halves(constant, Bits::UTwo, cols, go_on).then_some(packing(Bits::UTwo));
        }
        (Dtype::UFixed8, MINIMA_OF_HALVES) => {
            let small = values_fit(constant, go_on, |q| half_blocks::holds(Bits::HalfMinima, q.cast_signed()));
            let fits = small && cols.is_multiple_of(block) && offsets.iter().all(|&o| o == 0);
            return fits.then_some(Packing::HALF_MINIMA);
        }
        (Dtype::SFixed8, BLOCK) => Some(Bits::Levels),
        (Dtype::UFixed4, BLOCK) => Some(Bits::UFour),
        (Dtype::UFixed8, BLOCK) => Some(Bits::UFive),
        (Dtype::UFixed8, k_blocks::BLOCKS) => Some(Bits::Minima),
        _ => None,
    };
    if let Some(bits) = by_levels.filter(|&bits| fits_k_blocks(constant, bits, (rows, cols), go_on)) {
        return Some(packing(bits));
    }
    let fits = block.is_multiple_of(BLOCK) && cols.is_multiple_of(block) && scales.len() == rows * (cols / block);
    if !fits || offsets.iter().any(|&o| o != 0) {
        return None;
    }
    let candidates: &[Bits] = match constant.dtype {
        Dtype::SFixed8 => &[Bits::FloatFour, Bits::Nonlinear, Bits::Five, Bits::Eight],
        Dtype::SFixed4 => &[Bits::Four],
        _ => return None,
    };
    let mut holds = |bits| {
        // All codes of these are values.
        (matches!(bits, Bits::Four | Bits::Eight)
            || values_fit(constant, go_on, |q| block_values::holds(bits, q.cast_signed())))
            && all_fit(scales.len(), go_on, |mut part| part.all(|i| block_values::holds_scale(bits, scales.get(i))))
    };
    candidates.iter().copied().find(|&bits| holds(bits)).map(packing)
}

/// Whether all values of a constant fit.
fn values_fit(constant: &Constant, go_on: &mut dyn FnMut() -> bool, fits: impl Fn(u8) -> bool) -> bool {
    let bytes: &[u8] = &constant.bytes;
    all_fit(bytes.len(), go_on, |part| bytes[part].iter().all(|&q| fits(q)))
}

/// Whether values fit these bits, and the scales of each 256 columns are whole numbers times one number (of minima: are one).
fn fits_k_blocks(
    constant: &Constant,
    bits: Bits,
    (rows, cols): (usize, usize),
    go_on: &mut dyn FnMut() -> bool,
) -> bool {
    const BLOCKS: usize = k_blocks::BLOCKS;
    let Quant::Block { scales, offsets, .. } = &constant.quant else { return false };
    let (unit, per_unit) = if bits == Bits::Minima { (BLOCKS, 1) } else { (k_blocks::STRETCH, BLOCKS) };
    if !cols.is_multiple_of(unit) || scales.len() != rows * (cols / unit) * per_unit || offsets.iter().any(|&o| o != 0)
    {
        return false;
    }
    // All codes of four bits are values.
    let small = bits == Bits::UFour || values_fit(constant, go_on, |q| k_blocks::holds(bits, q.cast_signed()));
    let parts = |first: usize| -> [f32; BLOCKS] { std::array::from_fn(|i| scales.get(first + i)) };
    let exact = |part: Range<usize>| part.step_by(BLOCKS).all(|first| factors(&parts(first)).is_some());
    small && (bits == Bits::Minima || all_fit(scales.len(), go_on, exact))
}

/// Whether values in blocks of 16 need no more than these bits, and their scales are whole numbers times one number for each 256.
fn fits_halves(constant: &Constant, bits: Bits, cols: usize, go_on: &mut dyn FnMut() -> bool) -> bool {
    let Quant::Block { scales, offsets, .. } = &constant.quant else { return false };
    if !cols.is_multiple_of(STRETCH) || !offsets.iter().all(|&o| o == 0) {
        return false;
    }
    // Two values of four bits may share a byte.
    let halves = constant.dtype == Dtype::UFixed4;
    let fits = |q: u8| half_blocks::holds(bits, q.cast_signed());
    let small = values_fit(constant, go_on, |q| if halves { fits(q & 15) && fits(q >> 4) } else { fits(q) });
    let parts = |first: usize| -> [f32; STRETCH / SUB] { std::array::from_fn(|i| scales.get(first + i)) };
    let exact = |part: Range<usize>| part.step_by(STRETCH / SUB).all(|first| factors_of(bits, &parts(first)).is_some());
    small && all_fit(scales.len(), go_on, exact)
}

/// Packs constants that [`packing_of`] chose a packing for.
fn packed_bytes(constant: &Constant, packing: Packing, rows: usize, cols: usize) -> Bytes {
    let len = packing.size_bytes(rows, cols).expect("larger than its source, which is in memory, by an eighth at most");
    Bytes::filled(len, |bytes| {
        let mut at = 0;
        let put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
            Ok::<_, std::convert::Infallible>(())
        };
        let Ok(()) = pack_rows(constant, packing, rows, cols, put);
    })
}

/// Rows that a thread packs at a time: whole groups.
const STRIP: usize = 16 * GROUP;
/// Most threads that pack a matrix: the disk and the source keep no more of them busy.
const MOST_PACKERS: usize = 8;

/// Packs constants that [`packing_of`] chose a packing for, and passes the bytes on in their order. Strips of a large matrix are
/// packed on as many threads as the machine offers.
///
/// # Errors
/// Those of `put`.
pub(crate) fn pack_rows<E>(
    constant: &Constant,
    packing: Packing,
    rows: usize,
    cols: usize,
    mut put: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let n_strips = rows.div_ceil(STRIP);
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_PACKERS).min(n_strips).max(1);
    let mut strips = vec![Vec::new(); threads];
    let pack = |number: usize, strip: &mut Vec<u8>| pack_strip(constant, packing, (rows, cols), number * STRIP, strip);
    for first in (0..n_strips).step_by(threads) {
        let count = threads.min(n_strips - first);
        strips.iter_mut().for_each(Vec::clear);
        thread::scope(|scope| {
            let mut strips = strips[..count].iter_mut().enumerate();
            let own = strips.next();
            for (i, strip) in strips {
                // One that the system refuses is no error: its strip is packed below.
                let _ = thread::Builder::new().spawn_scoped(scope, move || pack(first + i, strip));
            }
            if let Some((i, strip)) = own {
                pack(first + i, strip);
            }
        });
        let left = strips[..count].iter_mut().enumerate().filter(|(_, strip)| strip.is_empty());
        left.for_each(|(i, strip)| pack(first + i, strip));
        strips[..count].iter().try_for_each(|strip| put(strip))?;
    }
    Ok(())
}

/// Packs up to [`STRIP`] rows from row `first` on.
fn pack_strip(constant: &Constant, packing: Packing, (rows, cols): (usize, usize), first: usize, strip: &mut Vec<u8>) {
    let Quant::Block { scales, .. } = &constant.quant else { return };
    let count = STRIP.min(rows - first);
    let per_row = scales.len() / rows;
    let wanted = packing.scales_of_row(cols);
    let repeat = wanted / per_row.max(1);
    let (bytes, all_scales): (&[u8], _) = (&constant.bytes, scales.bytes().as_chunks().0);
    let halves = bytes.len() < rows * cols;
    let (mut quantised, mut wide) = (vec![0; cols], vec![0.0; wanted]);
    strip.resize(packing.size_bytes(count, cols).expect("a part of what is in memory"), 0);
    let mut packer = Packer::new(strip, packing, count, cols);
    for row in first..first + count {
        read_row(constant.dtype, bytes, halves, row * cols, &mut quantised);
        spread(&all_scales[row * per_row..], repeat, &mut wide);
        packer.row(row - first, &quantised, &wide).expect("values and scales that `packing_of` saw");
    }
}

/// Quantised values from element `first` on; those of 4 bits may lie two per byte, the earlier in the lower half.
fn read_row(dtype: Dtype, bytes: &[u8], halves: bool, first: usize, row: &mut [i8]) {
    let low = |byte: u8| (byte << 4).cast_signed() >> 4;
    let bits = |byte: u8| (byte & 15).cast_signed();
    let half = |at: usize| bytes[at / 2] >> (at % 2 * 4);
    let places = row.iter_mut().zip(first..);
    match (dtype, halves) {
        (Dtype::SFixed4, true) => places.for_each(|(q, at)| *q = low(half(at))),
        (Dtype::UFixed4, true) => places.for_each(|(q, at)| *q = bits(half(at))),
        (Dtype::SFixed4, false) => places.for_each(|(q, at)| *q = low(bytes[at])),
        (Dtype::UFixed4, false) => places.for_each(|(q, at)| *q = bits(bytes[at])),
        _ => places.for_each(|(q, at)| *q = bytes[at].cast_signed()),
    }
}

/// Each of a row's scales `repeat` times.
fn spread(scales: &[[u8; BlockScales::BYTES]], repeat: usize, wide: &mut [f32]) {
    for (wide, &scale) in wide.chunks_mut(repeat.max(1)).zip(scales) {
        wide.fill(f32::from_le_bytes(scale));
    }
}
