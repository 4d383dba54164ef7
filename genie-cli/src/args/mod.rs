//! Flag groups that several commands share. A command's own flags live beside its `run`.

mod backend;
mod bundle;
mod policy;
mod soc;
mod threads;
mod variants;
mod verbosity;

pub use backend::BackendArgs;
pub use bundle::BundleArgs;
pub use policy::PolicyArg;
pub use soc::{NO_VOTE, SocArgs};
pub use threads::{PinArg, ThreadArgs};
pub use variants::VariantArgs;
pub use verbosity::Verbosity;
