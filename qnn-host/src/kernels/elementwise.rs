//! Numbers in, numbers out, one by one: sums, products, SiLU.
//!
//! *Row kernels*: safe, on the calling thread; operands and result are equally long. Functions that end in `_into` work in
//! place on their last operand.

use super::isa::simd_fn;
use super::math;
use super::simd::Simd;

#[inline(always)]
fn map1<S: Simd>(s: S, x: &[f32], y: &mut [f32], f: impl Fn(S, S::V) -> S::V) {
    assert_eq!(x.len(), y.len(), "operand and result differ in length");
    let whole = y.len() - y.len() % S::LANES;
    let (x, y, rest) = (x.as_ptr(), y.as_mut_ptr(), y.len() - whole);
    for i in (0..whole).step_by(S::LANES) {
        // SAFETY: `i + LANES <= whole`, inside both slices.
        unsafe { s.store(y.add(i), f(s, s.load(x.add(i)))) };
    }
    if rest > 0 {
        // SAFETY: `rest` numbers are left behind `whole` in both slices.
        unsafe { s.store_first(y.add(whole), f(s, s.load_first(x.add(whole), rest)), rest) };
    }
}

#[inline(always)]
fn map2<S: Simd>(s: S, a: &[f32], b: &[f32], y: &mut [f32], f: impl Fn(S, S::V, S::V) -> S::V) {
    assert_eq!((a.len(), b.len()), (y.len(), y.len()), "operands and result differ in length");
    // SAFETY: three slices of equal length; `y` is not shared.
    unsafe { map2_raw(s, a.as_ptr(), b.as_ptr(), y.as_mut_ptr(), y.len(), f) };
}

/// `y = f(a, b)`; `y` may be `a` or `b`.
///
/// # Safety
/// `n` numbers are readable at `a` and `b` and writable at `y`; they are the same or do not overlap.
#[inline(always)]
unsafe fn map2_raw<S: Simd>(
    s: S,
    a: *const f32,
    b: *const f32,
    y: *mut f32,
    n: usize,
    f: impl Fn(S, S::V, S::V) -> S::V,
) {
    let (whole, rest) = (n - n % S::LANES, n % S::LANES);
    for i in (0..whole).step_by(S::LANES) {
        // SAFETY: `i + LANES <= n`.
        unsafe { s.store(y.add(i), f(s, s.load(a.add(i)), s.load(b.add(i)))) };
    }
    if rest > 0 {
        // SAFETY: `rest` numbers are left behind `whole`.
        unsafe {
            let v = f(s, s.load_first(a.add(whole), rest), s.load_first(b.add(whole), rest));
            s.store_first(y.add(whole), v, rest);
        }
    }
}

macro_rules! binary {
    ($($(#[$meta:meta])* $name:ident, $into:ident, $body:ident, $into_body:ident = $f:expr;)*) => { $(
        simd_fn! { $(#[$meta])* pub fn $name(a: &[f32], b: &[f32], y: &mut [f32]) = $body }

        simd_fn! {
            /// The same with `b` as operand and result.
            pub fn $into(a: &[f32], b: &mut [f32]) = $into_body
        }

        #[inline(always)]
        fn $body<S: Simd>(s: S, a: &[f32], b: &[f32], y: &mut [f32]) {
            map2(s, a, b, y, $f);
        }

        #[inline(always)]
        fn $into_body<S: Simd>(s: S, a: &[f32], b: &mut [f32]) {
            assert_eq!(a.len(), b.len(), "operands differ in length");
            let y = b.as_mut_ptr();
            // SAFETY: two slices of equal length that do not overlap; the second is operand and result.
            unsafe { map2_raw(s, a.as_ptr(), y, y, a.len(), $f) };
        }
    )* };
}

binary! {
    /// `y = a + b`.
    add, add_into, add_body, add_into_body = |s, a, b| s.add(a, b);
    /// `y = a - b`.
    sub, sub_into, sub_body, sub_into_body = |s, a, b| s.sub(a, b);
    /// `y = a * b`.
    mul, mul_into, mul_body, mul_into_body = |s, a, b| s.mul(a, b);
    /// `y = a / b`.
    div, div_into, div_body, div_into_body = |s, a, b| s.div(a, b);
    /// `y = silu(a) * b`: the gate of a SwiGLU layer.
    silu_mul, silu_mul_into, silu_mul_body, silu_mul_into_body = |s, a, b| s.mul(math::silu(s, a), b);
}

simd_fn! {
    /// `y = 1 / (1 + e^-x)`.
    pub fn sigmoid(x: &[f32], y: &mut [f32]) = sigmoid_body
}

simd_fn! {
    /// `y = x / (1 + e^-x)`.
    pub fn silu(x: &[f32], y: &mut [f32]) = silu_body
}

simd_fn! {
    /// `y = x * factor`.
    pub fn scale(x: &[f32], factor: f32, y: &mut [f32]) = scale_body
}

#[inline(always)]
fn sigmoid_body<S: Simd>(s: S, x: &[f32], y: &mut [f32]) {
    map1(s, x, y, math::sigmoid);
}

#[inline(always)]
fn silu_body<S: Simd>(s: S, x: &[f32], y: &mut [f32]) {
    map1(s, x, y, math::silu);
}

#[inline(always)]
fn scale_body<S: Simd>(s: S, x: &[f32], factor: f32, y: &mut [f32]) {
    map1(s, x, y, |s, x| s.mul(x, s.splat(factor)));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Isa;
    use super::super::testing::{assert_close, isas, numbers};
    use super::*;

    type Kernel = fn(Isa, &[f32], &[f32], &mut [f32]);
    type Into = fn(Isa, &[f32], &mut [f32]);
    type Definition = fn(f64, f64) -> f64;

    fn reference_silu_mul(a: f64, b: f64) -> f64 {
        a / (1.0 + (-a).exp()) * b
    }

    proptest! {
        #[test]
        fn binary_kernels_match_the_definition(n in 0usize..70, seed: u64) {
            let (a, b) = (numbers(n, seed), numbers(n, seed ^ 1));
            let cases: [(&str, Kernel, Into, Definition); 5] = [
                ("add", add, add_into, |a, b| a + b),
                ("sub", sub, sub_into, |a, b| a - b),
                ("mul", mul, mul_into, |a, b| a * b),
                ("div", div, div_into, |a, b| a / b),
                ("silu_mul", silu_mul, silu_mul_into, reference_silu_mul),
            ];
            for isa in isas() {
                for (name, kernel, into, f) in cases {
                    let expected: Vec<f64> = a.iter().zip(&b).map(|(&a, &b)| f(a.into(), b.into())).collect();
                    let mut y = vec![f32::NAN; n];
                    kernel(isa, &a, &b, &mut y);
                    assert_close(&y, &expected, 1e-6, 1e-7, &format!("{name} on {}", isa.name()));
                    let mut y = b.clone();
                    into(isa, &a, &mut y);
                    assert_close(&y, &expected, 1e-6, 1e-7, &format!("{name}_into on {}", isa.name()));
                }
                let mut y = vec![f32::NAN; n];
                scale(isa, &a, -2.5, &mut y);
                let expected: Vec<f64> = a.iter().map(|&a| f64::from(a) * -2.5).collect();
                assert_close(&y, &expected, 1e-6, 0.0, "scale");
            }
        }
    }
}
