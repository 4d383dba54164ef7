//! Why a package cannot be registered.

use std::path::PathBuf;

use qnn_sys as q;
use thiserror::Error;

/// Why a package cannot be registered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PackageError {
    /// The library does not load.
    #[error("op package `{}` cannot be loaded: {}", path.display(), reason(source))]
    NotFound {
        /// The library.
        path: PathBuf,
        /// What the system says.
        source: libloading::Error,
    },
    /// The library has no such function.
    #[error("op package `{}` has no function `{provider}` that gives its interface", path.display())]
    NoProvider {
        /// The library.
        path: PathBuf,
        /// The function looked for.
        provider: String,
    },
    /// A target that is not the CPU.
    #[error("expected an op package for target `CPU`, found target `{found}`")]
    Target {
        /// The target asked for.
        found: String,
    },
    /// The interface has a version that the host does not know.
    #[error("op package `{}` has interface version {found}, expected 1.4 or 2.0", path.display())]
    Version {
        /// The library.
        path: PathBuf,
        /// Its version.
        found: String,
    },
    /// A function of the interface is missing.
    #[error("op package `{}`: expected its interface to have `{slot}`, found null", path.display())]
    NoSlot {
        /// The library.
        path: PathBuf,
        /// The function.
        slot: &'static str,
    },
    /// A function of the package failed.
    #[error("op package `{}`: `{call}` failed with {code} ({})", path.display(), q::error::name(*code))]
    Call {
        /// The library.
        path: PathBuf,
        /// The function.
        call: &'static str,
        /// What it returned.
        code: u64,
    },
    /// What the package says about itself makes no sense.
    #[error("op package `{}`: expected {expected}, found {found}", path.display())]
    Info {
        /// The library.
        path: PathBuf,
        /// What is required.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A package of that name is registered already.
    #[error("expected an op package with a name of its own, found `{name}` again")]
    Duplicate {
        /// Its name.
        name: String,
    },
}

impl PackageError {
    /// QNN's number.
    pub fn code(&self) -> u64 {
        u64::from(match self {
            Self::NotFound { .. } => q::QNN_BACKEND_ERROR_OP_PACKAGE_NOT_FOUND,
            Self::NoProvider { .. } => q::QNN_BACKEND_ERROR_OP_PACKAGE_IF_PROVIDER_NOT_FOUND,
            Self::Target { .. } => q::QNN_BACKEND_ERROR_NOT_SUPPORTED,
            Self::Version { .. } => q::QNN_BACKEND_ERROR_OP_PACKAGE_UNSUPPORTED_VERSION,
            Self::NoSlot { .. } | Self::Call { .. } | Self::Info { .. } => {
                q::QNN_BACKEND_ERROR_OP_PACKAGE_REGISTRATION_FAILED
            }
            Self::Duplicate { .. } => q::QNN_BACKEND_ERROR_OP_PACKAGE_DUPLICATE,
        })
    }
}

/// What the loader says of a library; its own words are the source of the error.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
