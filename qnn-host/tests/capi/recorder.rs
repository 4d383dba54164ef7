//! A package in C (`recorder_package.c` of `testkit`) that writes down what it is asked and given.

use std::ffi::CString;
use std::path::Path;
use std::process::Command;

use crate::client::{Client, call};

/// The folder of `cpu_op_package.h`.
const INCLUDE: &str = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../testkit/c");
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testkit/c/recorder_package.c");

/// Registers the package as `package::op`; it writes into `folder/log`.
pub(crate) fn register(client: &Client, folder: &Path, package: &str, op: &str) {
    let library = folder.join(format!("{package}.so"));
    let define = |name: &str, text: &str| format!("-D{name}=\"{text}\"");
    let log = folder.join("log");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library);
    cc.args([define("PACKAGE", package), define("OP", op), define("LOG", log.to_str().unwrap())]);
    assert!(cc.args([INCLUDE, SOURCE]).status().expect("the C compiler that Rust links with").success());
    let (path, provider) = (CString::new(library.to_str().unwrap()).unwrap(), c"RecorderProvider".as_ptr());
    let code = call!(client.table, backendRegisterOpPackage(client.backend, path.as_ptr(), provider, c"CPU".as_ptr()));
    assert_eq!(code, 0, "{}", client.message(code));
}

/// A backend with the package, as `Recorder::Seen`.
pub(crate) fn with_package(folder: &Path) -> Client {
    let client = Client::new();
    register(&client, folder, "Recorder", "Seen");
    client
}

/// What the package wrote since the last time.
pub(crate) fn seen(folder: &Path) -> Vec<String> {
    let log = folder.join("log");
    let lines = std::fs::read_to_string(&log).unwrap_or_default().lines().map(str::to_owned).collect();
    let _ = std::fs::remove_file(log);
    lines
}
