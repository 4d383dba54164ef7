//! Errors for the user: causes without repeats, hints, and broken pipes, which are no failure.

use std::io;

/// True if the reader of stdout has closed the pipe (`genie ... | head`).
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|e| e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}

/// The causes below the error, without those that the text above already contains.
pub fn causes(error: &anyhow::Error) -> Vec<String> {
    let mut above = error.to_string();
    let mut causes = Vec::new();
    for cause in error.chain().skip(1) {
        let text = cause.to_string();
        if !above.contains(&text) {
            causes.push(text.clone());
        }
        above = text;
    }
    causes
}

/// An error that the user can fix, with a hint how.
#[derive(Debug)]
pub struct UserError {
    message: String,
    hint: String,
}

impl UserError {
    /// As an `anyhow` error.
    pub fn error(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self { message: message.into(), hint: hint.into() })
    }
}

impl std::fmt::Display for UserError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for UserError {}

/// The first hint along the chain.
pub fn hint(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|e| {
        let own = e.downcast_ref::<UserError>().map(|h| h.hint.clone());
        let front = e.downcast_ref::<open_genie::Error>();
        let compile = || match front {
            Some(open_genie::Error::Compile(error)) => Some(error),
            _ => e.downcast_ref::<compiler::CompileError>(),
        };
        let backend = e.downcast_ref::<qnn_api::Error>().or_else(|| match compile()? {
            compiler::CompileError::Backend(error) => Some(error),
            _ => None,
        });
        own.or_else(|| Some(front_hint(&front?.hint()?)))
            .or_else(|| Some(backend_hint(&backend?.hint()?)))
            .or_else(|| crate::compile_hint::of(compile()?))
    })
}

/// A hint of `open-genie`, in terms of this program's flags where it has some.
fn front_hint(hint: &open_genie::Hint) -> String {
    use open_genie::Hint;
    match hint {
        Hint::GiveBundle => "give a bundle's folder or its `genie_config.json`; `genie compile` makes a bundle".into(),
        Hint::ChooseBackend => {
            "use `--backend host` for this machine's CPU, `--backend htp` for Qualcomm's `libQnnHtp.so`".into()
        }
        Hint::EmbeddedBackendOnly => "remove `--pin`, or use `--backend host`".into(),
        Hint::CoresToPin(may) => {
            let first = may.first().copied().unwrap_or_default();
            format!("{hint}, for example `--pin {first}`, or remove `--pin`")
        }
        Hint::DoNotPin => "remove `--pin`".into(),
        Hint::ChoosePerfPolicy => format!("{hint}; `--perf` overrides it"),
        Hint::CastNoVote => "remove `--perf`; it works with HTP backends only".into(),
        Hint::LongerText => "use a file with text, and `--max-windows` of at least 1".into(),
        Hint::Backend(hint) => backend_hint(hint),
        other => other.to_string(),
    }
}

/// A backend's hint, in terms of this program's flags where it has some.
fn backend_hint(hint: &qnn_api::Hint) -> String {
    match hint {
        qnn_api::Hint::InstallRuntime => format!(
            "`cargo xtask qnn-runtime` fetches Qualcomm's libraries into target/; or set {} to their folder, or give the \
             file with `--backend-lib`",
            qnn_api::library::runtime::DIR_VARIABLE
        ),
        qnn_api::Hint::OtherBackend => {
            "made for another backend? `--backend htp` reads Qualcomm's binaries, `--backend host` ours".into()
        }
        other => other.to_string(),
    }
}

/// The doctor's fix, with the flags and commands of this program.
pub fn fix(fix: &doctor::Fix) -> String {
    use doctor::Fix;
    match fix {
        Fix::CompileFor(soc) => {
            format!("compile the bundle again for the device: `genie compile MODEL --soc {}`", soc.name.to_lowercase())
        }
        Fix::LongerContext => "set it to at most the longest CL, or compile a longer one: `genie compile --cl`".into(),
        Fix::MoreSplits => "compile the model in more splits: `genie compile --layers-per-split N`".into(),
        Fix::NameBundle => "use a bundle's folder; `genie compile` makes a bundle".into(),
        Fix::NameDevice => "`--soc sm8650` compares the binaries with a device".into(),
        Fix::NameGraphs => "use the graphs' names; `genie inspect` lists them".into(),
        Fix::ProvideLibraries => {
            "put QNN's libraries into one folder and name it: `--libs DIR`, `QNN_RUNTIME_DIR` or `LD_LIBRARY_PATH`"
                .into()
        }
        Fix::ProvideSystemLibrary => {
            "name a folder with `libQnnSystem.so`: `--libs DIR`; `cargo xtask qnn-runtime` fetches one".into()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_is_quoted_above_is_not_said_twice() {
        let error = anyhow::anyhow!("no such file").context("cannot read `a`: no such file").context("cannot run");
        assert_eq!(causes(&error), ["cannot read `a`: no such file"]);
    }

    #[test]
    fn a_broken_pipe_is_found_below_other_errors() {
        let pipe = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe)).context("cannot print");
        assert!(is_broken_pipe(&pipe));
        assert!(!is_broken_pipe(&anyhow::anyhow!("other")));
    }

    #[test]
    fn a_hint_survives_context() {
        let error = UserError::error("no", "do that").context("cannot");
        assert_eq!(hint(&error).as_deref(), Some("do that"));
    }

    #[test]
    fn fixes_name_the_flags_of_this_program() {
        let soc = qnn_api::Soc::by_name("sm8550").expect("a known SoC");
        let text = fix(&doctor::Fix::CompileFor(soc));
        assert_eq!(text, "compile the bundle again for the device: `genie compile MODEL --soc sm8550`");
        assert_eq!(fix(&doctor::Fix::Text("as it is")), "as it is");
    }
}
