//! `genie` for the other machine, beside Qualcomm's libraries for it: their system library describes context binaries to it,
//! and must describe them as the x86-64 one does on this machine; their HTP library must not be taken for a broken one;
//! and the demo model must generate the same tokens there as here.
//!
//! Binaries: all of the golden bundles, and those that `genie compile` writes here, for the HTP (the x86-64 runtime composes
//! for it) and for the host backend. The last are not Qualcomm's format, and both must refuse them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::toolchain::{EMULATOR, Toolchain, host_target};
use crate::qnn_runtime::{self, Machine};
use crate::workspace::{files, program, root, sh};

/// What the HTP library prints on a machine without the chip, and what we add.
const NO_CHIP: [&str; 3] = ["`backendCreate` returned 4000", "No Snapdragon SOC detected", "hint: "];

/// Compares what the libraries of two machines print.
pub fn run(toolchain: &Toolchain, target: &str) -> Result<()> {
    let (here, there) = (Side::host()?, Side::emulated(toolchain, target)?);
    let golden = golden()?;
    let htp = golden.iter().cloned().chain(ours("htp", &["--target", "sm8650"])?);
    for binary in htp {
        let (expected, found) = (here.inspect(&binary)?, there.inspect(&binary)?);
        let shown = binary.display();
        ensure!(expected.status.success(), "{}: `{shown}` is not described: {}", here.name, stderr(&expected));
        ensure!(found.status.success(), "{}: `{shown}` is not described: {}", there.name, stderr(&found));
        let (expected, found) = (described(&expected)?, described(&found)?);
        ensure!(found["graphs"].is_array(), "{}: `{shown}`: no graphs in {found}", there.name);
        ensure!(found == expected, "{} and {} differ on `{shown}`:\n{expected}\n{found}", here.name, there.name);
        println!("described alike on both machines, {} bytes of JSON: {shown}", found.to_string().len());
    }
    for binary in ours("host", &[])? {
        for side in [&here, &there] {
            let out = side.inspect(&binary)?;
            let output = stderr(&out);
            ensure!(!out.status.success(), "{} took a host binary for one of its own", side.name);
            ensure!(output.contains("cannot inspect") && output.contains("30010"), "{}: unclear: {output}", side.name);
            println!("refused on {}: {output}", side.name);
        }
    }
    let bundle = golden.first().and_then(|binary| binary.parent()).context("a binary lies in a folder")?;
    let out = there.genie(&["run", "-p", "hello", "-c", &shown(bundle), "--backend", &shown(&there.library)])?;
    let output = stderr(&out);
    for part in NO_CHIP {
        ensure!(!out.status.success() && output.contains(part), "without the chip: `{part}` is not in: {output}");
    }
    // The library logs once more from its exit handler.
    ensure!(!output.contains("panicked"), "without the chip: {output}");
    println!("without the chip on {}: {output}", there.name);

    let demo = ["run", "--prompt", "ROMEO:", "-n", "24", "--greedy", "--json"];
    let tokens = |side: &Side| -> Result<Value> {
        let out = side.genie(&demo)?;
        ensure!(out.status.success(), "{}: the demo does not run: {}", side.name, stderr(&out));
        let record: Value = serde_json::from_str(&stdout(&out)).context("the demo's record is no JSON")?;
        Ok(record["tokens"].clone())
    };
    let (expected, found) = (tokens(&here)?, tokens(&there)?);
    ensure!(
        found == expected && found.as_array().is_some_and(|t| !t.is_empty()),
        "demo: {expected} here, {found} there"
    );
    println!("the demo model, compiled and run on both machines, generates the same {found}");
    Ok(())
}

/// A machine: how its `genie` is started, and its HTP library.
struct Side {
    name: &'static str,
    command: Vec<String>,
    env: Vec<(String, String)>,
    library: PathBuf,
}

impl Side {
    fn host() -> Result<Self> {
        let command = vec![shown(&program("genie")?)];
        let library = qnn_runtime::fetched(Machine::host())?.join("libQnnHtp.so");
        Ok(Self { name: "this machine", command, env: Vec::new(), library })
    }

    fn emulated(toolchain: &Toolchain, target: &str) -> Result<Self> {
        ensure!(target != host_target()?, "this step compares two machines; `{target}` is this one");
        super::compile(toolchain, target, false, &["genie-cli".to_owned()])?;
        let command = vec![EMULATOR.to_owned(), shown(&toolchain.out_dir(target)?.join("debug/genie"))];
        let library = qnn_runtime::fetched(Machine::Aarch64)?.join("libQnnHtp.so");
        Ok(Self { name: "aarch64", command, env: toolchain.emulate("max")?, library })
    }

    fn genie(&self, args: &[&str]) -> Result<Output> {
        // A cache of its own: the demo is compiled by the machine that runs it.
        let cache = root().join("target/decode/cache").join(self.name);
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).args(args).env("GENIE_CACHE", cache).env("NO_COLOR", "1");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.output().with_context(|| format!("cannot start `{}`", self.command[0]))
    }

    fn inspect(&self, binary: &Path) -> Result<Output> {
        self.genie(&["inspect", "--json", &shown(binary), "--backend", &shown(&self.library)])
    }
}

/// The description of the binary; which files gave it differs from machine to machine.
fn described(out: &Output) -> Result<Value> {
    let mut record: Value = serde_json::from_str(&stdout(out)).context("the description is no JSON")?;
    record.as_object_mut().context("the description is no JSON object")?.remove("backend");
    Ok(record)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn stdout(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
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
    let shown = shown(&bundle);
    std::fs::create_dir_all(root().join("target/decode"))?;
    let compile = ["--quiet", "compile", "models/demo", "-o", &shown, "--ar", "1,32", "--cl", "128", "--force"];
    sh("target/debug/genie", &[&compile[..], options].concat(), &[])?;
    let found = files(&bundle, "bin")?;
    if found.is_empty() {
        bail!("`{shown}` holds no context binaries");
    }
    Ok(found)
}
