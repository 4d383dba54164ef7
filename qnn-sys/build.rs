//! With the feature `bindgen`: clang reads the generated C header, and an SDK's own headers where `QNN_SDK_ROOT` names
//! one, for the tests that compare layouts. Without it there is nothing to do: the crate's own tables are committed.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(qnn_sdk)");
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "bindgen")]
    headers::read();
}

#[cfg(feature = "bindgen")]
mod headers {
    use std::path::{Path, PathBuf};

    /// The header that `cargo xtask codegen` writes.
    const GENERATED: &str = "generated/qnn-abi.h";
    /// An SDK's headers that between them name every struct of the tables.
    const SDK: [&str; 10] = [
        "QnnInterface.h",
        "System/QnnSystemInterface.h",
        "HTP/QnnHtpContext.h",
        "HTP/QnnHtpDevice.h",
        "HTP/QnnHtpGraph.h",
        "HTP/QnnHtpMem.h",
        "HTP/QnnHtpPerfInfrastructure.h",
        "HTP/QnnHtpSystemContext.h",
        "QnnOpPackage.h",
        "QnnTypes.h",
    ];

    /// Writes the bindings of the header and, with an SDK, of the SDK's (announced by `cfg(qnn_sdk)`) into the build's folder.
    pub(crate) fn read() {
        println!("cargo::rerun-if-env-changed=QNN_SDK_ROOT");
        bind(&[PathBuf::from(GENERATED)], None, "header.rs");
        if let Some(root) = std::env::var_os("QNN_SDK_ROOT").map(PathBuf::from) {
            let include = root.join("include/QNN");
            let headers = SDK.map(|header| include.join(header)).into_iter().filter(|header| header.is_file());
            bind(&headers.collect::<Vec<_>>(), Some(&include), "sdk.rs");
            println!("cargo::rustc-cfg=qnn_sdk");
        }
    }

    fn bind(headers: &[PathBuf], include: Option<&Path>, name: &str) {
        let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join(name);
        let mut builder = bindgen::Builder::default()
            .clang_args(include.map(|folder| format!("-I{}", folder.display())))
            .allowlist_item("_?(Qnn|QNN).*")
            .prepend_enum_name(false)
            .layout_tests(true);
        for header in headers {
            println!("cargo::rerun-if-changed={}", header.display());
            builder = builder.header(header.display().to_string());
        }
        match builder.generate().map(|bindings| bindings.write_to_file(&out)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => println!("cargo::error=cannot write `{}`: {error}", out.display()),
            Err(error) => println!("cargo::error=cannot read {headers:?}: {error}"),
        }
    }
}
