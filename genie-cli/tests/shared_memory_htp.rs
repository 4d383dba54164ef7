//! `--shared-memory on` with Qualcomm's library: the emulator registers nothing, which is said once, and all is bound by address.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::process::Command;

use serde_json::Value;

use crate::program::with_users_cache;
use crate::recordings;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_rpcmem/fake_rpcmem.c");

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_emulator_registers_nothing_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(folder.path().join("libcdsprpc.so")).arg(SOURCE);
    assert!(cc.status().expect("the C compiler that Rust links with").success());
    let log = folder.path().join("memory.log");
    let run = |memory: &str| {
        let args = ["run", "--prompt-tokens", "94,47,33,118,46", "-n", "6", "--json", "--backend", "htp", "-c"];
        let mut command = with_users_cache(&args);
        command.arg(recordings::folder().join("fp16_split2")).args(["--shared-memory", memory]);
        let output = command.env("LD_LIBRARY_PATH", folder.path()).env("FAKE_RPCMEM_LOG", &log).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let record: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
        (record["tokens"].clone(), said)
    };
    let (plain, _) = run("off");
    assert!(!log.exists(), "the library is not asked");
    let (auto, said) = run("auto");
    assert!(auto == plain && !log.exists() && !said.contains("bound by address"), "{said}");
    let (shared, said) = run("on");
    assert_eq!(shared, plain);
    assert_eq!(said.matches("are bound by address: it takes no shared memory").count(), 1, "{said}");
    let lines = std::fs::read_to_string(&log).unwrap();
    let count = |call: &str| lines.lines().filter(|line| line.split(' ').next() == Some(call)).count();
    assert!(count("alloc") > 4 && count("alloc") == count("free"), "{lines}");
}
