//! Where libGenie's recordings are: the folder that `GENIE_GOLDEN_DIR` names, else `shared/golden` beside the repository.

use std::path::{Path, PathBuf};

/// The folder, absolute: links to what is in it work from anywhere.
pub fn folder() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let named = std::env::var_os("GENIE_GOLDEN_DIR").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| {
        let places = [root.join("../shared/golden"), root.join("../../shared/golden")];
        places.iter().find(|p| p.is_dir()).unwrap_or(&places[0]).clone()
    });
    assert!(folder.is_dir(), "no recordings at `{}`: set GENIE_GOLDEN_DIR", folder.display());
    folder.canonicalize().unwrap()
}
