//! What is sent: the program, the libraries that its backend needs, and the bundle; each file with its checksum.
//!
//! On the device: `DIR/bin/genie`, `DIR/lib/*`, `DIR/bundle/*`, and `DIR/deploy.sha256`, which `sha256sum -c` reads there.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use genie_bundle::CONFIG_FILE;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::files::all_files;

/// The program's place on the device.
pub const PROGRAM: &str = "bin/genie";
/// First bytes of a context binary of the host backend (`qnn-host/src/container`).
const HOST_MAGIC: &[u8] = b"\x89OGHOST\n";

/// Who executes the graphs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// The embedded one.
    Host,
    /// Qualcomm's.
    Htp,
}

/// A file with its place on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Here.
    pub from: PathBuf,
    /// There, below the folder.
    pub to: String,
    /// Length.
    pub bytes: u64,
    /// Lower-case hex.
    pub sha256: String,
    /// Whether it is a program.
    pub executable: bool,
}

impl Item {
    /// Reads the file once for its checksum.
    pub fn new(from: &Path, to: String) -> Result<Self> {
        ensure!(
            !to.contains(['\'', '\n']),
            "`{}`: a file name with quotes or line ends cannot be sent",
            from.display()
        );
        let executable = to == PROGRAM;
        Ok(Self {
            from: from.to_owned(),
            bytes: fs::metadata(from)?.len(),
            sha256: digest(from, u64::MAX)?,
            to,
            executable,
        })
    }
}

/// Checksum of the file's first `n_bytes`.
pub fn digest(path: &Path, n_bytes: u64) -> Result<String> {
    let shown = path.display();
    let mut file = File::open(path).with_context(|| format!("cannot read `{shown}`"))?.take(n_bytes);
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; 1 << 20];
    loop {
        match file.read(&mut chunk).with_context(|| format!("cannot read `{shown}`"))? {
            0 => break,
            n => hasher.update(&chunk[..n]),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A bundle that was looked at.
pub struct Bundle {
    folder: PathBuf,
    /// Which backend its binaries are for.
    pub backend: Backend,
    /// DSP architectures that its backend config names, `v75` or so; empty when it does not say.
    pub archs: BTreeSet<String>,
}

impl Bundle {
    /// Checks that the config is there, and every context binary that it names.
    pub fn open(folder: &Path) -> Result<Self> {
        let config = folder.join(CONFIG_FILE);
        let shown = folder.display();
        ensure!(config.is_file(), "`{shown}` is no bundle: it holds no `{CONFIG_FILE}`");
        let json = read_json(&config)?;
        let names = json.pointer("/dialog/engine/model/binary/ctx-bins").and_then(Value::as_array);
        let names = names.with_context(|| format!("`{}` names no context binaries", config.display()))?;
        let mut kinds = Vec::new();
        for name in names {
            let name = name.as_str().with_context(|| format!("`{}`: `ctx-bins` holds {name}", config.display()))?;
            let outside = Path::new(name).is_absolute() || Path::new(name).components().any(|c| c.as_os_str() == "..");
            ensure!(
                !outside,
                "the config names `{name}`, which lies outside of `{shown}`\nhint: put it beside the config"
            );
            kinds.push((name, kind(&folder.join(name))?));
        }
        let (first, backend) = *kinds.first().with_context(|| format!("`{}` names no binaries", config.display()))?;
        if let Some((name, _)) = kinds.iter().find(|(_, kind)| *kind != backend) {
            bail!("`{shown}` mixes backends: `{first}` is for {backend:?}, `{name}` is not");
        }
        let mut archs = BTreeSet::new();
        for path in all_files(folder)?.iter().filter(|path| path.extension().is_some_and(|e| e == "json")) {
            let Ok(json) = read_json(path) else { continue };
            let devices = json.pointer("/devices").and_then(Value::as_array).into_iter().flatten();
            archs.extend(devices.filter_map(|device| device.get("dsp_arch")?.as_str()).map(str::to_lowercase));
        }
        Ok(Self { folder: folder.to_owned(), backend, archs })
    }

    /// Its files, every one.
    pub fn items(&self) -> Result<Vec<Item>> {
        let item = |path: PathBuf| {
            let name = path.strip_prefix(&self.folder).expect("listed below the folder");
            Item::new(&path, format!("bundle/{}", name.display()))
        };
        all_files(&self.folder)?.into_iter().map(item).collect()
    }
}

/// Whose context binary it is.
fn kind(path: &Path) -> Result<Backend> {
    let mut head = [0; HOST_MAGIC.len()];
    let mut file =
        File::open(path).with_context(|| format!("the config names `{}`, which cannot be read", path.display()))?;
    let n = file.read(&mut head).with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok(if &head[..n] == HOST_MAGIC { Backend::Host } else { Backend::Htp })
}

fn read_json(path: &Path) -> Result<Value> {
    let shown = path.display();
    let text = fs::read(path).with_context(|| format!("cannot read `{shown}`"))?;
    serde_json::from_slice(&text).with_context(|| format!("`{shown}` is no JSON"))
}

/// The runtime's files that the HTP backend needs on a machine: on a phone its stubs and skels of the architectures (none
/// named: of all), on a host the emulator with its C++ runtime. The on-device compiler (90 MB) stays here.
pub fn libraries(folder: &Path, machine: &str, archs: &BTreeSet<String>) -> Result<Vec<PathBuf>> {
    let found = all_files(folder)?;
    let beside = folder.parent().map(|parent| parent.join(format!("{}.libs", name_of(folder)))).filter(|f| f.is_dir());
    let runtime = beside.map(|folder| all_files(&folder)).transpose()?.unwrap_or_default();
    let wanted = |path: &PathBuf| {
        let name = name_of(path);
        let part =
            name.strip_prefix("libQnnHtpV").and_then(|rest| rest.split_once("Stub.so").or(rest.split_once("Skel.so")));
        match (name.as_str(), part) {
            ("libQnnHtp.so" | "libQnnSystem.so", _) => true,
            ("libHtpPrepare.so", _) => machine == "x86_64",
            (_, Some((arch, ""))) => archs.is_empty() || archs.contains(&format!("v{arch}")),
            _ => false,
        }
    };
    let mut list: Vec<PathBuf> = found.into_iter().filter(wanted).collect();
    for name in ["libQnnHtp.so", "libQnnSystem.so"] {
        ensure!(list.iter().any(|path| name_of(path) == name), "`{}` holds no `{name}`", folder.display());
    }
    for arch in archs.iter().filter(|_| machine != "x86_64") {
        for part in ["Stub", "Skel"] {
            let name = format!("libQnnHtp{}{part}.so", arch.to_uppercase());
            let there = list.iter().any(|path| name_of(path) == name);
            ensure!(there, "the bundle is for architecture {arch}, but `{}` holds no `{name}`", folder.display());
        }
    }
    list.extend(runtime);
    Ok(list)
}

/// The last part of a path, as text.
pub fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A runtime as the wheel has it.
    fn runtime(folder: &Path, names: &[&str]) -> PathBuf {
        let (package, libs) = (folder.join("pkg"), folder.join("pkg.libs"));
        for folder in [&package, &libs] {
            fs::create_dir_all(folder).unwrap();
        }
        for name in names {
            fs::write(package.join(name), name).unwrap();
        }
        fs::write(libs.join("libc++-1.so"), "").unwrap();
        package
    }

    #[test]
    fn each_machine_gets_the_libraries_that_it_needs() {
        let arm = [
            "LICENSE",
            "libGenie.so",
            "libQnnHtp.so",
            "libQnnHtpPrepare.so",
            "libQnnSystem.so",
            "libQnnHtpV73Skel.so",
            "libQnnHtpV73Stub.so",
            "libQnnHtpV75Skel.so",
            "libQnnHtpV75Stub.so",
        ];
        let host = ["libGenie.so", "libHtpPrepare.so", "libQnnHtp.so", "libQnnSystem.so"];
        struct Case<'a> {
            there: &'a [&'a str],
            machine: &'a str,
            archs: &'a [&'a str],
            expected: Result<&'a [&'a str], &'a str>,
        }
        let base = ["libQnnHtp.so", "libQnnHtpV75Skel.so", "libQnnHtpV75Stub.so", "libQnnSystem.so", "libc++-1.so"];
        let all = [
            "libQnnHtp.so",
            "libQnnHtpV73Skel.so",
            "libQnnHtpV73Stub.so",
            "libQnnHtpV75Skel.so",
            "libQnnHtpV75Stub.so",
            "libQnnSystem.so",
            "libc++-1.so",
        ];
        let emulator = ["libHtpPrepare.so", "libQnnHtp.so", "libQnnSystem.so", "libc++-1.so"];
        let no_skel = "the bundle is for architecture v79, but";
        for Case { there, machine, archs, expected } in [
            Case { there: &arm, machine: "aarch64", archs: &["v75"], expected: Ok(&base) },
            Case { there: &arm, machine: "aarch64", archs: &[], expected: Ok(&all) },
            Case { there: &arm, machine: "aarch64", archs: &["v79"], expected: Err(no_skel) },
            Case { there: &host, machine: "x86_64", archs: &["v75"], expected: Ok(&emulator) },
            Case { there: &arm[..2], machine: "aarch64", archs: &[], expected: Err("holds no `libQnnHtp.so`") },
            Case { there: &arm[..3], machine: "aarch64", archs: &[], expected: Err("holds no `libQnnSystem.so`") },
        ] {
            let folder = tempfile::tempdir().unwrap();
            let archs = archs.iter().map(|arch| (*arch).to_owned()).collect();
            let found = libraries(&runtime(folder.path(), there), machine, &archs);
            match expected {
                Ok(expected) => assert_eq!(found.unwrap().iter().map(|p| name_of(p)).collect::<Vec<_>>(), expected),
                Err(expected) => assert!(found.unwrap_err().to_string().contains(expected), "{expected}"),
            }
        }
    }

    #[test]
    fn a_bundle_says_its_backend_and_architecture() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
        write(CONFIG_FILE, br#"{"dialog": {"engine": {"model": {"binary": {"ctx-bins": ["a.bin"]}}}}}"#);
        write("a.bin", b"\x02\0\0\0 some HTP blob");
        write("htp_backend_ext_config.json", br#"{"devices": [{"dsp_arch": "V75"}]}"#);
        let bundle = Bundle::open(folder.path()).unwrap();
        assert_eq!((bundle.backend, bundle.archs.iter().map(String::as_str).collect()), (Backend::Htp, vec!["v75"]));
        let items = bundle.items().unwrap();
        let names: Vec<&str> = items.iter().map(|item| item.to.as_str()).collect();
        assert_eq!(names, ["bundle/a.bin", "bundle/genie_config.json", "bundle/htp_backend_ext_config.json"]);
        // `printf '\002\0\0\0 some HTP blob' | sha256sum`
        assert_eq!(items[0].sha256, "83a90e93e92a1a7e0356808efe100c35f2870450ebf30073f05e40491b0fd552");
        assert_eq!(digest(&items[0].from, 0).unwrap()[..16], *"e3b0c44298fc1c14", "of nothing");
        write("a.bin", b"\x89OGHOST\n");
        assert_eq!(Bundle::open(folder.path()).unwrap().backend, Backend::Host);
    }
}
