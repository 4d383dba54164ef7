//! From `--backend` to a QNN backend that is up.

use std::ffi::CString;
use std::sync::Arc;

use anyhow::{Context, Result};
use qnn_api::{Backend, BackendOptions, Library};

use crate::cli::BackendArgs;
use crate::failure::Hinted;

/// The library that a flag names: the embedded one, or a file.
pub fn library(args: &BackendArgs) -> Result<Arc<Library>> {
    if args.backend == "host" {
        let library =
            Library::linked(qnn_host::QnnInterface_getProviders, Some(qnn_host::QnnSystemInterface_getProviders));
        return library.context("cannot use the embedded backend");
    }
    let looks_like_a_path = args.backend.contains(['/', '\\', '.']);
    if !looks_like_a_path {
        return Err(Hinted::error(
            format!("unknown backend `{}`: expected `host` or the path of a QNN library", args.backend),
            "`--backend host` runs on this machine; on a device give the path of `libQnnHtp.so`",
        ));
    }
    Library::open(&args.backend).with_context(|| format!("cannot load backend `{}`", args.backend))
}

/// Opens it and sets it up; `threads` is for the embedded backend.
pub fn open(args: &BackendArgs, threads: Option<usize>) -> Result<Arc<Backend>> {
    let library = library(args)?;
    // Other libraries do not know the option, and some refuse what they do not know.
    let ours = library.provider().starts_with("HOST_");
    let platform = threads.filter(|_| ours).and_then(|n| CString::new(format!("host_threads:{n}")).ok());
    let backend = Backend::new(&library, &BackendOptions { platform, ..BackendOptions::default() });
    backend.with_context(|| format!("cannot start backend `{}`", args.backend))
}
