//! A device behind `adb`. A file that was cut off is sent again from its start: `adb push` cannot continue one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};

use super::device::{CommandOutput, Device, check};

/// One of the devices that the `adb` server sees.
pub struct Adb {
    program: PathBuf,
    serial: String,
}

impl Adb {
    /// Asks whether it is there.
    pub fn connect(program: &Path, serial: &str) -> Result<Self> {
        let adb = Self { program: program.to_owned(), serial: serial.to_owned() };
        let out = adb.run(&["get-state"])?;
        check(&adb, "find the device", &output(&out))?;
        let state = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        ensure!(state == "device", "`{serial}` is in state `{state}`, expected `device`");
        Ok(adb)
    }

    fn run(&self, args: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.program);
        command.args(["-s", &self.serial]).args(args).stdin(Stdio::null());
        command.output().with_context(|| {
            format!(
                "cannot start `{}`\nhint: adb comes with Android's platform-tools (Debian: apt-get install adb); \
                 `--adb FILE` names it",
                self.program.display()
            )
        })
    }
}

impl Device for Adb {
    fn name(&self) -> String {
        self.serial.clone()
    }

    fn shell(&self, script: &str) -> Result<CommandOutput> {
        Ok(output(&self.run(&["shell", script])?))
    }

    fn send(&self, file: &Path, offset: u64, to: &str) -> Result<()> {
        assert_eq!(offset, 0, "this device cannot continue a file");
        let out = self.run(&["push", &file.display().to_string(), to])?;
        check(self, &format!("write `{to}`"), &output(&out))
    }

    fn continues(&self) -> bool {
        false
    }
}

fn output(out: &Output) -> CommandOutput {
    CommandOutput {
        status: out.status.code(),
        out: String::from_utf8_lossy(&out.stdout).into_owned(),
        err: String::from_utf8_lossy(&out.stderr).into_owned(),
    }
}
