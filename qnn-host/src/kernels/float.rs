//! Numbers in memory: their type, and views of bytes that hold them.
//!
//! *Traps*: the bytes may be client memory or a mapped file, so they need not be aligned to their elements.

use half::{bf16, f16};

use super::simd::{MAX_LANES, Simd};

/// Element types of floating point operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Float {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of an F32.
    Bf16,
}

impl Float {
    /// All of them, for tests.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// Bytes of one element.
    pub fn size_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// A read-only run of numbers of any [`Float`] type, at any alignment.
#[derive(Clone, Copy)]
pub struct Floats<'a> {
    bytes: &'a [u8],
    ty: Float,
}

impl<'a> Floats<'a> {
    /// Views `bytes` as numbers of type `ty`.
    ///
    /// # Panics
    /// When the bytes are not a whole number of elements.
    pub fn new(bytes: &'a [u8], ty: Float) -> Self {
        assert!(bytes.len().is_multiple_of(ty.size_bytes()), "{} bytes are no whole number of {ty:?}", bytes.len());
        Self { bytes, ty }
    }

    /// Views f32 numbers.
    pub fn f32(data: &'a [f32]) -> Self {
        // SAFETY: f32 has no padding and no invalid bytes to expose; the lifetime is that of `data`.
        let bytes = unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) };
        Self { bytes, ty: Float::F32 }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.ty.size_bytes()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Element type.
    pub fn ty(&self) -> Float {
        self.ty
    }

    /// The elements `start..end`.
    ///
    /// # Panics
    /// When they do not lie inside.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        let size = self.ty.size_bytes();
        Self { bytes: &self.bytes[range.start * size..range.end * size], ty: self.ty }
    }

    /// Element `i`, widened.
    ///
    /// # Panics
    /// When there is no element `i`.
    pub fn get(&self, i: usize) -> f32 {
        let one = self.slice(i..i + 1).bytes;
        match (self.ty, one) {
            (Float::F32, &[a, b, c, d]) => f32::from_ne_bytes([a, b, c, d]),
            (Float::F16, &[a, b]) => f16::from_ne_bytes([a, b]).to_f32(),
            (Float::Bf16, &[a, b]) => bf16::from_ne_bytes([a, b]).to_f32(),
            _ => unreachable!("a slice of one element has its size"),
        }
    }

    /// The bytes that hold the numbers.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Start of the numbers; `E` must be the type that [`Floats::ty`] names for reads through it to make sense.
    pub(crate) fn ptr<E: Elem>(&self) -> *const E {
        debug_assert_eq!(E::TY, self.ty);
        self.bytes.as_ptr().cast()
    }
}

/// A mutable run of numbers of any [`Float`] type, at any alignment.
pub struct FloatsMut<'a> {
    bytes: &'a mut [u8],
    ty: Float,
}

impl<'a> FloatsMut<'a> {
    /// Views `bytes` as numbers of type `ty`.
    ///
    /// # Panics
    /// When the bytes are not a whole number of elements.
    pub fn new(bytes: &'a mut [u8], ty: Float) -> Self {
        assert!(bytes.len().is_multiple_of(ty.size_bytes()), "{} bytes are no whole number of {ty:?}", bytes.len());
        Self { bytes, ty }
    }

    /// Views f32 numbers.
    pub fn f32(data: &'a mut [f32]) -> Self {
        // SAFETY: every four bytes are a valid f32, so bytes may be written freely; the lifetime is that of `data`.
        let bytes = unsafe { std::slice::from_raw_parts_mut(data.as_mut_ptr().cast(), size_of_val(data)) };
        Self { bytes, ty: Float::F32 }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.ty.size_bytes()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Element type.
    pub fn ty(&self) -> Float {
        self.ty
    }

    pub(crate) fn ptr_mut<E: Elem>(&mut self) -> *mut E {
        debug_assert_eq!(E::TY, self.ty);
        self.bytes.as_mut_ptr().cast()
    }
}

/// What kernels can read as numbers, as a Rust type: they are compiled for each. Pointers to it need no alignment.
pub(crate) trait Load: Copy + 'static {
    /// # Safety
    /// One element is readable at `p`.
    unsafe fn get(p: *const Self) -> f32;

    /// # Safety
    /// `S::LANES` elements are readable at `p`.
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::V;

    /// The first `n < S::LANES` elements, zeros behind.
    ///
    /// # Safety
    /// `n` elements are readable at `p`.
    #[inline(always)]
    unsafe fn load_first<S: Simd>(s: S, p: *const Self, n: usize) -> S::V {
        let mut lanes = [const { std::mem::MaybeUninit::<Self>::zeroed() }; MAX_LANES];
        // SAFETY: all-zero bytes are the number zero in each type; the bytes of `n <= MAX_LANES` elements are readable
        // at `p` and fit; a vector fits in the array.
        unsafe {
            p.cast::<u8>().copy_to_nonoverlapping(lanes.as_mut_ptr().cast(), n * size_of::<Self>());
            Self::load(s, lanes.as_ptr().cast())
        }
    }
}

/// A [`Float`] type as a Rust type.
pub(crate) trait Elem: Load {
    const TY: Float;

    /// Rounds to nearest even.
    ///
    /// # Safety
    /// `S::LANES` elements are writable at `p`.
    unsafe fn store<S: Simd>(s: S, p: *mut Self, v: S::V);

    /// Writes the first `n < S::LANES` lanes.
    ///
    /// # Safety
    /// `n` elements are writable at `p`.
    #[inline(always)]
    unsafe fn store_first<S: Simd>(s: S, p: *mut Self, v: S::V, n: usize) {
        let mut lanes = [const { std::mem::MaybeUninit::<Self>::zeroed() }; MAX_LANES];
        // SAFETY: a vector fits in the array; the bytes of `n` elements are writable at `p`.
        unsafe {
            Self::store(s, lanes.as_mut_ptr().cast(), v);
            p.cast::<u8>().copy_from_nonoverlapping(lanes.as_ptr().cast(), n * size_of::<Self>());
        }
    }
}

impl Load for f32 {
    #[inline(always)]
    unsafe fn get(p: *const Self) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { p.read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::V {
        // SAFETY: the caller's promise; vector loads need no alignment.
        unsafe { s.load(p) }
    }

    #[inline(always)]
    unsafe fn load_first<S: Simd>(s: S, p: *const Self, n: usize) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { s.load_first(p, n) }
    }
}

impl Elem for f32 {
    const TY: Float = Float::F32;

    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut Self, v: S::V) {
        // SAFETY: the caller's promise; vector stores need no alignment.
        unsafe { s.store(p, v) }
    }

    #[inline(always)]
    unsafe fn store_first<S: Simd>(s: S, p: *mut Self, v: S::V, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { s.store_first(p, v, n) }
    }
}

impl Load for f16 {
    #[inline(always)]
    unsafe fn get(p: *const Self) -> f32 {
        // SAFETY: the caller's promise.
        let x = unsafe { p.read_unaligned() };
        x.to_f32()
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { s.load_f16(p) }
    }
}

impl Elem for f16 {
    const TY: Float = Float::F16;

    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut Self, v: S::V) {
        // SAFETY: the caller's promise.
        unsafe { s.store_f16(p, v) }
    }
}

impl Load for bf16 {
    #[inline(always)]
    unsafe fn get(p: *const Self) -> f32 {
        // SAFETY: the caller's promise.
        let x = unsafe { p.read_unaligned() };
        x.to_f32()
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { s.load_bf16(p) }
    }
}

impl Elem for bf16 {
    const TY: Float = Float::Bf16;

    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut Self, v: S::V) {
        let mut lanes = [0.0f32; MAX_LANES];
        // SAFETY: a vector fits in the array; the caller promised `S::LANES` elements at `p`.
        unsafe {
            s.store(lanes.as_mut_ptr(), v);
            for (i, &lane) in lanes[..S::LANES].iter().enumerate() {
                p.add(i).write_unaligned(Self::from_f32(lane));
            }
        }
    }
}

/// Runs `$body` with `$e` standing for the Rust type of a [`Float`].
macro_rules! with_elem {
    ($ty:expr, $e:ident => $body:expr) => {
        match $ty {
            $crate::kernels::float::Float::F32 => {
                type $e = f32;
                $body
            }
            $crate::kernels::float::Float::F16 => {
                type $e = half::f16;
                $body
            }
            $crate::kernels::float::Float::Bf16 => {
                type $e = half::bf16;
                $body
            }
        }
    };
}
pub(crate) use with_elem;
