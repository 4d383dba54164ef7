//! Op packages: ops that a client brings along in a library of its own.
//!
//! A package is loaded by `backendRegisterOpPackage` and by nothing else: a context binary names the packages it needs, it
//! never loads one. A node of a registered package is validated by it when it is added or loaded, made by it when
//! its graph is prepared (for a loaded binary too), run on one thread between barriers, and freed with its graph. A registered package
//! goes before an op of the host with the same name.
//!
//! *Trap*: a package is code of somebody else in this process. What it does with the pointers it is given cannot be checked.

mod error;
mod load;
mod node;
mod param;
mod run;
mod shared;

use std::sync::Arc;

pub use error::PackageError;
pub use load::Package;
pub(crate) use node::validate;
pub(crate) use run::lower;

/// The packages of a backend, in the order they were registered.
#[derive(Clone, Debug, Default)]
pub struct Packages(Vec<Arc<Package>>);

impl Packages {
    /// Adds a package.
    ///
    /// # Errors
    /// One of that name is there already.
    pub fn add(&mut self, package: Arc<Package>) -> Result<(), PackageError> {
        if self.0.iter().any(|p| p.name() == package.name()) {
            return Err(PackageError::Duplicate { name: package.name().to_owned() });
        }
        self.0.push(package);
        Ok(())
    }

    /// The package that has the op `package::type`.
    pub fn find(&self, op: &str) -> Option<&Arc<Package>> {
        self.find_after(0, op)
    }

    /// The same, if it is not among the first `asked`: those have been asked whether they accept the node.
    pub(crate) fn find_after(&self, asked: usize, op: &str) -> Option<&Arc<Package>> {
        let (package, op) = crate::ir::split_op(op);
        self.0.iter().skip(asked).find(|p| p.name() == package && p.has(op))
    }

    /// How many are registered so far.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}
