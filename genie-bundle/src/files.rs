//! The names of a bundle's files.

use std::path::{Path, PathBuf};

use file_io::{FileKind, FolderKind, JsonKind};

use crate::BundleError;

/// The dialog configuration.
pub const CONFIG_FILE: &str = "genie_config.json";
/// The LM head's weight, where graphs take it as an input: named as the input.
pub const HEAD_WEIGHT_FILE: &str = "lm_head_weight.raw";
/// The embedding table, where graphs take embeddings.
pub const EMBEDDINGS_FILE: &str = "embedding_weights.raw";
/// The backend config, in bundles for a Hexagon chip.
pub const HTP_CONFIG_FILE: &str = "htp_backend_ext_config.json";
/// The tokenizer.
pub const TOKENIZER_FILE: &str = "tokenizer.json";
/// The list of what is in the bundle.
pub const MANIFEST_FILE: &str = "manifest.json";
/// What the bundle's steps cost where they were measured.
pub const CALIBRATION_FILE: &str = "calibration.json";
/// Copied along where a checkpoint has them: they hold the chat template.
pub const OPTIONAL_FILES: [&str; 2] = ["tokenizer_config.json", "chat_template.jinja"];

/// The config file of a path that is the config, or its bundle's folder.
///
/// # Errors
/// [`BundleError::NoConfig`] if there is nothing, [`BundleError::NotABundle`] if it is something else.
pub fn config_path(path: &Path) -> Result<PathBuf, BundleError> {
    match FileKind::of(path) {
        FileKind::Folder(FolderKind::Bundle) => Ok(path.join(CONFIG_FILE)),
        // Whether other JSON is a config is for its parser to say: it names what is missing.
        FileKind::Json(JsonKind::GenieConfig | JsonKind::Other) => Ok(path.to_owned()),
        FileKind::Missing => Err(BundleError::NoConfig { path: path.to_owned() }),
        found => Err(BundleError::NotABundle { path: path.to_owned(), found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_no_bundle_is_known_by_its_kind() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let reported = |name: &str| {
            let error = config_path(&at(name)).unwrap_err().to_string();
            error.replace(&format!("{}/", dir.path().display()), "")
        };
        assert_eq!(reported("none"), "`none` does not exist");
        for (name, bytes, want) in [
            ("x.gguf", &b"GGUF\x03\0\0\0"[..], "`x.gguf` is a GGUF file"),
            ("model.bin", b"\x89OGHOST\n\x02\0\0\0", "`model.bin` is a context binary of the host backend"),
            ("manifest.json", b"{\"format\": \"x\", \"files\": []}", "`manifest.json` is a bundle's manifest"),
            ("empty", b"", "`empty` is an empty file"),
        ] {
            std::fs::write(at(name), bytes).unwrap();
            assert_eq!(reported(name), format!("{want}, expected a bundle's folder or its `genie_config.json`"));
        }
        std::fs::create_dir(at("bundle")).unwrap();
        assert!(reported("bundle").starts_with("`bundle` is an empty folder, expected"));
        let config = at("bundle").join(CONFIG_FILE);
        std::fs::write(&config, "{\"dialog\": {").unwrap();
        for path in [at("bundle"), config.clone()] {
            assert_eq!(config_path(&path).unwrap(), config, "torn JSON is for the parser");
        }
        assert!(matches!(FileKind::of(&at("bundle")), FileKind::Folder(FolderKind::Bundle)), "the name is known");
    }
}
