//! Words the fixes of the doctor's findings.

use doctor::{DoctorError, Fix};

/// The hint of a request that makes no sense.
pub fn of(error: &DoctorError) -> String {
    match error {
        DoctorError::NoSubject { .. } => "use a bundle's folder, its `genie_config.json` or a context binary",
        _ => "use a folder with `libQnnHtp.so` and `libQnnSystem.so`",
    }
    .to_owned()
}

/// The fix of a finding.
pub fn words(fix: &Fix) -> String {
    match fix {
        Fix::CompileFor(soc) => {
            format!("compile the bundle again for the device: `genie compile MODEL --soc {}`", soc.name.to_lowercase())
        }
        Fix::CompileFirst(path) => {
            format!(
                "`genie compile {} -o BUNDLE` makes a bundle of it, `genie doctor BUNDLE` examines that",
                path.display()
            )
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
            "name a folder with `libQnnSystem.so`: `--libs DIR`; `genie runtime fetch` gets one".into()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixes_name_the_flags_of_this_program() {
        let soc = qnn_api::Soc::by_name("sm8550").expect("a known SoC");
        let text = words(&Fix::CompileFor(soc));
        assert_eq!(text, "compile the bundle again for the device: `genie compile MODEL --soc sm8550`");
        assert_eq!(words(&Fix::Text("as it is")), "as it is");
    }
}
