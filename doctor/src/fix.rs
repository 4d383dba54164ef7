//! What to do about a finding, without a program's flags in it.

use core::fmt;
use std::path::{Path, PathBuf};

use file_io::FileKind;
use qnn_api::Soc;

/// What to do about a finding. `Display` names no flag and no command; a program words the variants that it has flags for
/// ([`Report::worded`](crate::Report::worded)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fix {
    /// An instruction.
    Text(&'static str),
    /// An instruction for this bundle or machine.
    Specific(String),
    /// Compile the bundle again for this SoC.
    CompileFor(&'static Soc),
    /// Compile this checkpoint, and examine the bundle.
    CompileFirst(PathBuf),
    /// Compile the model with a longer context.
    LongerContext,
    /// Compile the model in more splits.
    MoreSplits,
    /// Examine a folder that holds a bundle.
    NameBundle,
    /// Name the device that is to run the bundle.
    NameDevice,
    /// Look up the graphs' names.
    NameGraphs,
    /// Put QNN's libraries into a folder that is searched.
    ProvideLibraries,
    /// Put `libQnnSystem.so` into a folder that is searched.
    ProvideSystemLibrary,
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text(text) => text,
            Self::Specific(text) => text,
            Self::CompileFor(soc) => return write!(f, "compile the bundle again for {}", soc.name),
            Self::CompileFirst(path) => return write!(f, "compile `{}`, and examine the bundle", path.display()),
            Self::LongerContext => "set it to at most the longest CL, or compile a longer one",
            Self::MoreSplits => "compile the model in more splits",
            Self::NameBundle => "use a bundle's folder",
            Self::NameDevice => "name one to compare the binaries with it",
            Self::NameGraphs => "use the names of the binaries' graphs",
            Self::ProvideLibraries => "put QNN's libraries into a folder of `QNN_RUNTIME_DIR` or `LD_LIBRARY_PATH`",
            Self::ProvideSystemLibrary => {
                "put `libQnnSystem.so` into a folder of `QNN_RUNTIME_DIR` or `LD_LIBRARY_PATH`"
            }
        })
    }
}

impl Fix {
    /// What to do about a file that is no context binary.
    pub(crate) fn of_kind(kind: &FileKind, path: &Path) -> Option<Self> {
        match kind {
            kind if kind.is_checkpoint() => Some(Self::CompileFirst(path.to_owned())),
            FileKind::Safetensors => Some(Self::CompileFirst(path.parent().unwrap_or(path).to_owned())),
            FileKind::LfsPointer | FileKind::WebPage => {
                Some(Self::Text("download it again, with git-lfs where needed"))
            }
            FileKind::Json(_) => Some(Self::NameBundle),
            _ => None,
        }
    }
}

impl From<String> for Fix {
    fn from(text: String) -> Self {
        Self::Specific(text)
    }
}
