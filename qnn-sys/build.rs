//! With the feature `bindgen` and `QNN_SDK_ROOT`: reads the SDK's headers, for the test that compares layouts.
//!
//! Without them it does nothing; the crate's own tables are committed.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(qnn_sdk)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=QNN_SDK_ROOT");
    #[cfg(feature = "bindgen")]
    sdk::read();
}

#[cfg(feature = "bindgen")]
mod sdk {
    use std::path::PathBuf;

    /// Headers that between them name every struct we pass.
    const HEADERS: [&str; 10] = [
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

    /// Writes `sdk.rs` into the build's folder and says so with `cfg(qnn_sdk)`.
    pub(crate) fn read() {
        let Some(root) = std::env::var_os("QNN_SDK_ROOT").map(PathBuf::from) else {
            println!("cargo::warning=feature `bindgen` compares with an SDK only if QNN_SDK_ROOT names one");
            return;
        };
        let include = root.join("include/QNN");
        let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("sdk.rs");
        let mut builder = bindgen::Builder::default()
            .clang_arg(format!("-I{}", include.display()))
            .allowlist_item("_?Qnn.*")
            .layout_tests(true);
        for header in HEADERS.map(|header| include.join(header)).iter().filter(|header| header.is_file()) {
            println!("cargo::rerun-if-changed={}", header.display());
            builder = builder.header(header.display().to_string());
        }
        match builder.generate().map(|bindings| bindings.write_to_file(&out)) {
            Ok(Ok(())) => println!("cargo::rustc-cfg=qnn_sdk"),
            Ok(Err(error)) => println!("cargo::error=cannot write `{}`: {error}", out.display()),
            Err(error) => println!("cargo::error=cannot read the headers in `{}`: {error}", include.display()),
        }
    }
}
