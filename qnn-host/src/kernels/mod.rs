//! The arithmetic: matrix products, attention and the small operations between them, each compiled for several
//! instruction sets and chosen by an [`Isa`] value.
//!
//! Two kinds of functions:
//!
//! * *Row kernels* ([`rms_norm`], [`rope`], [`softmax`], [`quantise_blocks`], [`elementwise`], [`convert`], [`transpose`]) are safe, run on the
//!   calling thread and work on slices. A run shares them out by giving each thread its rows (`Worker::share`).
//! * *Team kernels* ([`linear`], [`attention`]) are called by **every** thread of a run with the **same** arguments; they
//!   divide the work among themselves, may meet at barriers inside, and return when the own part is done. Results may
//!   be read after the next barrier. Because outputs are [`SharedMut`], they are `unsafe`: the caller keeps that promise.
//!   A barrier must lie between what ran before (writers of their inputs, users of `Worker::take`) and them.
//!
//! A matrix unit computes steps of 64 rows or more in bf16: AMX wherever it is (unless `GENIE_AMX=0`), which has the integer products of 9 to 63
//! rows with weights in blocks too, SME of 64-bit Arm, whose speed was never
//! measured, with `GENIE_SME=1` only. AVX-512 with products of bf16 does so for weights of 16 bits, rows of bytes, and attention (unless `GENIE_BF16=0`).
//!
//! Intermediate numbers are f32. Weights, caches and masks are [`Floats`]: f32, f16 or bf16 at any alignment.
//! All shapes are row-major. Lengths are checked, and a wrong one is a bug of the caller: a panic with the reason.

pub mod attention;
pub(crate) mod block_values;
pub mod convert;
pub mod elementwise;
mod first_cache;
mod float;
pub(crate) mod half_blocks;
mod isa;
pub(crate) mod k_blocks;
pub mod linear;
mod mat;
mod math;
mod norm;
pub mod packed;
mod quantise_blocks;
pub(crate) mod roofline;
mod rope;
mod rows;
mod shared;
mod simd;
mod softmax;
mod stream;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod switch;
#[cfg(test)]
pub(crate) mod testing;
mod transpose;
pub(crate) mod unpack;

pub use float::{Float, Floats, FloatsMut};
pub use isa::Isa;
pub use mat::Mat;
pub use norm::{rms_norm, rms_norm_in_place};
pub use packed::Packed;
pub use quantise_blocks::{BlockRule, SCALE_BYTES, quantise_blocks};
pub use rope::{Rope, rope};
pub use shared::SharedMut;
pub use softmax::softmax;
pub use transpose::transpose;
