//! The groups of situations.

mod bundle;
mod checkpoint;
mod flags;
mod gguf;
mod limits;
mod sessions;
mod tokenizer;

use std::path::Path;

use anyhow::Result;
use fuzz_targets::Rng;

use crate::base::Base;
use crate::situation::Situation;

/// Makes one situation in an empty folder.
type Make = fn(&Base, &Path, &mut Rng) -> Result<Situation>;

/// A group of situations.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) make: Make,
}

/// All groups.
pub(crate) const GROUPS: &[Group] = &[
    Group { name: "config", make: checkpoint::config },
    Group { name: "safetensors", make: checkpoint::safetensors },
    Group { name: "gguf-keys", make: gguf::keys },
    Group { name: "gguf-tensors", make: gguf::tensors },
    Group { name: "tokenizer", make: tokenizer::make },
    Group { name: "bundle", make: bundle::config },
    Group { name: "binary", make: bundle::binary },
    Group { name: "flags", make: flags::make },
    Group { name: "state", make: sessions::make },
    Group { name: "limits", make: limits::make },
];
