//! `PDKVCacheUpdate`: `dep, past keys, past values, new keys, new values, first row to write, first row to read, how many,
//! whether at all` -> `keys, values`.
//!
//! *Shapes*: values `[.., P, D]` and `[.., N, D]`; keys `[.., D, P]` with `[.., D, N]`, or as the values.
//! *Units and dtype*: bytes are moved; all four caches and new rows have elements of the same size.
//! *Trap*: a result in a buffer of its own is the whole past first, also where nothing is to be written.

use qnn_sys as q;
use qnn_sys::cpu_op_package::{QnnCpuOpPackage_Node_t, QnnCpuOpPackage_Tensor_t};

/// The op's type.
pub const NAME: &core::ffi::CStr = c"PDKVCacheUpdate";

/// QNN's number for operands that make no sense.
pub const INVALID: u64 = q::QNN_OP_PACKAGE_ERROR_VALIDATION_FAILURE as u64;
/// QNN's number for rows that do not fit.
pub const BAD_ROWS: u64 = q::QNN_OP_PACKAGE_ERROR_INVALID_ARGUMENT as u64;

/// Extents of an update: `blocks` times `past` and `new` rows of `row_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Runs of rows, one after the other.
    pub blocks: usize,
    /// Rows of the cache.
    pub past: usize,
    /// Rows that are new.
    pub new: usize,
    /// Bytes of a row.
    pub row_bytes: usize,
}

impl Extents {
    fn along(past: &[u32], new: &[u32], axis: usize, elem_bytes: usize) -> Option<Self> {
        let same = past.len() == new.len() && (0..past.len()).all(|a| a == axis || past[a] == new[a]);
        if !same || axis >= past.len() || new[axis] > past[axis] {
            return None;
        }
        // Dims are the caller's: more bytes than can be counted are no cache.
        let product = |dims: &[u32]| dims.iter().try_fold(1_usize, |n, &d| n.checked_mul(d as usize));
        let (blocks, past_rows) = (product(&past[..axis])?, past[axis] as usize);
        let row_bytes = product(&past[axis + 1..])?.checked_mul(elem_bytes)?;
        blocks.checked_mul(past_rows)?.checked_mul(row_bytes)?;
        Some(Self { blocks, past: past_rows, new: new[axis] as usize, row_bytes })
    }

    /// Of the values: rows along the axis before the last.
    pub fn of_values(past: &[u32], new: &[u32], elem_bytes: usize) -> Option<Self> {
        Self::along(past, new, past.len().checked_sub(2)?, elem_bytes)
    }

    /// Of the keys: rows along the last axis, else along the one before it; as many as the values have.
    pub fn of_keys(past: &[u32], new: &[u32], values: Self, elem_bytes: usize) -> Option<Self> {
        let rank = past.len();
        let fits = |found: &Self| (found.past, found.new) == (values.past, values.new);
        let mut axes = [rank.checked_sub(1)?, rank.checked_sub(2)?].into_iter();
        axes.find_map(|axis| Self::along(past, new, axis, elem_bytes).filter(fits))
    }

    /// Bytes of the whole cache.
    pub fn bytes(&self) -> usize {
        self.blocks * self.past * self.row_bytes
    }
}

/// The size of an element that caches are kept in.
pub fn element_bytes(data_type: u32) -> Option<usize> {
    match data_type {
        q::QNN_DATATYPE_INT_8
        | q::QNN_DATATYPE_UINT_8
        | q::QNN_DATATYPE_SFIXED_POINT_8
        | q::QNN_DATATYPE_UFIXED_POINT_8 => Some(1),
        q::QNN_DATATYPE_FLOAT_16 => Some(2),
        q::QNN_DATATYPE_FLOAT_32 => Some(4),
        _ => None,
    }
}

/// Type and extents of an operand.
pub type Operand<'a> = (u32, &'a [u32]);

/// Checks nine inputs and two outputs; extents of keys and values.
pub fn check(inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Option<[Extents; 2]> {
    let &[_, keys, values, new_keys, new_values, ref scalars @ ..] = inputs else { return None };
    let is_scalar = |&(ty, dims): &Operand<'_>| {
        matches!(ty, q::QNN_DATATYPE_INT_32 | q::QNN_DATATYPE_UINT_32) && dims.iter().all(|&d| d == 1)
    };
    let one_type = [values, new_keys, new_values].iter().all(|(ty, _)| *ty == keys.0);
    if scalars.len() != 4 || !scalars.iter().all(is_scalar) || !one_type || outputs != [keys, values] {
        return None;
    }
    let bytes = element_bytes(keys.0)?;
    let of_values = Extents::of_values(values.1, new_values.1, bytes)?;
    Some([Extents::of_keys(keys.1, new_keys.1, of_values, bytes)?, of_values])
}

/// A made op.
pub struct Update {
    node: *const QnnCpuOpPackage_Node_t,
    extents: [Extents; 2],
}

impl Update {
    /// For a node.
    ///
    /// # Safety
    /// The node and all it leads to are valid until this is dropped.
    pub unsafe fn new(node: *const QnnCpuOpPackage_Node_t) -> Option<Self> {
        // SAFETY: the caller's promise.
        let operands = unsafe { operands(node) }?;
        let described = |list: &[*mut QnnCpuOpPackage_Tensor_t]| -> Vec<(u32, Vec<u32>)> {
            // SAFETY: the caller's promise for each tensor and its extents.
            list.iter()
                .map(|&t| unsafe { ((*t).dataType, slice((*t).currentDimensions, (*t).rank).to_vec()) })
                .collect()
        };
        let lists = operands.map(described);
        let [inputs, outputs] =
            lists.each_ref().map(|l| l.iter().map(|(ty, dims)| (*ty, &dims[..])).collect::<Vec<_>>());
        check(&inputs, &outputs).map(|extents| Self { node, extents })
    }

    /// Runs once.
    ///
    /// # Safety
    /// Every tensor's data is as large as its extents say; a result's is that of its past, or shares no byte with anything.
    pub unsafe fn run(&self) -> u64 {
        // SAFETY: the promise of `new`.
        let Some([inputs, outputs]) = (unsafe { operands(self.node) }) else { return INVALID };
        // SAFETY: as above; the data is the caller's promise.
        let data = |t: *mut QnnCpuOpPackage_Tensor_t| unsafe { (*t).data }.cast::<u8>();
        if inputs.iter().chain(outputs).any(|&t| data(t).is_null()) {
            return INVALID;
        }
        // SAFETY: four bytes of an integer each (`check`), at any address.
        let scalar = |i: usize| i64::from(unsafe { data(inputs[i]).cast::<i32>().read_unaligned() });
        let (to, from, n, enable) = (scalar(5), scalar(6), scalar(7), scalar(8));
        let (to, from, n) = if enable == 0 || n == 0 { (0, 0, 0) } else { (to, from, n) };
        let fits = |first: i64, limit: usize| first >= 0 && n >= 0 && first + n <= limit as i64;
        if self.extents.iter().any(|e| !fits(to, e.past) || !fits(from, e.new)) {
            return BAD_ROWS;
        }
        for (i, e) in self.extents.iter().enumerate() {
            let (past, new, out) = (data(inputs[1 + i]), data(inputs[3 + i]), data(outputs[i]));
            if past != out {
                // SAFETY: both as large as the extents say, and apart, by the caller's promise.
                unsafe { core::ptr::copy_nonoverlapping(past, out, e.bytes()) };
            }
            for block in 0..e.blocks {
                let (at, of) = (block * e.past + to as usize, block * e.new + from as usize);
                let bytes = n as usize * e.row_bytes;
                // SAFETY: the rows lie inside (above), and new rows share no byte with a result.
                unsafe { core::ptr::copy_nonoverlapping(new.add(of * e.row_bytes), out.add(at * e.row_bytes), bytes) };
            }
        }
        q::QNN_SUCCESS
    }
}

/// Inputs and outputs of a node.
///
/// # Safety
/// The node is null or valid.
unsafe fn operands<'a>(node: *const QnnCpuOpPackage_Node_t) -> Option<[&'a [*mut QnnCpuOpPackage_Tensor_t]; 2]> {
    // SAFETY: the caller's promise.
    let node = unsafe { node.as_ref() }?;
    // SAFETY: as above; QNN's contract: as many pointers as stated.
    Some(unsafe { [slice(node.inputs, node.numOfInputs), slice(node.outputs, node.numOfOutputs)] })
}

/// A list of C.
///
/// # Safety
/// Null, or as many values as stated.
pub(crate) unsafe fn slice<'a, T>(start: *const T, n: u32) -> &'a [T] {
    if start.is_null() || n == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(start, n as usize) }
}
