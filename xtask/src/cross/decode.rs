//! Qualcomm's aarch64 libraries under the emulator: its system library describes context binaries to a program of ours, and
//! must say the same as the x86-64 one does on this machine; its HTP library must be told apart from a broken one.
//!
//! Binaries: all of the golden bundles, and those that `genie compile` writes here, for the HTP (where the x86-64 runtime
//! can compose for it) and for the host backend. The last are not Qualcomm's format, and both must refuse them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};

use super::borrowed;
use super::toolchain::{EMULATOR, Toolchain, host_target};
use crate::qnn_runtime::{self, Machine};
use crate::workspace::{files, root, sh};

/// What the HTP library prints on a machine without the chip.
const NO_CHIP: &str = "No Snapdragon SOC detected";

/// Compares what two machines' libraries say.
pub fn run(toolchain: &Toolchain, target: &str) -> Result<()> {
    let (here, there) = (Side::host()?, Side::emulated(toolchain, target)?);
    let htp = golden()?.into_iter().chain(ours("htp", &["--target", "sm8650"])?).collect::<Vec<_>>();
    for binary in &htp {
        let (expected, found) = (here.describe(binary, false)?, there.describe(binary, false)?);
        let shown = binary.display();
        ensure!(expected.status.success(), "{}: `{shown}` is not described: {}", here.name, stderr(&expected));
        ensure!(found.status.success(), "{}: `{shown}` is not described: {}", there.name, stderr(&found));
        let (expected, found) = (description(&expected), description(&found));
        ensure!(found.lines().any(|line| line.starts_with("graph ")), "{}: `{shown}` has no graphs", there.name);
        ensure!(found == expected, "{} and {} differ on `{shown}`:\n{expected}\n{found}", here.name, there.name);
        println!("decoded alike on both machines, {:>3} lines: {shown}", found.lines().count());
    }
    for binary in ours("host", &[])? {
        for side in [&here, &there] {
            let out = side.describe(&binary, false)?;
            let said = stderr(&out);
            ensure!(!out.status.success(), "{} took a host binary for one of its own", side.name);
            ensure!(said.contains("context binary") && said.contains("30010"), "{}: unclear: {said}", side.name);
            println!("refused on {}: {said}", side.name);
        }
    }
    let binary = htp.first().context("no HTP binary to start the backend with")?;
    let out = there.describe(binary, true)?;
    let said = stderr(&out);
    ensure!(!out.status.success() && said.contains(NO_CHIP), "the HTP library does not ask for its chip: {said}");
    println!("without the chip on {}: {said}", there.name);
    Ok(())
}

/// A machine: how its `describe` is started, and on which library.
struct Side {
    name: &'static str,
    command: Vec<String>,
    env: Vec<(String, String)>,
    library: PathBuf,
}

impl Side {
    fn host() -> Result<Self> {
        sh("cargo", &["build", "--package", "qnn-api", "--example", "describe"], &[])?;
        let program = root().join("target/debug/examples/describe").display().to_string();
        let library = qnn_runtime::fetched(Machine::host())?.join("libQnnHtp.so");
        Ok(Self { name: "this machine", command: vec![program], env: Vec::new(), library })
    }

    fn emulated(toolchain: &Toolchain, target: &str) -> Result<Self> {
        ensure!(target != host_target()?, "decoding compares two machines; `{target}` is this one");
        let env = toolchain.emulate("max")?;
        let args = ["build", "--target", target, "--package", "qnn-api", "--example", "describe"];
        sh("cargo", &args, &borrowed(&env))?;
        let program = toolchain.out_dir(target)?.join("debug/examples/describe").display().to_string();
        let library = qnn_runtime::fetched(Machine::Aarch64)?.join("libQnnHtp.so");
        Ok(Self { name: "aarch64", command: vec![EMULATOR.to_owned(), program], env, library })
    }

    fn describe(&self, binary: &Path, run: bool) -> Result<Output> {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).arg(&self.library).arg(binary).args(run.then_some("run"));
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.output().with_context(|| format!("cannot start `{}`", self.command[0]))
    }
}

/// What is said of the binary; the first two lines are about the library.
fn description(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).lines().skip(2).collect::<Vec<_>>().join("\n")
}

fn stderr(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).trim().to_owned()
}

/// Binaries of the golden bundles, which the real compiler made.
fn golden() -> Result<Vec<PathBuf>> {
    let folder = match std::env::var_os("GENIE_GOLDEN_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => root().join("../shared/golden"),
    };
    let found = files(&folder, "bin").with_context(|| {
        format!("no golden bundles in `{}`; GENIE_GOLDEN_DIR may name another folder", folder.display())
    })?;
    ensure!(!found.is_empty(), "`{}` holds no context binaries", folder.display());
    Ok(found)
}

/// Binaries that our compiler makes of the demo model, with more options for the target.
fn ours(name: &str, options: &[&str]) -> Result<Vec<PathBuf>> {
    let bundle = root().join("target/decode").join(name);
    let shown = bundle.display().to_string();
    let run = ["run", "--package", "genie-cli", "--quiet", "--", "--quiet"];
    let compile = ["compile", "models/demo", "-o", &shown, "--ar", "1,32", "--cl", "128", "--force"];
    sh("cargo", &[&run[..], &compile, options].concat(), &[])?;
    let found = files(&bundle, "bin")?;
    if found.is_empty() {
        bail!("`{shown}` holds no context binaries");
    }
    Ok(found)
}
