//! The folder for what can be made again: compiled models, stamps of checked files, fetched libraries.

use std::path::PathBuf;

/// `$GENIE_CACHE`, else `open-genie` in the user's cache folder; `None` where no variable names one.
pub fn cache_folder() -> Option<PathBuf> {
    let home =
        |var: &str, below: &str| std::env::var_os(var).filter(|v| !v.is_empty()).map(|v| PathBuf::from(v).join(below));
    home("GENIE_CACHE", "")
        .or_else(|| home("XDG_CACHE_HOME", "open-genie"))
        .or_else(|| home("LOCALAPPDATA", "open-genie"))
        .or_else(|| home("HOME", ".cache/open-genie"))
}
