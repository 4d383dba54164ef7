//! AR-n CL-m: the two numbers that name a compiled variant.
//!
//! Units: tokens. `Ar` is the width of a step, padding included; `Cl` is the attention width, past and new together.
//! Invariant: both are non-zero; in a [`Variant`], `ar <= cl`.

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

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
    /// Input width of a graph in tokens (AR-n), padding included.
    Ar
}
width! {
    /// Attention width of a graph in tokens (CL-m), past plus new.
    Cl
}

/// Names one compiled graph of a split: AR-n CL-m.
///
/// Ordered by context length first, then by width: the order in which a planner looks for room.
///
/// ```
/// use genie_types::Variant;
///
/// let variant = Variant::new(32, 512)?;
/// assert_eq!((variant.ar().get(), variant.cl().get(), variant.past_capacity()), (32, 512, 480));
/// assert_eq!("ar32_cl512".parse(), Ok(variant));
/// # Ok::<(), genie_types::VariantError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    ar: Ar,
    cl: Cl,
}

/// Numbers or a name that no variant can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VariantError {
    /// AR or CL is 0.
    Zero {
        /// The width asked for.
        ar: u32,
        /// The context length asked for.
        cl: u32,
    },
    /// The step is wider than its context.
    TooWide {
        /// The width asked for.
        ar: Ar,
        /// The context length asked for.
        cl: Cl,
    },
    /// Not of the form `ar<n>_cl<m>`.
    Name(String),
}

impl fmt::Display for VariantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero { ar, cl } => write!(f, "AR-{ar} CL-{cl}: both must be at least 1"),
            Self::TooWide { ar, cl } => write!(f, "AR-{ar} is wider than its context CL-{cl}"),
            Self::Name(name) => write!(f, "expected a variant such as `ar32_cl512`, found {name:?}"),
        }
    }
}

impl core::error::Error for VariantError {}

impl Variant {
    /// Names AR-`ar` CL-`cl`.
    ///
    /// # Errors
    /// [`VariantError::Zero`]; [`VariantError::TooWide`] when the step does not fit the context.
    pub const fn new(ar: u32, cl: u32) -> Result<Self, VariantError> {
        match (Ar::new(ar), Cl::new(cl)) {
            (Some(ar), Some(cl)) => Self::from_widths(ar, cl),
            _ => Err(VariantError::Zero { ar, cl }),
        }
    }

    /// As [`new`](Self::new), for widths that are checked already.
    ///
    /// # Errors
    /// [`VariantError::TooWide`].
    pub const fn from_widths(ar: Ar, cl: Cl) -> Result<Self, VariantError> {
        if ar.get() <= cl.get() { Ok(Self { ar, cl }) } else { Err(VariantError::TooWide { ar, cl }) }
    }

    /// Input width, padding included.
    pub const fn ar(self) -> Ar {
        self.ar
    }

    /// Attention width, past plus new.
    pub const fn cl(self) -> Cl {
        self.cl
    }

    /// Rows of past that a concat graph of this variant can see: `cl - ar`.
    pub const fn past_capacity(self) -> usize {
        self.cl.get() - self.ar.get()
    }

    /// AR == CL: no past at all, the whole history is processed each time.
    pub const fn is_full_context(self) -> bool {
        self.past_capacity() == 0
    }
}

impl Ord for Variant {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (self.cl, self.ar).cmp(&(other.cl, other.ar))
    }
}

impl PartialOrd for Variant {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ar{}_cl{}", self.ar, self.cl)
    }
}

impl FromStr for Variant {
    type Err = VariantError;

    fn from_str(name: &str) -> Result<Self, VariantError> {
        let numbers = name.strip_prefix("ar").and_then(|rest| rest.split_once("_cl"));
        let parsed = numbers.and_then(|(ar, cl)| Some((ar.parse().ok()?, cl.parse().ok()?)));
        let (ar, cl) = parsed.ok_or_else(|| VariantError::Name(name.to_owned()))?;
        Self::new(ar, cl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_wider_than_its_context_is_refused() {
        let err = Variant::new(64, 32).unwrap_err();
        assert_eq!(err.to_string(), "AR-64 is wider than its context CL-32");
        assert!(Variant::new(32, 32).unwrap().is_full_context());
        assert_eq!(Ar::new(0), None);
        assert_eq!(Variant::new(0, 32), Err(VariantError::Zero { ar: 0, cl: 32 }));
    }

    #[test]
    fn smaller_contexts_come_first() {
        let mut variants = [(1, 256), (32, 128), (1, 128)].map(|(ar, cl)| Variant::new(ar, cl).unwrap());
        variants.sort();
        assert_eq!(variants.map(|v| v.to_string()), ["ar1_cl128", "ar32_cl128", "ar1_cl256"]);
    }

    #[test]
    fn a_name_is_read_back() {
        let variant = Variant::new(8, 4096).unwrap();
        assert_eq!(variant.to_string().parse(), Ok(variant));
        for name in ["", "ar8", "ar8_cl", "ar-1_cl8", "AR8_CL8", "ar8_cl4096 "] {
            assert_eq!(name.parse::<Variant>(), Err(VariantError::Name(name.to_owned())));
        }
        assert_eq!("ar0_cl8".parse::<Variant>(), Err(VariantError::Zero { ar: 0, cl: 8 }));
    }
}
