//! A device behind the system's own `ssh`, with the user's keys, agents, jump hosts and config.
//!
//! One connection carries everything: a master is started first, and whoever comes later shares it. A later call that
//! finds the master gone connects by itself.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::device::{CommandOutput, Device, check, quoted};

/// Exit status of `ssh` itself.
const WIRE_BROKE: i32 = 255;

/// The connection; closed when dropped.
pub struct Ssh {
    host: String,
    args: Vec<String>,
    socket: PathBuf,
    // Holds the socket; the field is never read.
    _folder: TempDir,
}

impl Ssh {
    /// Connects; `args` come before ours, and ssh keeps what comes first.
    pub fn connect(host: &str, args: &[String]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("genie-ssh-").tempdir().context("no temporary folder")?;
        let ssh = Self { host: host.to_owned(), args: args.to_vec(), socket: folder.path().join("s"), _folder: folder };
        // The master stays, and with it whatever it holds open: so its words go to a file and not to a pipe.
        let words = tempfile::NamedTempFile::new_in(ssh._folder.path()).context("no temporary file")?;
        let status = ssh
            .command(&["-o", "ControlMaster=yes", "-N", "-f"])
            .arg("--")
            .arg(host)
            .stdin(Stdio::inherit())
            .stdout(Stdio::null())
            .stderr(words.reopen().context("no temporary file")?)
            .status()
            .context("cannot start `ssh`: is the OpenSSH client installed?")?;
        let err = std::fs::read_to_string(words.path()).unwrap_or_default();
        check(
            &ssh,
            "connect",
            &CommandOutput { status: status.code().filter(|code| *code != WIRE_BROKE), out: String::new(), err },
        )?;
        Ok(ssh)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("ssh");
        command.args(&self.args);
        let path = format!("ControlPath={}", self.socket.display());
        for option in ["ConnectTimeout=10", "ServerAliveInterval=10", "ServerAliveCountMax=3", &path] {
            command.args(["-o", option]);
        }
        command.args(args);
        command
    }

    /// `ssh HOST script`, whatever shell the user has there.
    fn remote(&self, script: &str) -> Command {
        let mut command = self.command(&["-T", "-o", "ControlMaster=no"]);
        command.arg("--").arg(&self.host).arg(format!("exec sh -c {}", quoted(script)));
        command
    }
}

impl Device for Ssh {
    fn name(&self) -> String {
        self.host.clone()
    }

    fn shell(&self, script: &str) -> Result<CommandOutput> {
        let out = self.remote(script).stdin(Stdio::null()).output().context("cannot start `ssh`")?;
        Ok(output(&out))
    }

    fn send(&self, file: &Path, offset: u64, to: &str) -> Result<()> {
        let shown = file.display();
        let mut from = File::open(file).with_context(|| format!("cannot read `{shown}`"))?;
        from.seek(SeekFrom::Start(offset)).with_context(|| format!("cannot read `{shown}`"))?;
        let script = format!("cat {} {}", if offset == 0 { ">" } else { ">>" }, quoted(to));
        let mut child =
            self.remote(&script).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut pipe = child.stdin.take().context("ssh has a standard input")?;
        let copied = std::io::copy(&mut from.by_ref(), &mut pipe);
        drop(pipe);
        let out = child.wait_with_output().context("cannot wait for `ssh`")?;
        // The message of ssh about a broken pipe is better than that of the pipe.
        check(self, &format!("write `{to}`"), &output(&out))?;
        copied.with_context(|| format!("cannot send `{shown}`"))?;
        Ok(())
    }

    fn continues(&self) -> bool {
        true
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        let mut command = self.command(&["-O", "exit"]);
        // Nothing is lost if it fails: the master ends with its connection.
        let _ = command.arg("--").arg(&self.host).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

fn output(out: &Output) -> CommandOutput {
    CommandOutput {
        status: out.status.code().filter(|code| *code != WIRE_BROKE),
        out: String::from_utf8_lossy(&out.stdout).into_owned(),
        err: String::from_utf8_lossy(&out.stderr).into_owned(),
    }
}
