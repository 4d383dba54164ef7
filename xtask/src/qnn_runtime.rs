//! `cargo xtask qnn-runtime`: Qualcomm's own libraries, from the wheel on PyPI, under `target/qnn-runtime/`.
//!
//! The version is pinned and `pip` checks the hash. Nothing of it is committed; its licence lies beside the libraries.
//! Layout: `target/qnn-runtime/{x86_64,aarch64}/onnxruntime_qnn/libQnnHtp.so` and, for x86-64, `onnxruntime_qnn.libs`
//! with the C++ runtime that they need. `qnn_api::library::runtime` finds them there.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use crate::workspace::{root, sh};

/// The pinned wheel and the QAIRT release inside of it.
const PACKAGE: &str = "onnxruntime-qnn";
const VERSION: &str = "2.7.0";
const QAIRT: &str = "2.51.0";
/// The package's folder in the wheel.
const FOLDER: &str = "onnxruntime_qnn";

/// What to fetch.
#[derive(Args)]
pub struct QnnRuntimeArgs {
    /// The machine whose libraries are fetched.
    #[arg(long, value_enum, default_value_t = Machine::host())]
    target: Machine,
    /// Fetch and unpack again, even if it is there.
    #[arg(long)]
    force: bool,
}

/// Machines that the wheel is built for.
#[derive(Clone, Copy, ValueEnum)]
pub enum Machine {
    /// The HTP emulator on a Linux host.
    #[value(name = "x86_64")]
    X86_64,
    /// Linux on a Snapdragon, with the skels of V68 to V81.
    #[value(name = "aarch64")]
    Aarch64,
}

impl Machine {
    /// The one that this program runs on.
    pub fn host() -> Self {
        if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// The wheel's platform tag and the hash of its file.
    const fn wheel(self) -> (&'static str, &'static str) {
        match self {
            Self::X86_64 => {
                ("manylinux_2_35_x86_64", "c56c01562b8534fe8980cfea4601408d950c065f8251fb862ce82101c52c9849")
            }
            Self::Aarch64 => {
                ("manylinux_2_34_aarch64", "ad08bbfebd7c07ffe83995418303215f46cb25a89e12676f47ee20c32002eaad")
            }
        }
    }
}

/// Fetches, checks, unpacks, and prints what is there.
pub fn run(args: &QnnRuntimeArgs) -> Result<()> {
    report(&unpacked(args.target, args.force)?)
}

/// The folder of a machine's libraries; fetches them if they are not there.
pub fn fetched(machine: Machine) -> Result<PathBuf> {
    Ok(unpacked(machine, false)?.join(FOLDER))
}

fn unpacked(machine: Machine, force: bool) -> Result<PathBuf> {
    let home = root().join("target/qnn-runtime").join(machine.name());
    let stamp = home.join("version.txt");
    let wanted = format!("{PACKAGE} {VERSION}\n");
    if force || fs::read_to_string(&stamp).unwrap_or_default() != wanted {
        fetch(machine, &home)?;
        // Last, so that an interrupted run is not taken for a whole one.
        fs::write(&stamp, wanted).with_context(|| format!("cannot write `{}`", stamp.display()))?;
    }
    Ok(home)
}

fn fetch(machine: Machine, home: &Path) -> Result<()> {
    let (platform, hash) = machine.wheel();
    let show = |path: &Path| path.display().to_string();
    if home.exists() {
        fs::remove_dir_all(home).with_context(|| format!("cannot clear `{}`", show(home)))?;
    }
    fs::create_dir_all(home).with_context(|| format!("cannot create `{}`", show(home)))?;
    // `pip` refuses a file whose hash is not the one in the list.
    let list = home.join("requirements.txt");
    fs::write(&list, format!("{PACKAGE}=={VERSION} --hash=sha256:{hash}\n"))?;
    let (list, home_text) = (show(&list), show(home));
    let pip = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--python-version", "311"];
    let what = ["--platform", platform, "--require-hashes", "--requirement", &list, "--dest", &home_text];
    sh("python3", &[&pip[..], &what[..]].concat(), &[])?;
    let wheel = fs::read_dir(home)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .context("pip left no wheel")?;
    sh("python3", &["-m", "zipfile", "--extract", &show(&wheel), &home_text], &[])?;
    fs::remove_file(&wheel).with_context(|| format!("cannot remove `{}`", show(&wheel)))
}

/// Libraries with the builds they name inside, and where the licence lies.
fn report(home: &Path) -> Result<()> {
    let folder = home.join(FOLDER);
    println!("{PACKAGE} {VERSION} (QAIRT {QAIRT}) in {}", folder.display());
    let mut n_libraries = 0;
    let mut entries: Vec<_> = fs::read_dir(&folder)
        .with_context(|| format!("cannot list `{}`", folder.display()))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("libQnn") || name == "libGenie.so" {
            let bytes = fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
            println!("  {name:<32} {}", build_inside(&bytes).or_else(|| release_inside(&bytes)).unwrap_or("-"));
            n_libraries += 1;
        } else if name.to_lowercase().contains("license") {
            println!("  licence: {}", path.display());
        }
    }
    ensure!(n_libraries > 0, "`{}` holds no QNN library", folder.display());
    Ok(())
}

/// The build id that QAIRT libraries carry, `v2.51.0.260929181845` or so.
pub fn build_inside(bytes: &[u8]) -> Option<&str> {
    let prefix = format!("v{QAIRT}.");
    bytes.windows(prefix.len()).enumerate().filter(|(_, window)| *window == prefix.as_bytes()).find_map(|(at, _)| {
        let n_digits = bytes[at + prefix.len()..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = std::str::from_utf8(&bytes[at..at + prefix.len() + n_digits]).ok()?;
        (n_digits >= 6).then_some(text)
    })
}

/// The release that libraries without a build id carry instead.
fn release_inside(bytes: &[u8]) -> Option<&str> {
    const BEFORE: &[u8] = b"AISW_VERSION: ";
    let at = bytes.windows(BEFORE.len()).position(|window| window == BEFORE)? + BEFORE.len();
    let n = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
    std::str::from_utf8(&bytes[at..at + n]).ok().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_is_found_among_other_bytes() {
        let bytes = [b"\xff\0v2.51.0. v2.51.0.12 ".as_slice(), b"v2.51.0.260929181845\0"].concat();
        assert_eq!(build_inside(&bytes), Some("v2.51.0.260929181845"));
        assert_eq!(build_inside(b"v2.5"), None);
        assert_eq!(build_inside(b"v2.51.0."), None);
        assert_eq!(release_inside(b"\0AISW_VERSION: 2.51.0\0"), Some("2.51.0"));
        assert_eq!(release_inside(b"AISW_VERSION: "), None);
    }
}
