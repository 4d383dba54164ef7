//! RMS normalisation into tiles, for layers that a matrix unit computes.

use super::super::super::float::{Elem, with_elem};
use super::super::super::isa::Isa;
use super::super::super::norm::{row, shift};
use super::super::super::simd::matrix::{TILE_K, TILE_ROWS};
use super::super::{MAX_NORM_WIDTH, RmsNorm};
use super::unit::Float;
use super::{acts_len, round_row};
use crate::kernels::SharedMut;
use crate::pool::Worker;

/// # Safety
/// As [`super::super::rms_norm_to_tiles`], operands checked.
pub(in super::super) unsafe fn rms_norm(isa: Isa, worker: Worker<'_>, norm: &RmsNorm<'_>, out: SharedMut<'_, f32>) {
    let Some(matrix) = isa.2 else { unreachable!("`fits_tiles` was asked") };
    assert!(out.len() >= acts_len(norm.x.len() / norm.width, norm.width), "{} numbers for tiles", out.len());
    // SAFETY: the token proves that the CPU has the features; the caller's promise is the body's.
    unsafe { with_elem!(norm.gamma.ty(), E => body::<E>(matrix.float(), worker, norm, out.ptr().cast())) }
}

/// # Safety
/// As [`rms_norm`], `E` the type of gamma; the CPU has the features.
#[cfg_attr(
    target_arch = "x86_64",
    target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
)]
unsafe fn body<E: Elem>(s: Float, worker: Worker<'_>, norm: &RmsNorm<'_>, to: *mut u8) {
    let (m, width) = (norm.x.len() / norm.width, norm.width);
    let mut numbers = [0.0f32; MAX_NORM_WIDTH];
    for at in worker.share(m.next_multiple_of(2 * TILE_ROWS), TILE_ROWS) {
        // Rows that only fill up tiles are zeros.
        let numbers = &mut numbers[..if at < m { width } else { 0 }];
        if let Some(x) = norm.x.chunks_exact(width).nth(at) {
            let (x, to) = (x.as_ptr(), numbers.as_mut_ptr());
            // SAFETY: a row and numbers of its width; gamma and beta have as many.
            unsafe {
                row::<_, E>(s, x, width, norm.gamma.ptr(), norm.epsilon, to);
                if let Some(beta) = norm.beta {
                    with_elem!(beta.ty(), B => shift::<_, B>(s, to, width, beta.ptr()));
                }
            }
        }
        // SAFETY: this row's lines of tiles are this thread's.
        unsafe { round_row(numbers, at, m, width / TILE_K, to) };
    }
}
