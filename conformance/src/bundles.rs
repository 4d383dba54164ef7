//! Random checkpoints compiled into bundles that vanish with the value.

use std::path::PathBuf;
use std::sync::Arc;

use compiler::testmodel::TestModel;
use compiler::{CONFIG_FILE, CompileOptions, Silent, compile};
use dialog::DialogConfig;
use engine::{Engine, EngineConfig};
use qnn_api::Backend;
use serde_json::Value;
use tempfile::TempDir;

/// A checkpoint and the bundle made from it.
#[derive(Debug)]
pub struct Bundle {
    folder: TempDir,
}

impl Bundle {
    /// Writes the checkpoint and compiles it with what `choose` changes about the options.
    ///
    /// # Panics
    /// Either fails.
    pub fn make(model: &TestModel, backend: &Arc<Backend>, choose: impl FnOnce(&mut CompileOptions)) -> Self {
        Self::make_changed(model, backend, choose, |_| ())
    }

    /// As [`Self::make`], of a checkpoint whose `config.json` was changed.
    ///
    /// # Panics
    /// Any of it fails.
    pub fn make_changed(
        model: &TestModel,
        backend: &Arc<Backend>,
        choose: impl FnOnce(&mut CompileOptions),
        change: impl FnOnce(&mut Value),
    ) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let bundle = Self { folder };
        model.write(&bundle.model_dir()).expect("the random checkpoint is written");
        let path = bundle.model_dir().join("config.json");
        let text = std::fs::read(&path).expect("the configuration is there");
        let mut config: Value = serde_json::from_slice(&text).expect("the configuration is JSON");
        change(&mut config);
        std::fs::write(&path, config.to_string()).expect("the configuration is written");
        let mut options = CompileOptions::new(bundle.model_dir(), bundle.dir());
        choose(&mut options);
        compile(&options, backend, &mut Silent).expect("the random checkpoint compiles");
        bundle
    }

    /// The checkpoint's folder.
    pub fn model_dir(&self) -> PathBuf {
        self.folder.path().join("model")
    }

    /// The bundle's folder.
    pub fn dir(&self) -> PathBuf {
        self.folder.path().join("bundle")
    }

    /// The config, checked.
    ///
    /// # Panics
    /// The compiler wrote one that the dialog refuses.
    pub fn config(&self) -> DialogConfig {
        DialogConfig::from_file(self.dir().join(CONFIG_FILE))
            .expect("the compiler writes configs that the dialog takes")
    }

    /// An engine on it.
    ///
    /// # Panics
    /// The compiler wrote a bundle that the engine refuses.
    pub fn engine(&self, backend: &Arc<Backend>) -> Engine {
        let config = self.config();
        let config: &EngineConfig = config.engine();
        Engine::open(config, backend).expect("the compiler writes bundles that the engine takes")
    }
}
