//! `cargo xtask dist`: release archives, one for each machine, that need nothing of this repository.
//!
//! `open-genie-VERSION-TARGET.tar.gz` unpacks to a folder of that name: `bin/genie`, `lib/libQnnHost.so`, licences, README,
//! `share/man/man1`, `share/bash-completion`, `share/zsh`, `share/fish`. `SHA256SUMS` lies beside the archives.
//!
//! *Linking*: both files need the system's C library and nothing else, since Qualcomm's libraries are loaded at run time, which a
//! static program cannot do; the oldest glibc that they start on is printed.

mod dockerfile;
mod glibc;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use sha2::{Digest, Sha256};

use crate::cross::compile;
use crate::cross::toolchain::{AARCH64, Toolchain, host_target, is_at_hand};
use crate::workspace::{self, root, sh};

/// Targets that archives are made for.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", AARCH64];

/// What is made.
#[derive(Args)]
pub struct DistArgs {
    /// The machines, as rustc calls them [default: x86_64-unknown-linux-gnu and aarch64-unknown-linux-gnu].
    #[arg(long, value_name = "TARGET", value_delimiter = ',')]
    target: Vec<String>,
    /// Where archives are put.
    #[arg(long, short, value_name = "DIR", default_value = "target/dist")]
    output: PathBuf,
    /// Take this program instead of building one; needs one `--target`.
    #[arg(long, value_name = "FILE", requires = "host_lib")]
    genie: Option<PathBuf>,
    /// Take this libQnnHost.so instead of building one.
    #[arg(long, value_name = "FILE", requires = "genie")]
    host_lib: Option<PathBuf>,
}

/// What goes into an archive.
struct Parts<'p> {
    /// `open-genie-VERSION-TARGET`.
    name: String,
    program: &'p Path,
    host_lib: &'p Path,
    /// A program that runs here: it prints completions and manual pages.
    speaker: &'p Path,
}

/// Builds and packs.
pub fn run(args: &DistArgs) -> Result<()> {
    let targets = if args.target.is_empty() { TARGETS.map(str::to_owned).to_vec() } else { args.target.clone() };
    for target in &targets {
        ensure!(
            TARGETS.contains(&target.as_str()),
            "no archive is made for `{target}`: expected {}",
            TARGETS.join(" or ")
        );
    }
    // Refused before anything is built.
    for target in targets.iter().filter(|_| args.genie.is_none()) {
        if let Err(missing) = is_at_hand(target) {
            bail!("cannot build for `{target}`: {missing}");
        }
    }
    ensure!(args.genie.is_none() || targets.len() == 1, "`--genie` is for one machine: name it with `--target`");
    let output = root().join(&args.output);
    let mut archives = Vec::new();
    for target in &targets {
        let name = format!("open-genie-{}-{target}", env!("CARGO_PKG_VERSION"));
        let archive = match (&args.genie, &args.host_lib) {
            (Some(program), Some(host_lib)) => {
                pack(&Parts { name, program, host_lib, speaker: &speaker(target, program)? }, &output)?
            }
            _ => {
                let toolchain = Toolchain::prepare(target, crate::cross::toolchain::StdFrom::Auto)?;
                let built = compile(&toolchain, target, true, &["genie-cli".to_owned(), "qnn-host".to_owned()])?;
                let [program, host_lib] = &built[..] else {
                    bail!("cargo built {} files for `{target}`, expected `genie` and `libQnnHost.so`", built.len())
                };
                pack(&Parts { name, program, host_lib, speaker: &speaker(target, program)? }, &output)?
            }
        };
        archives.push(archive);
    }
    let sums: String = archives.iter().map(|(path, sum)| format!("{sum}  {}\n", file_name(path))).collect();
    let list = output.join("SHA256SUMS");
    fs::write(&list, sums).with_context(|| format!("cannot write `{}`", list.display()))?;
    archives.iter().for_each(|(path, sum)| println!("{} {sum}", path.display()));
    Ok(())
}

/// A program that can be asked for completions and pages: the one for this machine.
fn speaker(target: &str, program: &Path) -> Result<PathBuf> {
    if target == host_target()? {
        return Ok(program.to_owned());
    }
    workspace::program("genie")
}

/// Makes one archive; its path and checksum.
fn pack(parts: &Parts<'_>, output: &Path) -> Result<(PathBuf, String)> {
    let stage = output.join(&parts.name);
    if stage.exists() {
        fs::remove_dir_all(&stage).with_context(|| format!("cannot clear `{}`", stage.display()))?;
    }
    let put = |from: &Path, to: &str| -> Result<()> {
        let to = stage.join(to);
        fs::create_dir_all(to.parent().expect("it lies in the stage"))?;
        fs::copy(from, &to).with_context(|| format!("cannot copy `{}` to `{}`", from.display(), to.display()))?;
        Ok(())
    };
    put(parts.program, "bin/genie")?;
    put(parts.host_lib, "lib/libQnnHost.so")?;
    for file in ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md"] {
        put(&root().join(file), file)?;
    }
    for (shell, to) in [
        ("bash", "share/bash-completion/completions/genie"),
        ("zsh", "share/zsh/site-functions/_genie"),
        ("fish", "share/fish/vendor_completions.d/genie.fish"),
    ] {
        let to = stage.join(to);
        fs::create_dir_all(to.parent().expect("it lies in the stage"))?;
        fs::write(&to, said(parts.speaker, &["completions", shell])?)
            .with_context(|| format!("cannot write `{}`", to.display()))?;
    }
    let pages = stage.join("share/man/man1");
    fs::create_dir_all(&pages)?;
    said(parts.speaker, &["man", "--output", &pages.display().to_string()])?;
    for file in [parts.program, parts.host_lib] {
        let bytes = fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
        let needs = glibc::newest(&bytes).map_or("no glibc".to_owned(), |(a, b)| format!("glibc {a}.{b} or newer"));
        println!("{}: {} needs {needs}", parts.name, file_name(file));
    }
    let archive = output.join(format!("{}.tar.gz", parts.name));
    let (file, from) = (archive.display().to_string(), output.display().to_string());
    // The same bytes from the same files, whenever it is made.
    let same = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"];
    sh("tar", &[&same[..], &["--use-compress-program=gzip -n", "-cf", &file, "-C", &from, &parts.name]].concat(), &[])?;
    fs::remove_dir_all(&stage).with_context(|| format!("cannot clear `{}`", stage.display()))?;
    let bytes = fs::read(&archive).with_context(|| format!("cannot read `{file}`"))?;
    Ok((archive, Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect()))
}

fn said(program: &Path, args: &[&str]) -> Result<Vec<u8>> {
    let shown = program.display();
    let output = Command::new(program).args(args).output().with_context(|| format!("cannot start `{shown}`"))?;
    ensure!(
        output.status.success(),
        "`{shown} {}` failed: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output.stdout)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program that says what it was asked, and leaves a page.
    fn program(folder: &Path) -> PathBuf {
        let path = folder.join("genie-built");
        let script =
            "#!/bin/sh\n# GLIBC_2.17 GLIBC_2.34\n[ \"$1\" = man ] && echo page > \"$3/genie.1\"\necho \"$@\"\n";
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn an_archive_holds_all_that_is_needed_and_is_the_same_twice() {
        let folder = tempfile::tempdir().unwrap();
        let program = program(folder.path());
        let (output, unpacked) = (folder.path().join("out"), folder.path().join("unpacked"));
        fs::create_dir_all(&output).unwrap();
        fs::create_dir_all(&unpacked).unwrap();
        let parts = || Parts { name: "open-genie-9".into(), program: &program, host_lib: &program, speaker: &program };
        let (archive, sum) = pack(&parts(), &output).unwrap();
        assert_eq!(pack(&parts(), &output).unwrap().1, sum);
        let (archive, to) = (archive.display().to_string(), unpacked.display().to_string());
        sh("tar", &["-xzf", &archive, "-C", &to], &[]).unwrap();
        let at = |name: &str| unpacked.join("open-genie-9").join(name);
        assert_eq!(fs::metadata(at("bin/genie")).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read(at("lib/libQnnHost.so")).unwrap(), fs::read(&program).unwrap());
        assert_eq!(fs::read_to_string(at("share/zsh/site-functions/_genie")).unwrap(), "completions zsh\n");
        for name in ["share/man/man1/genie.1", "LICENSE-MIT", "LICENSE-APACHE", "README.md"] {
            assert!(at(name).is_file(), "{name}");
        }
        assert!(!output.join("open-genie-9").exists(), "only the archive stays");
    }

    #[test]
    fn a_machine_that_nothing_is_built_for_is_named() {
        let args =
            |target: &str| DistArgs { target: vec![target.into()], output: "x".into(), genie: None, host_lib: None };
        let error = run(&args("riscv64gc-unknown-linux-gnu")).unwrap_err().to_string();
        assert!(error.contains("no archive is made for `riscv64gc-unknown-linux-gnu`: expected x86_64"), "{error}");
    }
}
