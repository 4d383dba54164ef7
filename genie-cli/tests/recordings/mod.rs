//! Where libGenie's recordings are: the folder that `GENIE_GOLDEN_DIR` names, else `shared/golden` beside the repository. Configs that
//! were recorded name their models and grammars from there.

use std::path::{Path, PathBuf};

use serde_json::Value;

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

/// A recorded config of a dialog in a folder of its own, its paths absolute.
pub fn bundle(config: &Value) -> tempfile::TempDir {
    let (mut config, folder) = (config.clone(), tempfile::tempdir().unwrap());
    make_absolute(&mut config);
    std::fs::write(folder.path().join("genie_config.json"), config.to_string()).unwrap();
    folder
}

fn make_absolute(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with("models/") || text.starts_with("grammars/") => {
            *text = folder().join("dialogs").join(&*text).display().to_string();
        }
        Value::Array(items) => items.iter_mut().for_each(make_absolute),
        Value::Object(keys) => keys.values_mut().for_each(make_absolute),
        _ => {}
    }
}
