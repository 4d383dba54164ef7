//! One word for a model: what it stands for, and where what was compiled of it is kept.
//!
//! A word is a bundle, its config, a GGUF file, a Hugging Face folder, or a name: `demo`, that of something in the
//! [`models_folder`], or that of a model which was compiled before. Checkpoints are compiled once, for this machine, into the cache
//! folder, and again when their files have changed.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use open_genie::models::{CompiledModels, ModelWord, find};
//!
//! let dir = tempfile::tempdir()?;
//! let store = CompiledModels::at(dir.path());
//! assert_eq!(find("demo", Some(&store))?, ModelWord::Demo);
//! let unknown = find("dmeo", Some(&store)).unwrap_err();
//! assert_eq!(unknown.to_string(), "no model `dmeo`");
//! # Ok(())
//! # }
//! ```

mod compiled;
mod error;
#[cfg(feature = "demo")]
pub mod fox;
mod lock;
mod source;
mod variants;
mod word;

pub use compiled::{CompiledModel, CompiledModels, ModelState};
pub use error::{ModelsError, Result};
pub use source::ModelSource;
pub use variants::{context_lengths, memory_bytes};
pub use word::{Listed, ModelWord, find, listed, models_folder, models_in};
