//! Products of 8-bit quantised values for sixteen rows of weights at once, behind one trait.
//!
//! A [`Dot::Weights`] is 64 bytes: four weights of each of sixteen rows, `[row][4]`. A [`Dot::Quad`] is four activations, offered
//! to all rows. [`Dot::dot`] adds their products to sixteen sums. As with [`Simd`], a value is proof that
//! the CPU has the instructions, and everything is `inline(always)`.

use super::Simd;
use super::act_scale::{magnitude, scale_of};

/// Rows of weights that are laid out, and multiplied, together.
pub(crate) const GROUP: usize = 16;

/// Numbers of a block of activations.
pub(crate) const BLOCK: usize = 32;

/// Quads of activations (-127 to 127) whose products with unsigned weights of `bits` bits, two in each sum, fit in 16 bits.
pub(crate) const fn few_quads(bits: u32) -> usize {
    match bits {
        2..=4 => 8,
        5 => 4,
        6 => 2,
        _ => 0,
    }
}

/// An integer unit.
pub(crate) trait Dot: Copy + Send + Sync + 'static {
    /// The unit for f32 beside it.
    type Float: Simd;
    /// Four 8-bit weights of each of sixteen rows.
    type Weights: Copy;
    /// A sum for each of sixteen rows.
    type Sums: Copy;
    /// An f32 for each of sixteen rows.
    type Group: Copy;
    /// Four activations.
    type Quad: Copy;
    /// What [`Dot::bytes`] adds to signed 8-bit weights; the starts of the sums make up for it.
    const BYTE_OFFSET: i32;
    /// Rows of activations and groups of weights of the register tile for many rows: 1 to 3 groups.
    const TILE: (usize, usize);
    /// Whether sums of a register tile begin with the bits of [`base_of`](super::act_scale::base_of) a scale, and end as a float that
    /// differs from the base by the sum times the scale's power of two: exact, as a base has 2^20 of its last digits to either side
    /// and sums are below that. To take the base off costs what [`Dot::to_float`] would; what is left is multiplied with a weight's
    /// scale times the mantissa, which is computed once for all rows and not for each.
    const BASED: bool = false;

    /// Runs a piece of a kernel as a function of its own, compiled for this unit (see [`Simd::outline`]).
    ///
    /// # Safety
    /// As the piece demands.
    unsafe fn outline<P: DotPiece>(self, piece: P);

    fn float(self) -> Self::Float;

    /// # Safety
    /// 64 bytes are readable at `p`.
    unsafe fn load(self, p: *const u8) -> Self::Weights;

    /// # Safety
    /// 64 bytes are writable at `p`.
    unsafe fn store(self, p: *mut u8, weights: Self::Weights);

    /// Signed weights in the form that [`Dot::dot`] takes.
    fn bytes(self, weights: Self::Weights) -> Self::Weights;

    /// The lower four bits of each byte, in the form that [`Dot::dot`] takes: 0 to 15.
    fn low(self, weights: Self::Weights) -> Self::Weights;

    /// The upper four bits of each byte.
    fn high(self, weights: Self::Weights) -> Self::Weights;

    /// Weights of 6 bits, 0 to 63: the lower four bits, and two above them from bits `2 * i` and `2 * i + 1` of `upper`, `i < 4`.
    #[inline(always)]
    fn six(self, lower: Self::Weights, upper: Self::Weights, i: u32) -> Self::Weights {
        let (mut low, mut high) = ([0u8; 4 * GROUP], [0u8; 4 * GROUP]);
        // SAFETY: 64 bytes each.
        unsafe {
            self.store(low.as_mut_ptr(), lower);
            self.store(high.as_mut_ptr(), upper);
            low.iter_mut().zip(high).for_each(|(low, high)| *low |= (high >> (2 * i) & 3) << 4);
            self.load(low.as_ptr())
        }
    }

    /// Weights of 2 bits, 0 to 3, from bit `2 * i` on, `i < 4`.
    #[inline(always)]
    fn two(self, weights: Self::Weights, i: u32) -> Self::Weights {
        let mut bytes = [0u8; 4 * GROUP];
        // SAFETY: 64 bytes.
        unsafe {
            self.store(bytes.as_mut_ptr(), weights);
            bytes.iter_mut().for_each(|byte| *byte = *byte >> (2 * i) & 3);
            self.load(bytes.as_ptr())
        }
    }

    /// Weights of 3 bits, 0 to 7: two from bit `2 * (i % 4)` of `lower` on, and one above them from bit `i` of `upper`, `i < 8`.
    #[inline(always)]
    fn three(self, lower: Self::Weights, upper: Self::Weights, i: u32) -> Self::Weights {
        let (mut low, mut high) = ([0u8; 4 * GROUP], [0u8; 4 * GROUP]);
        // SAFETY: 64 bytes each.
        unsafe {
            self.store(low.as_mut_ptr(), lower);
            self.store(high.as_mut_ptr(), upper);
            low.iter_mut().zip(high).for_each(|(low, high)| *low = *low >> (2 * (i % 4)) & 3 | (high >> i & 1) << 2);
            self.load(low.as_ptr())
        }
    }

    /// Weights of 5 bits, 0 to 31: the lower four bits, and one above them from bit `i` of `upper`, `i < 8`.
    #[inline(always)]
    fn five(self, lower: Self::Weights, upper: Self::Weights, i: u32) -> Self::Weights {
        let (mut low, mut high) = ([0u8; 4 * GROUP], [0u8; 4 * GROUP]);
        // SAFETY: 64 bytes each.
        unsafe {
            self.store(low.as_mut_ptr(), lower);
            self.store(high.as_mut_ptr(), upper);
            low.iter_mut().zip(high).for_each(|(low, high)| *low |= (high >> i & 1) << 4);
            self.load(low.as_ptr())
        }
    }

    /// Weights that are numbers 0 to 15 of signed levels, in the form of [`Dot::bytes`].
    #[inline(always)]
    fn levels(self, numbers: Self::Weights, levels: &[i8; 16]) -> Self::Weights {
        let mut bytes = [0u8; 4 * GROUP];
        // SAFETY: 64 bytes.
        unsafe {
            self.store(bytes.as_mut_ptr(), numbers);
            bytes.iter_mut().for_each(|byte| *byte = levels[usize::from(*byte & 15)].cast_unsigned());
            self.bytes(self.load(bytes.as_ptr()))
        }
    }

    /// # Safety
    /// 16 signed bytes are readable at `p`.
    #[inline(always)]
    unsafe fn load_group_i8(self, p: *const i8) -> Self::Group {
        // SAFETY: the caller promised 16 bytes; 16 numbers lie on the stack.
        unsafe {
            let numbers = p.cast::<[i8; GROUP]>().read_unaligned().map(f32::from);
            self.load_group(numbers.as_ptr())
        }
    }

    /// The lower or the upper four bits of each byte.
    ///
    /// # Safety
    /// 16 bytes are readable at `p`.
    #[inline(always)]
    unsafe fn load_group_u4(self, p: *const u8, upper: bool) -> Self::Group {
        // SAFETY: the caller promised 16 bytes; 16 numbers lie on the stack.
        unsafe {
            let bytes = p.cast::<[u8; GROUP]>().read_unaligned();
            let numbers = bytes.map(|byte| f32::from(if upper { byte >> 4 } else { byte & 15 }));
            self.load_group(numbers.as_ptr())
        }
    }

    /// Powers of two from their exponents in an f32: 2^(byte - 127), or 0 for 0.
    ///
    /// # Safety
    /// 16 bytes are readable at `p`.
    #[inline(always)]
    unsafe fn load_group_exponents(self, p: *const u8) -> Self::Group {
        // SAFETY: the caller promised 16 bytes; 16 numbers lie on the stack.
        unsafe {
            let exponents = p.cast::<[u8; GROUP]>().read_unaligned();
            let numbers = exponents.map(|exponent| f32::from_bits(u32::from(exponent) << 23));
            self.load_group(numbers.as_ptr())
        }
    }

    /// # Safety
    /// 4 bytes are readable at `p`.
    unsafe fn quad(self, p: *const i8) -> Self::Quad;

    fn sums(self, start: i32) -> Self::Sums;

    fn dot(self, sums: Self::Sums, weights: Self::Weights, quad: Self::Quad) -> Self::Sums;

    /// [`Dot::dot`] in the order that is written, where the compiler's own would be a worse one.
    #[inline(always)]
    fn dot_in_place(self, sums: Self::Sums, weights: Self::Weights, quad: Self::Quad) -> Self::Sums {
        self.dot(sums, weights, quad)
    }

    /// Begins a run of [`Dot::dot_few`] on top of `sums`. A unit without products of four may add pairs up in 16 bits until
    /// [`Dot::end_few`]: for weights of up to 4 bits 8 quads at the most, of 5 bits 4, of 6 bits 2
    /// ([`few_quads`]).
    #[inline(always)]
    fn begin_few(self, sums: Self::Sums) -> Self::Sums {
        sums
    }

    /// [`Dot::dot`] for weights that are 0 to 63 at the most: what [`Dot::low`],
    /// [`Dot::high`], [`Dot::two`], [`Dot::three`], [`Dot::five`] and [`Dot::six`] give.
    #[inline(always)]
    fn dot_few(self, few: Self::Sums, weights: Self::Weights, quad: Self::Quad) -> Self::Sums {
        self.dot(few, weights, quad)
    }

    /// Ends a run: `sums`, which it began with, and its products.
    #[inline(always)]
    fn end_few(self, _sums: Self::Sums, few: Self::Sums) -> Self::Sums {
        few
    }

    /// [`Dot::dot`] of each row's sums with its quad, of `R` that follow each other at `quads`.
    ///
    /// # Safety
    /// `4 * R` bytes are readable at `quads`.
    #[inline(always)]
    unsafe fn dot_rows<const R: usize>(self, sums: &mut [Self::Sums; R], weights: Self::Weights, quads: *const i8) {
        for (r, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *sum = self.dot(*sum, weights, unsafe { self.quad(quads.add(4 * r)) });
        }
    }

    /// [`Dot::dot_few`] likewise.
    ///
    /// # Safety
    /// As [`Dot::dot_rows`].
    #[inline(always)]
    unsafe fn dot_few_rows<const R: usize>(self, few: &mut [Self::Sums; R], weights: Self::Weights, quads: *const i8) {
        for (r, few) in few.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *few = self.dot_few(*few, weights, unsafe { self.quad(quads.add(4 * r)) });
        }
    }

    /// Keeps the weights of two quads that follow each other (the first at an even place), ready for [`Dot::products`].
    ///
    /// # Safety
    /// 128 bytes are writable at `p`.
    #[inline(always)]
    unsafe fn store_opened(self, p: *mut u8, first: Self::Weights, second: Self::Weights) {
        // SAFETY: the caller's promise.
        unsafe {
            self.store(p, first);
            self.store(p.add(64), second);
        }
    }

    /// `R` rows of activations, `[quad][R][4]` at `acts`, times `G` groups of weights, at `weights` as [`Dot::store_opened`]
    /// left them and `stride` bytes apart: `quads` of each, an even number. The sums of row `r` start with `starts[r]`. Weights
    /// are unsigned and of so few bits that `FEW` quads can be added up in 16 bits, or signed where it is 0.
    ///
    /// # Safety
    /// `R` is [`Dot::TILE`]'s, `G` at most that. Activations and weights are readable, and so are `R` starts, which begin at a
    /// multiple of 4.
    #[inline(always)]
    unsafe fn products<const R: usize, const G: usize, const FEW: usize>(
        self,
        weights: *const u8,
        stride: usize,
        acts: *const i8,
        quads: usize,
        starts: *const i32,
    ) -> [[Self::Sums; G]; R] {
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums: [[Self::Sums; G]; R] = std::array::from_fn(|r| [self.sums(*starts.add(r)); G]);
            for quad in 0..quads {
                let w: [Self::Weights; G] = std::array::from_fn(|g| self.load(weights.add(g * stride + 64 * quad)));
                for (r, sums) in sums.iter_mut().enumerate() {
                    let x = self.quad(acts.add((quad * R + r) * 4));
                    for (sum, w) in sums.iter_mut().zip(w) {
                        *sum = self.dot_in_place(*sum, w, x);
                    }
                }
            }
            sums
        }
    }

    fn to_float(self, sums: Self::Sums) -> Self::Group;

    /// Sums that began with the bits of `base`, less the base, where they are [`Dot::BASED`].
    #[inline(always)]
    fn less_base(self, _sums: Self::Sums, _base: f32) -> Self::Group {
        unreachable!("sums of this unit have no base")
    }

    fn zero(self) -> Self::Group;

    /// # Safety
    /// 16 f32 are readable at `p`.
    unsafe fn load_group(self, p: *const f32) -> Self::Group;

    /// # Safety
    /// 16 f16 are readable at `p`.
    unsafe fn load_group_f16(self, p: *const half::f16) -> Self::Group;

    /// # Safety
    /// 16 f32 are writable at `p`.
    unsafe fn store_group(self, p: *mut f32, group: Self::Group);

    fn mul(self, a: Self::Group, b: Self::Group) -> Self::Group;

    fn mul_splat(self, a: Self::Group, x: f32) -> Self::Group;

    /// `a * b + c`.
    fn fma(self, a: Self::Group, b: Self::Group, c: Self::Group) -> Self::Group;

    /// `a * x + c`.
    fn fma_splat(self, a: Self::Group, x: f32, c: Self::Group) -> Self::Group;

    /// Quantises a block: `to[i] = round(x[i] / scale)` with the scale of [`scale_of`] `max |x|`. Returns the scale and the sum of
    /// the quantised values. A block of zeros has scale 0; one that holds NaN or infinity has scale NaN, and any values.
    ///
    /// # Safety
    /// [`BLOCK`] numbers are readable at `x` and writable at `to`.
    unsafe fn quantize(self, x: *const f32, to: *mut i8) -> (f32, i32);

    /// [`Dot::quantize`] of a block of each of four rows, to the same bits: four values of each go side by side, `[row][4]`, to every
    /// `stride` bytes from `to` on.
    ///
    /// # Safety
    /// [`BLOCK`] numbers are readable at each of `x`; 16 bytes are writable at the `BLOCK / 4` places.
    #[inline(always)]
    unsafe fn quantize_four(self, x: [*const f32; 4], to: *mut i8, stride: usize) -> FourBlocks {
        let mut four = FourBlocks { scales: [0.0; 4], sums: [[0; 4]; 2] };
        for (row, x) in x.into_iter().enumerate() {
            let mut values = [0i8; BLOCK];
            // SAFETY: the caller's promise.
            let (scale, sum) = unsafe { self.quantize(x, values.as_mut_ptr()) };
            // SAFETY: the caller's promise.
            unsafe { scatter_quads(&values, to.add(4 * row), stride) };
            let first = values[..BLOCK / 2].iter().map(|&value| i32::from(value)).sum::<i32>();
            four.scales[row] = scale;
            (four.sums[0][row], four.sums[1][row]) = (first, sum - first);
        }
        four
    }
}

/// Writes a block's values, four to every `stride` bytes from `to` on.
///
/// # Safety
/// Four bytes are writable at the `BLOCK / 4` places.
#[inline(always)]
pub(crate) unsafe fn scatter_quads(values: &[i8; BLOCK], to: *mut i8, stride: usize) {
    for (quad, values) in values.as_chunks::<4>().0.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { to.add(quad * stride).cast::<[i8; 4]>().write(*values) };
    }
}

/// What is known of four quantised blocks.
pub(crate) struct FourBlocks {
    pub(crate) scales: [f32; 4],
    /// Sums of the values of each block's first half, and of the second.
    pub(crate) sums: [[i32; 4]; 2],
}

/// A part of a kernel that is compiled as a function of its own.
pub(crate) trait DotPiece {
    /// Must be `inline(always)`.
    ///
    /// # Safety
    /// As documented on the type.
    unsafe fn run<D: Dot>(self, d: D);
}

/// [`Dot::quantize`] on any CPU.
///
/// # Safety
/// As [`Dot::quantize`].
#[inline(always)]
pub(super) unsafe fn quantize_plainly(x: *const f32, to: *mut i8) -> (f32, i32) {
    // SAFETY: the caller promised `BLOCK` numbers.
    let x = unsafe { x.cast::<[f32; BLOCK]>().read_unaligned() };
    let largest = x.iter().fold(0, |largest, &x| largest.max(magnitude(x)));
    let (scale, inverse) = scale_of(f32::from_bits(largest.cast_unsigned()));
    let quantised = x.map(|x| (x * inverse).round_ties_even() as i8);
    // SAFETY: the caller promised `BLOCK` bytes.
    unsafe { to.cast::<[i8; BLOCK]>().write_unaligned(quantised) };
    (scale, quantised.iter().map(|&c| i32::from(c)).sum())
}
