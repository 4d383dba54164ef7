//! `--version`: version, commit and target in the first line; then what can execute graphs on this machine.

use qnn_api::library::runtime;
use qnn_host::kernels::Isa;

/// Version, commit and target.
pub const LINE: &str = env!("GENIE_VERSION");

/// The whole answer of `--version`; `-V` prints the first line alone.
pub fn text() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let htp = match runtime::find(runtime::HTP) {
        Some(path) => path.display().to_string(),
        None => format!("no `{}` found; `genie runtime fetch` gets it", runtime::HTP),
    };
    let mut features = Vec::new();
    if cfg!(feature = "server") {
        features.push("server");
    }
    if cfg!(feature = "plot") {
        features.push("plot");
    }
    let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
    format!("{LINE}\ncpu       {}, {cores} cores\nhtp       {htp}\nfeatures  {features}", Isa::detect().name())
}
