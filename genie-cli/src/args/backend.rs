//! `--backend`, `--backend-lib`, `--system-lib`: which QNN library executes the graphs.

use std::path::PathBuf;

use anyhow::Result;
use open_genie::{BackendChoice, Options};

/// Which QNN library executes the graphs.
#[derive(clap::Args, Clone)]
pub struct BackendArgs {
    /// `host` for the embedded CPU backend, `htp` for Qualcomm's `libQnnHtp.so` wherever it is found, or the path of a QNN
    /// library [default: the one that the context binaries are for].
    #[arg(long, value_name = "host|htp|PATH")]
    pub backend: Option<String>,
    /// Path of the backend library; overrides `--backend`.
    #[arg(long, value_name = "PATH")]
    pub backend_lib: Option<PathBuf>,
    /// Path of the library that reads context binaries [default: the embedded one, or `libQnnSystem.so` beside the
    /// backend library].
    #[arg(long, value_name = "PATH")]
    pub system_lib: Option<PathBuf>,
    /// Keep cache and tensors in memory that the NPU sees as well: `auto` for a chip that has such memory, `on`, or `off`.
    #[arg(long, value_name = "auto|on|off", default_value = "auto")]
    pub shared_memory: String,
}

impl BackendArgs {
    /// Options with that backend.
    pub fn options(&self) -> Result<Options> {
        let backend = match (&self.backend_lib, &self.backend) {
            (Some(file), _) => BackendChoice::Library(file.clone()),
            (None, Some(name)) => name.parse()?,
            (None, None) => BackendChoice::OfBundle,
        };
        let options = Options::new().backend(backend).shared_memory(self.shared_memory.parse()?);
        Ok(match &self.system_lib {
            Some(system) => options.system_library(system),
            None => options,
        })
    }
}
