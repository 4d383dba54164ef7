//! Shared by the tests: a good model directory to damage, and the error that compiling it gives.

use crate::compile::compile_with;
use crate::family::Family;
use crate::lower::tests::recorder::FakeTarget;
use crate::testmodel::TestModel;
use crate::{CompileError, CompileOptions, Hint, Manifest, Precision, Silent};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// One way to break a model, and the error that it gives.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) model: fn() -> TestModel,
    pub(crate) damage: fn(&Path),
    /// The whole message, with `{dir}` for the model directory and `{families}` for the classes that are supported.
    pub(crate) message: &'static str,
    pub(crate) hint: Option<Hint>,
}

impl Case {
    pub(crate) const DEFAULT: Self =
        Self { name: "", model: || TestModel::tiny(Family::Llama), damage: |_| {}, message: "", hint: None };

    /// Compiles the damaged model: the message must match, and nothing may be left behind.
    pub(crate) fn check(&self) {
        Self::check_all(core::slice::from_ref(self));
    }

    /// Checks all of them before failing, so that one run shows every difference.
    pub(crate) fn check_all(cases: &[Self]) {
        let wrong: Vec<String> = cases.iter().filter_map(Self::difference).collect();
        assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    }

    fn difference(&self) -> Option<String> {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("model");
        (self.model)().write(&dir).unwrap();
        (self.damage)(&dir);
        let (message, hint) = match compile(&dir, &place.path().join("bundle"), |_| {}) {
            Ok(_) => ("compiled".into(), None),
            Err(error) => (error.to_string().replace(&*dir.to_string_lossy(), "{dir}"), error.hint()),
        };
        let left: Vec<_> = std::fs::read_dir(place.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        let hint = match hint {
            Some(Hint::CompileFile(path)) => {
                Some(Hint::CompileFile(path.to_string_lossy().replace(&*dir.to_string_lossy(), "{dir}").into()))
            }
            other => other,
        };
        let classes = Family::ALL.iter().map(|family| format!("`{}`", family.class())).collect::<Vec<_>>().join(", ");
        let as_expected =
            message == self.message.replace("{families}", &classes) && hint == self.hint && left == ["model"];
        let (name, wanted) = (self.name, (self.message, &self.hint));
        (!as_expected)
            .then(|| format!("case `{name}`\n     found: {message} ({hint:?}), left {left:?}\n  expected: {wanted:?}"))
    }
}

/// A folder with a good model, and where its bundle is to stand.
pub(crate) struct Place {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) model: PathBuf,
    pub(crate) out: PathBuf,
}

pub(crate) fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let (model, out) = (dir.path().join("model"), dir.path().join("bundle"));
    TestModel::tiny(Family::Llama).write(&model).unwrap();
    Place { dir, model, out }
}

/// The names in a folder, sorted.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Compiles with a recorder: AR 1 and 4, CL 16, f16.
pub(crate) fn compile(
    dir: &Path,
    out: &Path,
    change: impl FnOnce(&mut CompileOptions),
) -> Result<Manifest, CompileError> {
    let mut options = CompileOptions::new(dir, out);
    (options.ars, options.cls, options.precision) = (vec![1, 4], vec![16], Precision::F16);
    change(&mut options);
    compile_with(&options, &mut FakeTarget::default(), &mut Silent)
}

/// Changes a JSON file of the model.
pub(crate) fn edit(dir: &Path, file: &str, change: impl FnOnce(&mut Value)) {
    let path = dir.join(file);
    let mut value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut value);
    std::fs::write(path, value.to_string()).unwrap();
}

/// Sets a key of `config.json`; null removes it.
pub(crate) fn set(dir: &Path, key: &str, value: Value) {
    edit(dir, "config.json", |config| {
        let config = config.as_object_mut().unwrap();
        match value {
            Value::Null => drop(config.remove(key)),
            value => drop(config.insert(key.into(), value)),
        }
    });
}

/// Adds an f32 tensor to `model.safetensors`, all its elements `value`.
pub(crate) fn add_tensor(dir: &Path, name: &str, dims: &[usize], value: f32) {
    edit_tensors(&dir.join("model.safetensors"), |header, data| {
        let begin = data.len();
        (0..dims.iter().product::<usize>()).for_each(|_| data.extend(value.to_le_bytes()));
        header[name] = json!({ "dtype": "F32", "shape": dims, "data_offsets": [begin, data.len()] });
    });
}

/// Rewrites a safetensors file: its header as JSON, and its data.
pub(crate) fn edit_tensors(file: &Path, change: impl FnOnce(&mut Value, &mut Vec<u8>)) {
    let bytes = std::fs::read(file).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let mut data = bytes[8 + length..].to_vec();
    change(&mut header, &mut data);
    let header = header.to_string();
    let all = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(file, all).unwrap();
}
