//! Flag groups that several commands share. A command's own flags live beside its `run`.

mod backend;
mod bundle;
mod chat;
mod embedding_file;
mod grammar;
mod graph_kinds;
mod image;
mod long_context;
mod lora;
pub mod number;
mod policy;
mod sampler;
mod soc;
mod speculation;
mod threads;
mod variants;
mod verbosity;
mod words;

pub use backend::BackendArgs;
pub use bundle::{BundleArgs, check_word, read_bundle, read_path};
pub use chat::ChatArgs;
pub use embedding_file::EmbeddingFile;
pub use grammar::GrammarArgs;
pub use graph_kinds::GraphKindArgs;
pub use image::ImageArgs;
pub use long_context::LongContextArgs;
pub use lora::LoraArgs;
pub use policy::{PolicyArg, warn_of_doubts, warn_of_nominal_costs};
pub use sampler::SamplerArgs;
pub use soc::SocArgs;
pub use speculation::SpeculationArgs;
pub use threads::ThreadArgs;
pub use variants::{LONGEST, VariantArgs};
pub use verbosity::Verbosity;
pub use words::Words;
