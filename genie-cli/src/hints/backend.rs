//! Words the hints of QNN backends.

use qnn_api::Hint;
use qnn_api::library::runtime::DIR_VARIABLE;

/// The hint of a backend's error.
pub fn words(hint: &Hint) -> String {
    match hint {
        Hint::InstallRuntime => format!(
            "`genie runtime fetch` gets Qualcomm's libraries; or set {DIR_VARIABLE} to their folder, or \
             give the file with `--backend-lib`"
        ),
        Hint::MoreThreads => {
            "the system starts no more threads: raise the limit (`ulimit -u`), or use fewer with `--threads`".into()
        }
        other => other.to_string(),
    }
}
