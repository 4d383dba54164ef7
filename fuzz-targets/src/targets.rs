//! The targets by name.

mod bundle;
mod graphs;
pub(crate) mod models;
mod places;
pub(crate) mod sessions;
mod tokenizers;

/// What the seeds of a target are, so that changes reach behind the first check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Any bytes.
    Bytes,
    /// JSON: values are changed, too.
    Json,
    /// A context binary of the host backend: checksums are made right after a change.
    ContextBinary,
    /// A snapshot: checksums are made right after a change.
    Snapshot,
}

/// A reader of foreign bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also that of its folder of seeds.
    pub name: &'static str,
    /// Form of its seeds.
    pub form: Form,
    /// Reads the bytes, and uses what it read. Panics where the reader does, or where it contradicts itself.
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, form: Form, run: fn(&[u8])) -> Target {
    Target { name, form, run }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    target("context-binary", Form::ContextBinary, graphs::context_binary),
    target("container", Form::ContextBinary, graphs::container),
    target("ops", Form::Bytes, graphs::ops),
    target("bundle-config", Form::Json, bundle::config),
    target("manifest", Form::Json, bundle::manifest),
    target("calibration", Form::Json, bundle::calibration),
    target("file-kind", Form::Bytes, bundle::file_kind),
    target("gguf", Form::Bytes, models::gguf),
    target("safetensors", Form::Bytes, models::safetensors),
    target("model-config", Form::Json, models::config),
    target("tokenizer", Form::Json, tokenizers::tokenizer),
    target("snapshot", Form::Snapshot, sessions::snapshot),
    target("genie-folder", Form::Bytes, sessions::genie_folder),
];

/// The target of that name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
