//! The crates of the workspace: who may depend on whom, who is a library, who may write `unsafe`. One row a crate, bottom up.

/// What a crate may do with `unsafe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsafe {
    /// `#![forbid(unsafe_code)]`.
    Forbidden,
    /// `#![deny(unsafe_code)]`, and one file that lets it in.
    OneFile(&'static str),
    /// Anywhere.
    Allowed,
}

/// A crate; its folder has its name.
#[derive(Debug)]
pub struct Crate {
    pub name: &'static str,
    /// Crates of ours in `[dependencies]`; `[dev-dependencies]` are free.
    pub may_use: &'static [&'static str],
    /// Others may depend on it: it has a README of at most a screen.
    pub library: bool,
    pub unsafe_code: Unsafe,
}

/// Bottom up: a crate uses rows above its own only.
pub const CRATES: &[Crate] = &[
    library("genie-types", &[]),
    library("file-io", &[]),
    library("explain", &[]),
    library("trainer", &["file-io", "explain"]),
    library("chat-template", &[]),
    library("genie-bundle", &["genie-types", "file-io"]),
    library("genie-tokenizer", &["genie-types"]),
    library("grammar", &["genie-types", "genie-tokenizer"]),
    library("qnn-sys", &[]).with_unsafe(Unsafe::Allowed),
    library("qnn-api", &["qnn-sys", "genie-types", "file-io"]).with_unsafe(Unsafe::Allowed),
    library("qnn-host", &["qnn-sys"]).with_unsafe(Unsafe::Allowed),
    library("op-package", &["qnn-sys"]).with_unsafe(Unsafe::Allowed),
    library("nsp-graph", &["genie-types"]),
    library("kvmanager", &["genie-types"]),
    library("session-store", &["genie-types", "file-io", "kvmanager"]),
    library("engine", &["genie-types", "file-io", "qnn-api", "nsp-graph", "kvmanager", "session-store"]),
    library("testkit", &["file-io", "genie-types", "qnn-api", "qnn-host", "engine"]),
    library("compiler", &["genie-types", "file-io", "genie-bundle", "genie-tokenizer", "qnn-api", "nsp-graph"]),
    library(
        "dialog",
        &["genie-types", "file-io", "genie-bundle", "genie-tokenizer", "grammar", "session-store", "engine"],
    ),
    library("serving", &["genie-types", "kvmanager", "session-store", "engine", "dialog"]),
    library("doctor", &["genie-types", "file-io", "genie-bundle", "genie-tokenizer", "qnn-api", "nsp-graph"]),
    library(
        "open-genie",
        &[
            "genie-types",
            "file-io",
            "chat-template",
            "genie-bundle",
            "grammar",
            "qnn-api",
            "qnn-host",
            "kvmanager",
            "session-store",
            "engine",
            "compiler",
            "dialog",
            "serving",
        ],
    ),
    library("server", &["open-genie"]),
    program(
        "genie-cli",
        &[
            "genie-types",
            "file-io",
            "genie-bundle",
            "grammar",
            "qnn-api",
            "qnn-host",
            "kvmanager",
            "session-store",
            "engine",
            "compiler",
            "open-genie",
            "doctor",
            "explain",
            "server",
            "trainer",
        ],
    ),
    library(
        "fuzz-targets",
        &[
            "genie-types",
            "file-io",
            "genie-bundle",
            "genie-tokenizer",
            "qnn-api",
            "qnn-host",
            "kvmanager",
            "session-store",
            "compiler",
        ],
    ),
    program("xtask", &[]),
    library(
        "conformance",
        &[
            "chat-template",
            "genie-types",
            "genie-bundle",
            "qnn-api",
            "qnn-host",
            "nsp-graph",
            "kvmanager",
            "session-store",
            "engine",
            "testkit",
            "compiler",
            "dialog",
        ],
    )
    .with_unsafe(Unsafe::OneFile("conformance/src/genie/ffi.rs")),
];

const fn library(name: &'static str, may_use: &'static [&'static str]) -> Crate {
    Crate { name, may_use, library: true, unsafe_code: Unsafe::Forbidden }
}

const fn program(name: &'static str, may_use: &'static [&'static str]) -> Crate {
    Crate { name, may_use, library: false, unsafe_code: Unsafe::Forbidden }
}

impl Crate {
    const fn with_unsafe(self, unsafe_code: Unsafe) -> Self {
        Self { unsafe_code, ..self }
    }
}

/// The row of a crate.
pub fn find(name: &str) -> Option<&'static Crate> {
    CRATES.iter().find(|row| row.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_uses_rows_above_its_own_only() {
        for (index, row) in CRATES.iter().enumerate() {
            for used in row.may_use {
                assert!(CRATES[..index].iter().any(|above| above.name == *used), "`{}` uses `{used}`", row.name);
            }
        }
    }
}
