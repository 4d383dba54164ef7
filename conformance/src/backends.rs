//! The backends that the suite runs over: the host linked into the test, the host as a shared library, Qualcomm's HTP.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use qnn_api::library::runtime;
use qnn_api::{Backend, BackendOptions, Library};

pub use testkit::linked_backend as linked;

/// The host, opened by `dlopen` as any QNN client does.
///
/// # Panics
/// The library is not there or does not start.
pub fn loaded() -> Arc<Backend> {
    start(&Library::open(host_library()).expect("the shared host loads"))
}

/// The shared library that cargo built along with this test (`cargo xtask host-lib` gives it QNN's name).
///
/// # Panics
/// It is not beside the test's program.
pub fn host_library() -> PathBuf {
    let program = std::env::current_exe().expect("a test knows its program");
    let name = format!("{}qnn_host{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let found = program.ancestors().skip(1).take(3).map(|folder| folder.join(&name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("`{name}` is not beside `{}`", program.display()))
}

/// Qualcomm's own HTP library: on x86 the emulator. Without a chip in the options it takes whatever a binary was made for.
///
/// # Panics
/// It is not there or does not start.
pub fn htp(options: &BackendOptions) -> Arc<Backend> {
    let library = Library::open_by_name(runtime::HTP);
    let library =
        library.unwrap_or_else(|e| panic!("{e}\nhint: {}", e.hint().map_or_else(String::new, |hint| hint.to_string())));
    Backend::new(&library, options).expect("the HTP library starts")
}

/// The same without a chip, one for all tests of a process.
///
/// # Panics
/// As [`htp`].
pub fn shared_htp() -> Arc<Backend> {
    static SHARED: OnceLock<Arc<Backend>> = OnceLock::new();
    SHARED.get_or_init(|| htp(&BackendOptions::default())).clone()
}

fn start(library: &Arc<Library>) -> Arc<Backend> {
    Backend::new(library, &BackendOptions::default()).expect("the backend starts")
}
