//! `--backend`, `--backend-lib`, `--system-lib`: which QNN library executes the graphs.

use std::path::PathBuf;

use anyhow::Result;
use open_genie::{BackendChoice, OpPackage, Options};

use crate::failure::UserError;

/// Which QNN library executes the graphs.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Backend")]
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
    /// Register a library of ops that graphs name, by its file, `FILE:PROVIDER` or `FILE:PROVIDER:TARGET`; may be given again. Its code runs in
    /// this process. Without it, those of the folder that GENIE_OP_PACKAGE_DIR names.
    #[arg(long, value_name = "FILE")]
    pub op_package: Vec<String>,
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
        let mut options = Options::new().backend(backend).shared_memory(self.shared_memory.parse()?);
        for package in &self.op_package {
            let package = OpPackage::parse(package);
            let file = package.path();
            // The system's loader finds a bare name where it looks for libraries.
            if file.as_os_str().is_empty() || (file.components().count() > 1 && !file.is_file()) {
                let error = format!("`--op-package`: there is no file `{}`", file.display());
                let hint = "give the package's library, such as `./libQnnOpenGeniePackage_CPU.so`";
                return Err(UserError::error(error, hint));
            }
            options = options.op_package(package);
        }
        if let Some(folder) = self.op_package.is_empty().then(op_package_folder).flatten() {
            options = options.op_package_folder(folder)?;
        }
        Ok(match &self.system_lib {
            Some(system) => options.system_library(system),
            None => options,
        })
    }
}

/// Environment variables that name a folder of op packages; the second is that of mllm's runtime.
const FOLDER_VARIABLES: [&str; 2] = ["GENIE_OP_PACKAGE_DIR", "MLLM_QNN_OP_PACKAGE_DIR"];

fn op_package_folder() -> Option<PathBuf> {
    FOLDER_VARIABLES.iter().find_map(|name| std::env::var_os(name).filter(|value| !value.is_empty())).map(PathBuf::from)
}
