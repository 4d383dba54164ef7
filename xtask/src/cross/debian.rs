//! What a fresh machine lacks, from Debian's packages: programs by `apt-get install`, a compiler unpacked into `target/`.
//!
//! Installing needs root (or `sudo` that asks nothing); unpacking does not: it keeps package lists of its own, so that the
//! machine's list of architectures stays as it is. The unpacked compiler is Debian's `rustc-web`, with the standard
//! libraries of this machine and of the target; the machine's own cargo drives it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::root;

/// The compiler, and what its LLVM needs beyond the libraries that every machine with a C toolchain has.
const COMPILER: [&str; 9] = [
    "rustc-web",
    "libstd-rust-web-dev:amd64",
    "libllvm22",
    "libedit2",
    "libbsd0",
    "libmd0",
    "libxml2",
    "libicu72",
    "libz3-4",
];

/// Installs the packages unless the program is on the path.
pub fn ensure_program(program: &str, packages: &[&str]) -> Result<()> {
    if on_path(program).is_some() {
        return Ok(());
    }
    let list = packages.join(" ");
    let by_hand = format!("`{program}` is missing; install it by hand: apt-get install {list}");
    ensure!(on_path("apt-get").is_some(), "{by_hand} (this machine has no apt-get)");
    let sudo = !is_root()?;
    let apt = |args: &[&str]| -> Result<()> {
        let mut command = Command::new(if sudo { "sudo" } else { "apt-get" });
        if sudo {
            command.args(["-n", "apt-get"]);
        }
        eprintln!("$ apt-get {}", args.join(" "));
        // Packages with a daemon would start it: not on a developer's machine, and not in a test.
        command.args(args).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1").stdout(Stdio::null());
        let status = command.status().with_context(|| by_hand.clone())?;
        ensure!(status.success(), "{by_hand} (`apt-get {}` failed: {status})", args.join(" "));
        Ok(())
    };
    apt(&["update", "-q"])?;
    apt(&[&["install", "-q", "-y", "--no-install-recommends"], packages].concat())?;
    ensure!(on_path(program).is_some(), "`{program}` is missing after `apt-get install {list}`");
    Ok(())
}

/// The program's file, as the shell would find it; `sbin` is looked into as well.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn is_root() -> Result<bool> {
    let out = Command::new("id").arg("-u").output().context("cannot start `id`")?;
    Ok(out.stdout.trim_ascii() == b"0")
}

/// A `rustc` with the standard library of a Debian architecture, unpacked once; returns the wrapper that starts it.
pub fn rustc_with_std(architecture: &str) -> Result<PathBuf> {
    let home = root().join("target/debian-rustc");
    let (wrapper, stamp) = (home.join("rustc"), home.join(format!("{architecture}.done")));
    if stamp.exists() {
        return Ok(wrapper);
    }
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "Debian's compiler is unpacked on x86-64 Linux only"
    );
    let prefix = home.join("prefix");
    let lists = Lists::update(&home, architecture)?;
    // The runtime's package carries the version in its name.
    let depends = lists.run("apt-cache", &["depends", "libstd-rust-web-dev"])?;
    let runtime = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: ").filter(|name| name.starts_with("libstd-rust-web-")))
        .context("Debian's `libstd-rust-web-dev` names no runtime: is bookworm-security among the apt sources?")?;
    let target_std = format!("libstd-rust-web-dev:{architecture}");
    let wanted = [&COMPILER[..], &[runtime, &target_std]].concat();
    lists.run("apt-get", &[&["download", "-q"], &wanted[..]].concat())?;
    for package in fs::read_dir(&lists.home)?.flatten().map(|entry| entry.path()) {
        if package.extension().is_some_and(|e| e == "deb") {
            let status = Command::new("dpkg-deb").arg("-x").arg(&package).arg(&prefix).status();
            let status = status.context("cannot start `dpkg-deb`")?;
            ensure!(status.success(), "cannot unpack `{}`: {status}", package.display());
            fs::remove_file(&package)?;
        }
    }
    write_wrapper(&wrapper, &prefix)?;
    let out = Command::new(&wrapper).arg("-vV").output().context("cannot start the unpacked rustc")?;
    ensure!(out.status.success(), "the unpacked rustc does not start: {}", String::from_utf8_lossy(&out.stderr).trim());
    // Last, so that an interrupted run is not taken for a whole one.
    fs::write(&stamp, &out.stdout)?;
    Ok(wrapper)
}

/// Debian's rustc looks for its libraries in `/usr/lib`; the wrapper passes it the prefix.
fn write_wrapper(wrapper: &Path, prefix: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let usr = prefix.join("usr").display().to_string();
    let text = format!("#!/bin/sh\nLD_LIBRARY_PATH='{usr}/lib/x86_64-linux-gnu' exec '{usr}/bin/rustc' \"$@\"\n");
    fs::write(wrapper, text).with_context(|| format!("cannot write `{}`", wrapper.display()))?;
    fs::set_permissions(wrapper, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Package lists of our own, for this machine's architecture and one more.
struct Lists {
    home: PathBuf,
    options: Vec<String>,
}

impl Lists {
    fn update(home: &Path, architecture: &str) -> Result<Self> {
        let home = home.join("apt");
        for folder in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(home.join(folder)).with_context(|| format!("cannot create `{}`", home.display()))?;
        }
        fs::write(home.join("status"), "")?;
        let shown = home.display();
        let options = [
            "APT::Architectures::=amd64".to_owned(),
            format!("APT::Architectures::={architecture}"),
            format!("Dir::State={shown}"),
            format!("Dir::State::status={shown}/status"),
            format!("Dir::Cache={shown}/cache"),
            // Else apt becomes another user, who may not write here.
            "APT::Sandbox::User=".to_owned(),
        ];
        let lists = Self { options: options.into_iter().flat_map(|o| ["-o".to_owned(), o]).collect(), home };
        lists.run("apt-get", &["update", "-q"])?;
        Ok(lists)
    }

    fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        eprintln!("$ {program} {} (lists in {})", args.join(" "), self.home.display());
        let out = Command::new(program).args(&self.options).args(args).current_dir(&self.home).output();
        let out = out.with_context(|| format!("cannot start `{program}`: is this a Debian?"))?;
        if !out.status.success() {
            bail!("`{program} {}` failed: {}", args.join(" "), String::from_utf8_lossy(&out.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }
}
