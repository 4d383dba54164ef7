//! The good things that situations start from: a checkpoint, a GGUF file, a bundle, a session, and what `genie` says of them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use compiler::Family;
use compiler::testmodel::{FileDtype, GgufDraft, Matrices, TestModel};

use crate::child;
use crate::situation::Step;

/// The prompt of all runs.
pub(crate) const PROMPT: &str = "ab cd";
/// The second prompt of a restored dialog.
pub(crate) const NEXT: &str = "ef";

/// Families with a checkpoint and a GGUF file each.
pub(crate) struct Model {
    pub(crate) folder: PathBuf,
    pub(crate) gguf: GgufDraft,
    /// Negative log likelihood of the text, from the checkpoint and from the GGUF file.
    pub(crate) folder_says: String,
    pub(crate) gguf_says: String,
}

/// Everything that is good.
pub(crate) struct Base {
    pub(crate) genie: PathBuf,
    pub(crate) models: Vec<Model>,
    pub(crate) bundle: PathBuf,
    /// A bundle of other weights.
    pub(crate) other: PathBuf,
    pub(crate) session: PathBuf,
    /// What `run` prints of the restored session.
    pub(crate) goes_on: String,
    pub(crate) text: PathBuf,
}

impl Base {
    /// Makes all of it in a folder.
    pub(crate) fn make(genie: &Path, folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let text = folder.join("text.txt");
        std::fs::write(&text, "the text whose likelihood is compared, forty bytes or so")?;
        let say = |step: &Step| -> Result<String> {
            let end = child::run(genie, folder, step)?;
            ensure!(end.code == Some(0), "`{}` fails: {}", end.command, end.stderr);
            Ok(end.stdout)
        };
        let mut models = Vec::new();
        for (i, family) in [Family::Llama, Family::Qwen2, Family::Qwen3].into_iter().enumerate() {
            let dtype = [FileDtype::F32, FileDtype::F16, FileDtype::Bf16][i];
            let shards = 1 + i % 2;
            let model = TestModel { dtype, shards, tied: i != 1, ..TestModel::tiny(family) };
            let (path, file, bundle) = (format!("model{i}"), format!("model{i}.gguf"), format!("bundle{i}"));
            model.write(&folder.join(&path))?;
            let gguf = model.gguf([Matrices::F32, Matrices::F16, Matrices::Q8_0][i])?;
            std::fs::write(folder.join(&file), gguf.bytes())?;
            say(&compile(&path, &bundle))?;
            let folder_says = say(&likelihood(&bundle, "text.txt"))?;
            say(&compile(&file, &format!("gguf{i}")))?;
            let gguf_says = say(&likelihood(&format!("gguf{i}"), "text.txt"))?;
            models.push(Model { folder: folder.join(path), gguf, folder_says, gguf_says });
        }
        let other = TestModel { seed: 2, ..TestModel::tiny(Family::Llama) };
        other.write(&folder.join("other-model")).context("the other model")?;
        say(&compile("other-model", "other"))?;
        let mut save = run("bundle0");
        save.args.extend(["--save".into(), "session".into()]);
        say(&save)?;
        let goes_on = say(&restore("bundle0", "session"))?;
        Ok(Self {
            genie: genie.into(),
            models,
            bundle: folder.join("bundle0"),
            other: folder.join("other"),
            session: folder.join("session"),
            goes_on,
            text,
        })
    }

    /// `path` of something good, as text.
    pub(crate) fn text(&self) -> String {
        self.text.display().to_string()
    }
}

/// `genie compile` with few and small graphs.
pub(crate) fn compile(model: &str, bundle: &str) -> Step {
    Step::new(["compile", model, "-o", bundle, "--ar", "1,8", "--cl", "32", "--precision", "f32"])
}

/// `genie perplexity` of the text.
pub(crate) fn likelihood(bundle: &str, text: &str) -> Step {
    Step::new(["perplexity", "-c", bundle, text, "--json"])
}

/// `genie run` without chance.
pub(crate) fn run(bundle: &str) -> Step {
    Step::new(["run", "-c", bundle, "-p", PROMPT, "-n", "6", "--greedy"])
}

/// `genie run` that goes on with a session.
pub(crate) fn restore(bundle: &str, session: &str) -> Step {
    Step::new(["run", "-c", bundle, "-p", NEXT, "-n", "6", "--greedy", "--restore", session])
}

/// Copies a folder of files.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
