//! What is run for another machine, step by step: our own test suites, then Qualcomm's libraries beside our programs.

use anyhow::Result;
use clap::ValueEnum;

use super::toolchain::Toolchain;
use super::{borrowed, decode};
use crate::workspace::sh;

/// Crates without kernels; the emulated CPU does not matter to them.
const LIBRARIES: [&str; 4] = ["qnn-sys", "nsp-graph", "kvmanager", "session-store"];

/// A part of `cargo xtask test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// The suites of qnn-sys, nsp-graph, kvmanager and session-store.
    Libraries,
    /// The suite of qnn-host on a CPU with everything.
    HostMax,
    /// The suite of qnn-host on a CPU without the dot product and matrix extensions.
    HostA53,
    /// Qualcomm's own system library reads our binaries; its HTP library reports why it cannot start.
    Decode,
}

impl Step {
    const ALL: [Self; 4] = [Self::Libraries, Self::HostMax, Self::HostA53, Self::Decode];
}

/// Runs the steps (none: all) and stops at the first that fails.
pub fn run(toolchain: &Toolchain, target: &str, cases: Option<u32>, only: &[Step]) -> Result<()> {
    for step in Step::ALL.into_iter().filter(|step| only.is_empty() || only.contains(step)) {
        eprintln!("\n== {target}: {step:?}");
        match step {
            Step::Libraries => {
                let packages: Vec<&str> = LIBRARIES.into_iter().flat_map(|name| ["--package", name]).collect();
                cargo_test(toolchain, target, "max", cases, &packages, &[])?;
            }
            Step::HostMax => host(toolchain, target, "max", cases)?,
            Step::HostA53 => host(toolchain, target, "cortex-a53", cases)?,
            Step::Decode => decode::run(toolchain, target)?,
        }
    }
    Ok(())
}

/// The whole suite of the backend, after a check that the emulated CPU has the vector unit which it stands for.
fn host(toolchain: &Toolchain, target: &str, cpu: &str, cases: Option<u32>) -> Result<()> {
    let unit = if cpu == "max" { "neoni8mm" } else { "neon" };
    let check = ["--", "--ignored", "the_best_unit_is_the_one_that_this_cpu_is_known_to_have"];
    let only_check = [&["--package", "qnn-host", "--lib"][..], &check].concat();
    cargo_test(toolchain, target, cpu, cases, &only_check, &[("QNN_HOST_UNIT", unit)])?;
    cargo_test(toolchain, target, cpu, cases, &["--package", "qnn-host"], &[])
}

fn cargo_test(
    toolchain: &Toolchain,
    target: &str,
    cpu: &str,
    cases: Option<u32>,
    args: &[&str],
    more: &[(&str, &str)],
) -> Result<()> {
    let env = toolchain.emulate(cpu)?;
    let cases = cases.map(|n| n.to_string());
    // The model test of the cache has a variable of its own: a case of it is a sequence of operations.
    let fewer = cases.iter().flat_map(|n| ["PROPTEST_CASES", "KV_MODEL_CASES"].map(|name| (name, n.as_str())));
    let env: Vec<_> = borrowed(&env).into_iter().chain(fewer).chain(more.iter().copied()).collect();
    sh("cargo", &[&["test", "--target", target], args].concat(), &env)
}
