//! Which vector unit to run on: detected once, then carried by value into every kernel.

use super::simd::plain::Plain;

/// An instruction set that this CPU has. Values come from [`Isa::detect`] and [`Isa::available`] only, so holding one
/// is proof that its kernels may run.
#[derive(Clone, Copy, Debug)]
pub struct Isa(pub(super) Level);

#[derive(Clone, Copy, Debug)]
pub(super) enum Level {
    Plain(Plain),
    #[cfg(target_arch = "x86_64")]
    Avx2(super::simd::avx2::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(super::simd::avx512::Avx512),
    #[cfg(target_arch = "aarch64")]
    Neon(super::simd::neon::Neon),
}

impl Isa {
    /// The path for any CPU.
    pub const PLAIN: Self = Self(Level::Plain(Plain));

    /// The best one here.
    pub fn detect() -> Self {
        Self::available().last().unwrap_or(Self::PLAIN)
    }

    /// All that this CPU has, the best last.
    pub fn available() -> impl Iterator<Item = Self> {
        [Some(Self::PLAIN), Self::avx2(), Self::avx512(), Self::neon()].into_iter().flatten()
    }

    /// A short name for logs and test messages.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Plain(_) => "plain",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(_) => "avx512",
            #[cfg(target_arch = "aarch64")]
            Level::Neon(_) => "neon",
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn avx2() -> Option<Self> {
        let has =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        has.then_some(Self(Level::Avx2(super::simd::avx2::Avx2(()))))
    }

    #[cfg(target_arch = "x86_64")]
    fn avx512() -> Option<Self> {
        let has = Self::avx2().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        has.then_some(Self(Level::Avx512(super::simd::avx512::Avx512(()))))
    }

    #[cfg(target_arch = "aarch64")]
    fn neon() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(Level::Neon(super::simd::neon::Neon(()))))
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn avx2() -> Option<Self> {
        None
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn avx512() -> Option<Self> {
        None
    }

    #[cfg(not(target_arch = "aarch64"))]
    fn neon() -> Option<Self> {
        None
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
