//! A device behind a wire: a shell to ask, a way to send bytes, and what was learned of it.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// What a command on the device printed, and how it ended.
#[derive(Debug, Default)]
pub struct CommandOutput {
    /// Its exit status; nothing when the wire broke.
    pub status: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error, the wire's own complaints among it.
    pub err: String,
}

/// The wire.
pub trait Device {
    /// How messages call the device.
    fn name(&self) -> String;

    /// Runs a script with the device's `sh`.
    ///
    /// # Errors
    /// The wire's program does not start.
    fn shell(&self, script: &str) -> Result<CommandOutput>;

    /// Writes the file's bytes from `offset` on behind the first `offset` bytes of the device's file `to`.
    ///
    /// # Errors
    /// Whatever ended it early.
    fn send(&self, file: &Path, offset: u64, to: &str) -> Result<()>;

    /// True when `send` takes an offset other than 0.
    fn continues(&self) -> bool;
}

/// Runs a script that must succeed, and returns its output.
pub fn ask(device: &dyn Device, operation: &str, script: &str) -> Result<String> {
    let output = device.shell(script)?;
    check(device, operation, &output)?;
    Ok(output.out)
}

/// Fails with what was printed, and with a hint where one is known.
pub fn check(device: &dyn Device, operation: &str, output: &CommandOutput) -> Result<()> {
    let how = match output.status {
        Some(0) => return Ok(()),
        Some(code) => format!("exit status {code}"),
        None => "the connection failed".to_owned(),
    };
    let output = [output.err.trim(), output.out.trim()]
        .into_iter()
        .find(|text| !text.is_empty())
        .unwrap_or("no word")
        .to_owned();
    let hint = hint(&output).map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
    bail!("cannot {operation} on `{}`: {how}: {output}{hint}", device.name())
}

/// What to do about well-known complaints.
fn hint(output: &str) -> Option<&'static str> {
    const HINTS: [(&str, &str); 13] = [
        ("Could not resolve hostname", "check the name; `--ssh-arg=-F --ssh-arg=FILE` names another ssh config"),
        (
            "Connection refused",
            "nothing listens there: is sshd running, and is it the right port (`--ssh-arg=-p2222`)?",
        ),
        ("timed out", "the device does not respond: is it on, and on this network?"),
        ("No route to host", "the device does not respond: is it on, and on this network?"),
        ("Host key verification failed", "connect once by hand with `ssh` and accept the key if it is the right one"),
        ("Permission denied (", "no key or password was accepted: `--ssh-arg=-i --ssh-arg=KEY` names a key"),
        ("No space left on device", "free some space and run the command again: what is complete is not sent again"),
        ("Broken pipe", "run the command again: it continues where it stopped"),
        ("closed by remote host", "run the command again: it continues where it stopped"),
        ("Read-only file system", "choose a folder that can be written, `/data/local/tmp/genie` on Android"),
        ("unauthorized", "allow USB debugging on the device's screen"),
        ("offline", "plug the device in again, or run `adb reconnect`"),
        ("not found", "`adb devices` lists what is connected"),
    ];
    HINTS.iter().find(|(part, _)| output.contains(part)).map(|(_, hint)| *hint)
}

/// What the device is.
#[derive(Debug, PartialEq, Eq)]
pub struct Probe {
    /// `uname -m`.
    pub machine: String,
    /// System, release and, on Android, model and chip.
    pub system: String,
    /// The folder, from `/` on.
    pub dir: String,
    /// Bytes free there.
    pub free_bytes: u64,
}

impl Probe {
    /// Makes the folder and looks around.
    pub fn of(device: &dyn Device, dir: &str) -> Result<Self> {
        let script = format!(
            "mkdir -p {dir} && cd {dir} && uname -m && uname -sr && pwd && df -Pk . | tail -n 1 && \
             command -v sha256sum >/dev/null && echo sums; \
             command -v getprop >/dev/null && echo Android $(getprop ro.build.version.release) on \
             $(getprop ro.product.model), $(getprop ro.soc.model); true",
            dir = quoted(dir)
        );
        let output = device.shell(&script)?;
        check(device, "read its properties", &output)?;
        let mut lines = output.out.lines().map(str::trim);
        let mut next = |what: &str| {
            lines.next().filter(|line| !line.is_empty()).with_context(|| {
                let err = output.err.trim();
                let hint = hint(err).map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
                format!("`{}` does not print {what} in `{dir}`: {err}{hint}", device.name())
            })
        };
        let machine = next("its machine")?.to_owned();
        let mut system = next("its system")?.to_owned();
        let dir = next("the folder")?.to_owned();
        let space = next("the free space")?;
        let free = space.split_whitespace().nth(3).and_then(|n| n.parse::<u64>().ok());
        let free_bytes = free.with_context(|| format!("`df -Pk` on `{}` prints `{space}`", device.name()))? * 1024;
        ensure!(
            lines.next() == Some("sums"),
            "`{}` has no `sha256sum`, so nothing sent there could be checked\nhint: busybox, toybox and coreutils have it",
            device.name()
        );
        if let Some(android) = lines.next() {
            system = format!("{android} ({system})");
        }
        Ok(Self { machine, system, dir, free_bytes })
    }
}

/// For `sh`; folders with quotes in their names were refused before.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake(i32, &'static str, &'static str);

    impl Device for Fake {
        fn name(&self) -> String {
            "board".to_owned()
        }
        fn shell(&self, _: &str) -> Result<CommandOutput> {
            Ok(CommandOutput {
                status: (self.0 != 255).then_some(self.0),
                out: self.1.to_owned(),
                err: self.2.to_owned(),
            })
        }
        fn send(&self, _: &Path, _: u64, _: &str) -> Result<()> {
            unreachable!("nothing is sent here")
        }
        fn continues(&self) -> bool {
            false
        }
    }

    const DF: &str = "/dev/sda1 1000 900 100 90% /data";

    #[test]
    fn a_device_is_looked_at() {
        let phone = format!("aarch64\nLinux 6.1\n/data/g\n{DF}\nsums\nAndroid 14 on Phone, SM8650\n");
        let probe = Probe::of(&Fake(0, phone.leak(), ""), "/data/g").unwrap();
        let system = "Android 14 on Phone, SM8650 (Linux 6.1)".to_owned();
        assert_eq!(probe, Probe { machine: "aarch64".into(), system, dir: "/data/g".into(), free_bytes: 102_400 });
    }

    #[test]
    fn what_is_wrong_is_reported_with_a_hint() {
        let no_sums = format!("aarch64\nLinux 6.1\n/data/g\n{DF}\n").leak();
        for (device, expected) in [
            (
                Fake(255, "", "ssh: Could not resolve hostname board"),
                "cannot read its properties on `board`: the connection failed: ssh: Could not resolve hostname board\nhint: check the name",
            ),
            (Fake(255, "", "connect to host board port 22: Connection refused"), "is sshd running"),
            (Fake(255, "", "me@board: Permission denied (publickey)."), "names a key"),
            (Fake(1, "", "adb: device unauthorized."), "exit status 1: adb: device unauthorized.\nhint: allow USB"),
            (
                Fake(0, "", "mkdir: can't create directory '/x': Read-only file system"),
                "does not print its machine in `/x`: mkdir: can't create directory '/x': Read-only file system\nhint: choose a folder",
            ),
            (Fake(0, "aarch64\nLinux\n/x\nwhat is df\n", ""), "`df -Pk` on `board` prints `what is df`"),
            (Fake(0, no_sums, ""), "has no `sha256sum`"),
        ] {
            let error = Probe::of(&device, "/x").unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn quotes_survive_the_shell() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
