//! Op packages: libraries of ops that graphs name, loaded by explicit call and by nothing else. No config and no binary names one that is
//! loaded: a bundle is data, a package is code.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use qnn_api::Backend;

use crate::Error;

/// A library of ops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpPackage {
    path: PathBuf,
    provider: Option<String>,
    target: Option<String>,
}

impl OpPackage {
    /// The package of a library. Its interface function is the one that the file's name gives: `LLaMAPackageInterfaceProvider` for
    /// `libQnnLLaMAPackage_CPU.so`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), provider: None, target: None }
    }

    /// As QNN's tools write it: `FILE`, `FILE:PROVIDER` or `FILE:PROVIDER:TARGET`. A file that exists by the whole text is that file.
    pub fn parse(text: &str) -> Self {
        let mut parts = text.split(':');
        let (path, provider, target) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        if Path::new(text).exists() || parts.next().is_some() || path.is_empty() {
            return Self::new(text);
        }
        let named = |part: Option<&str>| part.filter(|part| !part.is_empty()).map(str::to_owned);
        Self { path: path.into(), provider: named(provider), target: named(target) }
    }

    /// The packages of a folder, by name: `libQnn*Package_CPU.so`, `libQnn*Package_HTP.so`. Each is registered with backends of its target only.
    ///
    /// # Errors
    /// [`Error::OpPackageFolder`] if the folder cannot be read or has none.
    pub fn of_folder(folder: &Path) -> Result<Vec<Self>, Error> {
        let failed = |source| Error::OpPackageFolder { folder: folder.to_owned(), source: Some(source) };
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if let Some((_, target)) = name_parts(&path) {
                found.push(Self { path, provider: None, target: Some(target) });
            }
        }
        if found.is_empty() {
            return Err(Error::OpPackageFolder { folder: folder.to_owned(), source: None });
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// The library.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The function that gives its interface.
    pub fn provider(&self) -> String {
        let of_name = || name_parts(&self.path).map(|(name, _)| format!("{name}InterfaceProvider"));
        self.provider.clone().or_else(of_name).unwrap_or_else(|| PROVIDER.to_owned())
    }

    /// What it runs on (`CPU`, `HTP`), where that is said.
    pub fn target(&self) -> Option<&str> {
        self.target.as_deref()
    }

    /// Registers it with a backend: its code runs in this process from then on, for graphs that are made or loaded later.
    ///
    /// # Errors
    /// [`Error::OpPackage`] with the backend's number and cause.
    pub fn register(&self, backend: &Backend) -> Result<(), Error> {
        // A bare name would be looked for by the system's loader, anywhere.
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let done = backend.register_op_package(&path, &self.provider(), self.target());
        done.map_err(|source| Error::OpPackage { path: self.path.clone(), source })?;
        tracing::info!("op package {} is registered", path.display());
        Ok(())
    }
}

/// The interface function of a file whose name gives none: the one of the package that these graphs come with.
const PROVIDER: &str = "LLaMAPackageInterfaceProvider";

/// `LLaMAPackage` and `CPU` of `libQnnLLaMAPackage_CPU.so`.
fn name_parts(path: &Path) -> Option<(String, String)> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_prefix(std::env::consts::DLL_PREFIX).unwrap_or(name);
    let (name, target) = name.strip_suffix(std::env::consts::DLL_SUFFIX)?.strip_prefix("Qnn")?.rsplit_once('_')?;
    (name.ends_with("Package") && matches!(target, "CPU" | "HTP")).then(|| (name.to_owned(), target.to_owned()))
}

/// Registers the packages that are for this backend; those of a folder for another target are left out, and logged.
pub(crate) fn register_all(packages: &[OpPackage], folders: &[OpPackage], backend: &Arc<Backend>) -> Result<(), Error> {
    let own = if backend.library().is_htp() { "HTP" } else { "CPU" };
    for package in folders {
        if package.target() == Some(own) {
            package.register(backend)?;
        } else {
            tracing::info!("op package {} is not for this backend, which takes {own}", package.path().display());
        }
    }
    packages.iter().try_for_each(|package| package.register(backend))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_name_gives_function_and_target() {
        for (text, provider, target) in [
            ("/a/libQnnLLaMAPackage_CPU.so", "LLaMAPackageInterfaceProvider", None),
            ("libQnnOpenGeniePackage_CPU.so", "OpenGeniePackageInterfaceProvider", None),
            ("own.so", PROVIDER, None),
            ("own.so:Theirs", "Theirs", None),
            ("own.so:Theirs:CPU", "Theirs", Some("CPU")),
            ("libQnnLLaMAPackage_HTP.so::HTP", "LLaMAPackageInterfaceProvider", Some("HTP")),
        ] {
            let package = OpPackage::parse(text);
            assert_eq!((package.provider().as_str(), package.target()), (provider, target), "{text}");
            assert_eq!(package.path(), Path::new(text.split(':').next().unwrap()));
        }
    }

    #[test]
    fn a_folder_gives_what_is_named_as_a_package() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(OpPackage::of_folder(folder.path()), Err(Error::OpPackageFolder { source: None, .. })));
        for name in ["libQnnBPackage_CPU.so", "libQnnAPackage_HTP.so", "libother.so", "libQnnHtp.so", "notes"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let found = OpPackage::of_folder(folder.path()).unwrap();
        let names: Vec<_> = found.iter().map(|p| (p.provider(), p.target().unwrap().to_owned())).collect();
        let wanted = [("APackageInterfaceProvider", "HTP"), ("BPackageInterfaceProvider", "CPU")];
        assert_eq!(names, wanted.map(|(p, t)| (p.to_owned(), t.to_owned())));
        assert!(OpPackage::of_folder(&folder.path().join("none")).is_err());
    }
}
