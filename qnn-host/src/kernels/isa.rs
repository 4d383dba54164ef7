//! Which vector unit to run on: detected once, then carried by value into every kernel.

#[cfg(target_arch = "x86_64")]
use super::simd::amx::Amx;
#[cfg(target_arch = "x86_64")]
use super::simd::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use super::simd::avx2_dot::AvxVnni;
#[cfg(target_arch = "x86_64")]
use super::simd::avx512::Avx512;
#[cfg(target_arch = "x86_64")]
use super::simd::avx512_bf16::Avx512Bf16;
#[cfg(target_arch = "x86_64")]
use super::simd::avx512_dot::Vnni512;
#[cfg(target_arch = "x86_64")]
pub(super) use super::simd::matrix_x86::Matrix;
#[cfg(target_arch = "aarch64")]
use super::simd::neon::Neon;
#[cfg(target_arch = "aarch64")]
use super::simd::neon_dot::{NeonDot, NeonI8mm};
use super::simd::plain::Plain;
#[cfg(target_arch = "aarch64")]
use super::simd::sme::Sme;

/// An instruction set that this CPU has. Values come from [`Isa::detect`] and [`Isa::available`] only, so holding one
/// is proof that its kernels may run.
#[derive(Clone, Copy, Debug)]
pub struct Isa(pub(super) Level, pub(super) DotLevel, pub(super) Option<Matrix>);

/// The unit for products of matrices, for steps of many rows.
#[cfg(target_arch = "aarch64")]
pub(super) type Matrix = Sme;
/// None is known on this architecture.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) type Matrix = std::convert::Infallible;

/// The unit for floats.
#[derive(Clone, Copy, Debug)]
pub(super) enum Level {
    Plain(Plain),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
}

/// The unit for products of 8-bit values.
#[derive(Clone, Copy, Debug)]
pub(super) enum DotLevel {
    Plain(Plain),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    AvxVnni(AvxVnni),
    #[cfg(target_arch = "x86_64")]
    Vnni512(Vnni512),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
    #[cfg(target_arch = "aarch64")]
    NeonDot(NeonDot),
    #[cfg(target_arch = "aarch64")]
    NeonI8mm(NeonI8mm),
}

impl Isa {
    /// The path for any CPU.
    pub const PLAIN: Self = Self(Level::Plain(Plain), DotLevel::Plain(Plain), None);

    /// The best one that this CPU has.
    pub fn detect() -> Self {
        Self::available().last().unwrap_or(Self::PLAIN)
    }

    /// All that this CPU has, the best last.
    pub fn available() -> impl Iterator<Item = Self> {
        std::iter::once(Self::PLAIN).chain(Self::special().into_iter().flatten())
    }

    /// A short name for logs and test messages.
    pub fn name(self) -> &'static str {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if let Some(matrix) = self.2 {
            return matrix.name();
        }
        match (self.0, self.1) {
            (Level::Plain(_), _) => "plain",
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2(_), DotLevel::AvxVnni(_)) => "avx2vnni",
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2(_), _) => "avx2",
            #[cfg(target_arch = "x86_64")]
            (Level::Avx512(_), DotLevel::Vnni512(_)) => "avx512vnni",
            #[cfg(target_arch = "x86_64")]
            (Level::Avx512(_), _) => "avx512",
            #[cfg(target_arch = "aarch64")]
            (Level::Neon(_), DotLevel::NeonI8mm(_)) => "neoni8mm",
            #[cfg(target_arch = "aarch64")]
            (Level::Neon(_), DotLevel::NeonDot(_)) => "neondot",
            #[cfg(target_arch = "aarch64")]
            (Level::Neon(_), _) => "neon",
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn special() -> [Option<Self>; 6] {
        let has2 =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        let has512 = has2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        let vnni2 = has2 && is_x86_feature_detected!("avxvnni");
        let vnni = has512 && is_x86_feature_detected!("avx512vnni");
        let bf16 = vnni.then(Avx512Bf16::detect).flatten();
        let amx = vnni.then(Amx::detect).flatten();
        let (two, wide) = (Avx2(()), Avx512(()));
        let with_matrix = |unit| Self(Level::Avx512(wide), DotLevel::Vnni512(Vnni512(wide)), Some(unit));
        [
            has2.then_some(Self(Level::Avx2(two), DotLevel::Avx2(two), None)),
            vnni2.then_some(Self(Level::Avx2(two), DotLevel::AvxVnni(AvxVnni(two)), None)),
            has512.then_some(Self(Level::Avx512(wide), DotLevel::Avx2(two), None)),
            vnni.then_some(Self(Level::Avx512(wide), DotLevel::Vnni512(Vnni512(wide)), None)),
            bf16.map(|bf16| with_matrix(Matrix::Avx512Bf16(bf16))),
            amx.map(|amx| with_matrix(Matrix::Amx(amx))),
        ]
    }

    #[cfg(target_arch = "aarch64")]
    fn special() -> [Option<Self>; 4] {
        let neon = std::arch::is_aarch64_feature_detected!("neon");
        let dot = neon && std::arch::is_aarch64_feature_detected!("dotprod");
        let matrix = dot && std::arch::is_aarch64_feature_detected!("i8mm");
        let unit = Neon(());
        let sme = matrix.then(Sme::detect).flatten();
        let i8mm = NeonI8mm(NeonDot(unit));
        [
            neon.then_some(Self(Level::Neon(unit), DotLevel::Neon(unit), None)),
            dot.then_some(Self(Level::Neon(unit), DotLevel::NeonDot(NeonDot(unit)), None)),
            matrix.then_some(Self(Level::Neon(unit), DotLevel::NeonI8mm(i8mm), None)),
            sme.map(|sme| Self(Level::Neon(unit), DotLevel::NeonI8mm(i8mm), Some(sme))),
        ]
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn special() -> [Option<Self>; 0] {
        []
    }
}

/// Makes a function that runs a generic kernel body, `fn body<S: Simd>(s: S, ...)`, compiled for the given [`Isa`].
///
/// The body must be `inline(always)`, as must be everything generic over `Simd` that it calls.
macro_rules! simd_fn {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $(<$($life:lifetime),+>)? ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:path) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<$($life),+>)? (isa: $crate::kernels::isa::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
            #[allow(clippy::too_many_arguments)]
            fn avx512 $(<$($life),+>)? (s: $crate::kernels::simd::avx512::Avx512, $($arg: $ty),*) $(-> $ret)? {
                $body(s, $($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            fn avx2 $(<$($life),+>)? (s: $crate::kernels::simd::avx2::Avx2, $($arg: $ty),*) $(-> $ret)? {
                $body(s, $($arg),*)
            }
            match isa.0 {
                $crate::kernels::isa::Level::Plain(s) => $body(s, $($arg),*),
                #[cfg(target_arch = "x86_64")]
                $crate::kernels::isa::Level::Avx2(s) => {
                    // SAFETY: the token `s` proves that the CPU has these features.
                    unsafe { avx2(s, $($arg),*) }
                }
                #[cfg(target_arch = "x86_64")]
                $crate::kernels::isa::Level::Avx512(s) => {
                    // SAFETY: the token `s` proves that the CPU has these features.
                    unsafe { avx512(s, $($arg),*) }
                }
                #[cfg(target_arch = "aarch64")]
                $crate::kernels::isa::Level::Neon(s) => $body(s, $($arg),*),
            }
        }
    };
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident $(<$($life:lifetime),+>)? ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:path) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis unsafe fn $name $(<$($life),+>)? (isa: $crate::kernels::isa::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn avx512 $(<$($life),+>)? (s: $crate::kernels::simd::avx512::Avx512, $($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the caller's promise is the body's.
                unsafe { $body(s, $($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn avx2 $(<$($life),+>)? (s: $crate::kernels::simd::avx2::Avx2, $($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the caller's promise is the body's.
                unsafe { $body(s, $($arg),*) }
            }
            // SAFETY: the caller's promise is the body's; the token `s` proves that the CPU has the features of its path.
            unsafe {
                match isa.0 {
                    $crate::kernels::isa::Level::Plain(s) => $body(s, $($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::kernels::isa::Level::Avx2(s) => avx2(s, $($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::kernels::isa::Level::Avx512(s) => avx512(s, $($arg),*),
                    #[cfg(target_arch = "aarch64")]
                    $crate::kernels::isa::Level::Neon(s) => $body(s, $($arg),*),
                }
            }
        }
    };
}
pub(crate) use simd_fn;

/// As [`simd_fn!`], for bodies over that unit: `unsafe fn body<D: Dot>(d: D, ...)`.
macro_rules! dot_fn {
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) = $body:path) => {
        $(#[$meta])*
        $vis unsafe fn $name(isa: $crate::kernels::isa::Isa, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
            unsafe fn vnni512(d: $crate::kernels::simd::avx512_dot::Vnni512, $($arg: $ty),*) {
                // SAFETY: the caller's promise is the body's.
                unsafe { $body(d, $($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2(d: $crate::kernels::simd::avx2::Avx2, $($arg: $ty),*) {
                // SAFETY: the caller's promise is the body's.
                unsafe { $body(d, $($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
            unsafe fn avx_vnni(d: $crate::kernels::simd::avx2_dot::AvxVnni, $($arg: $ty),*) {
                // SAFETY: the caller's promise is the body's.
                unsafe { $body(d, $($arg),*) }
            }
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "dotprod")]
            unsafe fn neon_dot(d: $crate::kernels::simd::neon_dot::NeonDot, $($arg: $ty),*) {
                // SAFETY: the caller's promise is the body's.
                unsafe { $body(d, $($arg),*) }
            }
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "dotprod,i8mm")]
            unsafe fn neon_i8mm(d: $crate::kernels::simd::neon_dot::NeonI8mm, $($arg: $ty),*) {
                // SAFETY: the caller's promise is the body's.
                unsafe { $body(d, $($arg),*) }
            }
            // SAFETY: the caller's promise is the body's; the token `d` proves that the CPU has the features of its path.
            unsafe {
                match isa.1 {
                    $crate::kernels::isa::DotLevel::Plain(d) => $body(d, $($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::kernels::isa::DotLevel::Avx2(d) => avx2(d, $($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::kernels::isa::DotLevel::AvxVnni(d) => avx_vnni(d, $($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::kernels::isa::DotLevel::Vnni512(d) => vnni512(d, $($arg),*),
                    #[cfg(target_arch = "aarch64")]
                    $crate::kernels::isa::DotLevel::Neon(d) => $body(d, $($arg),*),
                    #[cfg(target_arch = "aarch64")]
                    $crate::kernels::isa::DotLevel::NeonDot(d) => neon_dot(d, $($arg),*),
                    #[cfg(target_arch = "aarch64")]
                    $crate::kernels::isa::DotLevel::NeonI8mm(d) => neon_i8mm(d, $($arg),*),
                }
            }
        }
    };
}
pub(crate) use dot_fn;

#[cfg(test)]
mod tests {
    use super::Isa;

    #[test]
    #[ignore = "needs a known CPU: cargo xtask test"]
    fn the_best_unit_is_the_one_that_this_cpu_is_known_to_have() {
        let known = std::env::var("QNN_HOST_UNIT").expect("QNN_HOST_UNIT names the unit of the emulated CPU");
        assert_eq!(Isa::detect().name(), known);
    }
}
