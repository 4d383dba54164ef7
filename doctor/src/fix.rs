//! What to do about a finding, without a program's flags in it.

use core::fmt;

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

impl From<String> for Fix {
    fn from(text: String) -> Self {
        Self::Specific(text)
    }
}
