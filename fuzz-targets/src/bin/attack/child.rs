//! Runs one command with bounded time and memory.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::situation::Step;

/// Longest time of a command; the machine may be busy.
const LONGEST: Duration = Duration::from_secs(40);
/// Address space of a command, in KiB.
const MEMORY_KIB: u64 = 4 << 20;

/// How a command ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended {
    pub(crate) command: String,
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) timeout: bool,
    pub(crate) sent: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a step in a folder.
pub(crate) fn run(genie: &Path, room: &Path, step: &Step) -> Result<Ended> {
    let exec = if step.behind.is_empty() { "exec " } else { "set -o pipefail; " };
    let script = format!("ulimit -c 0; ulimit -v {MEMORY_KIB}; {} {exec}\"$0\" \"$@\" {}", step.before, step.behind);
    let mut child = Command::new("bash")
        .arg("-c")
        .arg(&script)
        .arg(genie)
        .args(&step.args)
        .current_dir(room)
        .env("GENIE_CACHE", room.join("cache"))
        .env_remove("GENIE_LOG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start bash")?;
    // A command that reads no stdin closes the pipe: that is no failure.
    if let Some(mut stdin) = child.stdin.take() {
        let bytes = step.stdin.clone();
        std::thread::spawn(move || {
            let _ = stdin.write_all(&bytes);
        });
    }
    let out = reader(child.stdout.take());
    let err = reader(child.stderr.take());
    let (status, timeout, sent) = wait(&mut child, step)?;
    let arguments: Vec<String> = step.args.iter().map(|arg| quoted(arg)).collect();
    Ok(Ended {
        command: format!("{} genie {} {}", step.before, arguments.join(" "), step.behind).trim().into(),
        code: status.code(),
        signal: status.signal(),
        timeout,
        sent: sent.map(Signal::as_raw),
        stdout: compared(out.join().unwrap_or_default()),
        stderr: err.join().unwrap_or_default(),
    })
}

fn wait(child: &mut Child, step: &Step) -> Result<(std::process::ExitStatus, bool, Option<Signal>)> {
    let begun = Instant::now();
    let mut sent = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, false, sent));
        }
        if let (Some((after, signal)), None) = (step.signal, sent)
            && begun.elapsed() >= after
        {
            if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
                let _ = kill_process(pid, signal);
            }
            sent = Some(signal);
        }
        if begun.elapsed() > LONGEST {
            child.kill()?;
            return Ok((child.wait()?, true, sent));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Of a document with paths and times, what two runs have in common: the likelihood.
fn compared(stdout: String) -> String {
    let number = |document: serde_json::Value| document.get("nats_per_token").map(ToString::to_string);
    serde_json::from_str(&stdout).ok().and_then(number).unwrap_or(stdout)
}

fn quoted(arg: &str) -> String {
    let shown: String =
        if arg.chars().count() > 80 { format!("{}...", arg.chars().take(80).collect::<String>()) } else { arg.into() };
    if !shown.is_empty() && shown.chars().all(|c| c.is_ascii_alphanumeric() || "-_./,:=".contains(c)) {
        shown
    } else {
        format!("'{}'", shown.escape_debug())
    }
}
