//! Qualcomm's own libraries, from the wheel on PyPI that carries them.
//!
//! The version is pinned and `pip` checks the hash; its licence lies beside the libraries. Layout of a folder:
//! `{x86_64,aarch64}/onnxruntime_qnn/libQnnHtp.so` and, for x86-64, `onnxruntime_qnn.libs` with the C++ runtime that they
//! need. `qnn_api::library::runtime` finds them there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use qnn_api::library::runtime;
use serde::Serialize;

use crate::failure::UserError;
use crate::printer::Printer;

/// The pinned wheel and the QAIRT release inside of it.
const PACKAGE: &str = "onnxruntime-qnn";
const VERSION: &str = "2.7.0";
const QAIRT: &str = "2.51.0";
/// The package's folder in the wheel.
const FOLDER: &str = "onnxruntime_qnn";

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

/// A fetched runtime.
#[derive(Serialize)]
pub struct Fetched {
    /// The package with its version.
    package: String,
    /// QAIRT's release.
    qairt: &'static str,
    /// The folder of the libraries.
    pub folder: PathBuf,
    /// Those of QNN and Genie.
    libraries: Vec<FetchedLibrary>,
    /// Files with the licence.
    licences: Vec<PathBuf>,
}

#[derive(Serialize)]
struct FetchedLibrary {
    file: String,
    /// The build or the release that it names inside.
    build: Option<String>,
}

/// The folder of a machine's libraries; fetches them if they are not there.
pub fn fetched(machine: Machine, printer: &Printer) -> Result<PathBuf> {
    Ok(unpacked(machine, &default_folder()?, false, printer)?.join(FOLDER))
}

/// Where runtimes are kept unless another folder is named.
pub fn default_folder() -> Result<PathBuf> {
    runtime::fetched_folder().ok_or_else(|| {
        UserError::error(
            "no folder is known to keep Qualcomm's libraries in",
            "name one with `--folder DIR`, or set GENIE_CACHE",
        )
    })
}

/// The folder with a machine's libraries below `folder`: what is there, if it is of the pinned version and whole.
pub fn unpacked(machine: Machine, folder: &Path, force: bool, printer: &Printer) -> Result<PathBuf> {
    let home = folder.join(machine.name());
    let stamp = home.join("version.txt");
    let wanted = format!("{PACKAGE} {VERSION}\n");
    if force || fs::read_to_string(&stamp).unwrap_or_default() != wanted {
        fetch(machine, &home, printer)?;
        // Last, so that an interrupted run is not taken for a whole one.
        file_io::write_bytes(&stamp, wanted.as_bytes())?;
    }
    Ok(home)
}

fn fetch(machine: Machine, home: &Path, printer: &Printer) -> Result<()> {
    let (platform, hash) = machine.wheel();
    let show = |path: &Path| path.display().to_string();
    if home.exists() {
        let old = home.join("version.txt");
        let is_ours = old.is_file() || home.join("requirements.txt").is_file();
        ensure!(
            is_ours || fs::read_dir(home).is_ok_and(|mut entries| entries.next().is_none()),
            UserError::error(
                format!("`{}` holds other files than a fetched runtime", show(home)),
                "name another folder with `--folder DIR`"
            )
        );
        fs::remove_dir_all(home).with_context(|| format!("cannot clear `{}`", show(home)))?;
    }
    fs::create_dir_all(home).with_context(|| format!("cannot create `{}`", show(home)))?;
    // `pip` refuses a file whose hash is not the one in the list.
    let list = home.join("requirements.txt");
    file_io::write_bytes(&list, format!("{PACKAGE}=={VERSION} --hash=sha256:{hash}\n").as_bytes())?;
    let (list, home_text) = (show(&list), show(home));
    printer.info(format_args!("fetching {PACKAGE} {VERSION} for {} with pip", machine.name()));
    let pip = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--python-version", "311"];
    let what = ["--platform", platform, "--require-hashes", "--requirement", &list, "--dest", &home_text];
    python(&[&pip[..], &what[..]].concat())?;
    let wheel = fs::read_dir(home)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .context("pip left no wheel")?;
    python(&["-m", "zipfile", "--extract", &show(&wheel), &home_text])?;
    fs::remove_file(&wheel).with_context(|| format!("cannot remove `{}`", show(&wheel)))
}

/// Runs `python3`; what it prints becomes the error.
fn python(args: &[&str]) -> Result<()> {
    let hint =
        "Python 3 with pip is needed to fetch; or unpack the wheel yourself and set QNN_RUNTIME_DIR to its folder";
    let output = Command::new("python3").args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| UserError::error(format!("cannot start `python3`: {error}"), hint))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("no word").to_owned();
    ensure!(
        output.status.success(),
        UserError::error(format!("`python3 {}` failed: {last}", args[..3].join(" ")), hint)
    );
    Ok(())
}

/// What is in a machine's folder: libraries with the builds they name inside, and where the licence lies.
pub fn contents(home: &Path) -> Result<Fetched> {
    let folder = home.join(FOLDER);
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot list `{}`", folder.display()))?;
    let mut entries: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    let (mut libraries, mut licences) = (Vec::new(), Vec::new());
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("libQnn") || name == "libGenie.so" {
            let bytes = fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
            let build = build_inside(&bytes).or_else(|| release_inside(&bytes)).map(str::to_owned);
            libraries.push(FetchedLibrary { file: name, build });
        } else if name.to_lowercase().contains("license") {
            licences.push(path);
        }
    }
    ensure!(!libraries.is_empty(), "`{}` holds no QNN library", folder.display());
    Ok(Fetched { package: format!("{PACKAGE} {VERSION}"), qairt: QAIRT, folder, libraries, licences })
}

impl Fetched {
    /// A line each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{} (QAIRT {}) in {}", self.package, self.qairt, self.folder.display())];
        let libraries = self.libraries.iter();
        lines.extend(libraries.map(|l| format!("  {:<32} {}", l.file, l.build.as_deref().unwrap_or("-"))));
        lines.extend(self.licences.iter().map(|path| format!("  licence: {}", path.display())));
        lines
    }
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
