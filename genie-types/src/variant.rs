//! AR-n CL-m: the two numbers that name a compiled shape.
//!
//! Units: tokens. `Ar` is the width of a step, pad included; `Cl` is the attention width, past and new together.
//! Invariant: both are non-zero; in a [`VariantSpec`], `variant <= ctx_size`.

use core::fmt;
use core::num::NonZeroU32;

macro_rules! width {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(NonZeroU32);

        impl $name {
            /// `None` for zero.
            pub const fn new(tokens: u32) -> Option<Self> {
                match NonZeroU32::new(tokens) {
                    Some(n) => Some(Self(n)),
                    None => None,
                }
            }

            /// The width in tokens.
            pub const fn get(self) -> usize {
                self.0.get() as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

width! {
    /// Input width of a graph in tokens (AR-n), pad included.
    Ar
}
width! {
    /// Attention width of a graph in tokens (CL-m), past plus new.
    Cl
}

/// Names one compiled shape: AR-n CL-m.
///
/// Ordered by context length first, then by width: the order in which a planner looks for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VariantSpec {
    variant: Ar,
    ctx_size: Cl,
}

/// A pair that no graph can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariantError {
    /// The width asked for.
    pub variant: Ar,
    /// The context length asked for.
    pub ctx_size: Cl,
}

impl fmt::Display for VariantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AR-{} is wider than its context CL-{}", self.variant, self.ctx_size)
    }
}

impl core::error::Error for VariantError {}

impl VariantSpec {
    /// Checks that the step fits the context.
    pub const fn new(variant: Ar, ctx_size: Cl) -> Result<Self, VariantError> {
        if variant.get() <= ctx_size.get() {
            Ok(Self { variant, ctx_size })
        } else {
            Err(VariantError { variant, ctx_size })
        }
    }

    /// Input width, pad included.
    pub const fn variant(self) -> Ar {
        self.variant
    }

    /// Attention width, past plus new.
    pub const fn ctx_size(self) -> Cl {
        self.ctx_size
    }

    /// Rows of past that a concat graph of this shape can see: `ctx_size - variant`.
    pub const fn past_capacity(self) -> usize {
        self.ctx_size.get() - self.variant.get()
    }

    /// AR == CL: no past at all, the whole history is processed each time.
    pub const fn is_full_context(self) -> bool {
        self.past_capacity() == 0
    }
}

impl Ord for VariantSpec {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (self.ctx_size, self.variant).cmp(&(other.ctx_size, other.variant))
    }
}

impl PartialOrd for VariantSpec {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for VariantSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ar{}_cl{}", self.variant, self.ctx_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(ar: u32, cl: u32) -> Result<VariantSpec, VariantError> {
        VariantSpec::new(Ar::new(ar).unwrap(), Cl::new(cl).unwrap())
    }

    #[test]
    fn a_step_wider_than_its_context_is_refused() {
        let err = spec(64, 32).unwrap_err();
        assert_eq!(err.to_string(), "AR-64 is wider than its context CL-32");
        assert!(spec(32, 32).unwrap().is_full_context());
        assert_eq!(Ar::new(0), None);
    }

    #[test]
    fn smaller_contexts_come_first() {
        let mut specs = [spec(1, 256).unwrap(), spec(32, 128).unwrap(), spec(1, 128).unwrap()];
        specs.sort();
        assert_eq!(specs.map(|s| s.to_string()), ["ar1_cl128", "ar32_cl128", "ar1_cl256"]);
    }
}
