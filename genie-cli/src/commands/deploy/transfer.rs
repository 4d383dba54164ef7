//! Sends what the device does not have yet, and trusts the copy only when the checksum on the device is right.
//!
//! A file is written beside its place as `NAME.part` and renamed when its checksum is right, so whatever bears its final
//! name is whole. Three cases: the final file has the right checksum and is kept; a part that begins as the file does is
//! continued, where the wire can; everything else is sent from its start.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};

use super::device::{Device, Probe, ask, quoted};
use super::parcel::{Item, digest};

/// The list of checksums on the device.
pub const SUMS: &str = "deploy.sha256";

/// What was done about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It was there.
    Kept,
    /// It was sent from this byte on.
    Continued(u64),
    /// It was sent whole.
    Sent,
}

/// Sends all items in order; `report` is called with each before it goes.
pub fn run(
    device: &dyn Device,
    probe: &Probe,
    items: &[Item],
    mut report: impl FnMut(&Item, Action),
) -> Result<Vec<Action>> {
    let actions = plan(device, &probe.dir, items)?;
    let to_send = |(item, action): (&Item, &Action)| match action {
        Action::Kept => 0,
        Action::Continued(from) => item.bytes - from,
        Action::Sent => item.bytes,
    };
    let n_bytes: u64 = items.iter().zip(&actions).map(to_send).sum();
    ensure!(
        n_bytes <= probe.free_bytes,
        "not enough space in `{}` on `{}`: {:.1} MB to send, {:.1} MB free\nhint: free some space, or choose another folder",
        probe.dir,
        device.name(),
        n_bytes as f64 / 1e6,
        probe.free_bytes as f64 / 1e6
    );
    for (item, action) in items.iter().zip(&actions) {
        report(item, *action);
        let offset = match action {
            Action::Kept => continue,
            Action::Continued(from) => *from,
            Action::Sent => 0,
        };
        let part = format!("{}/{}.part", probe.dir, item.to);
        // A part that is whole only lacks its name.
        if offset < item.bytes || item.bytes == 0 {
            device.send(&item.from, offset, &part).with_context(|| format!("`{}` was cut off", item.to))?;
        }
        accept(device, &probe.dir, item)?;
    }
    list(device, &probe.dir, items)?;
    Ok(actions)
}

/// Looks at what is there and makes the folders.
fn plan(device: &dyn Device, dir: &str, items: &[Item]) -> Result<Vec<Action>> {
    let mut script = format!("cd {} && ", quoted(dir));
    let mut folders: Vec<&str> = items.iter().filter_map(|item| item.to.rsplit_once('/').map(|(f, _)| f)).collect();
    folders.sort_unstable();
    folders.dedup();
    for folder in folders {
        write!(script, "mkdir -p {} && ", quoted(folder))?;
    }
    // One line a file: how long it is, its checksum.
    script +=
        "look() { if [ -f \"$1\" ]; then echo $(wc -c < \"$1\") $(sha256sum < \"$1\"); else echo none; fi; }; true";
    for item in items {
        for name in [item.to.clone(), format!("{}.part", item.to)] {
            write!(script, " && look {}", quoted(&name))?;
        }
    }
    let output = ask(device, "see what is there already", &script)?;
    let lines: Vec<&str> = output.lines().map(str::trim).collect();
    ensure!(
        lines.len() == 2 * items.len(),
        "`{}` prints {} lines for {} files",
        device.name(),
        lines.len(),
        items.len()
    );
    let action = |(item, lines): (&Item, &[&str])| {
        let found = lines.iter().map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.parse::<u64>().ok()?, words.next()?.to_owned()))
        });
        let found: Vec<Option<(u64, String)>> = found.collect();
        if found[0].as_ref().is_some_and(|(n, sum)| (*n, sum) == (item.bytes, &item.sha256)) {
            return Ok(Action::Kept);
        }
        match &found[1] {
            Some((n, sum)) if device.continues() && (1..=item.bytes).contains(n) && *sum == digest(&item.from, *n)? => {
                Ok(Action::Continued(*n))
            }
            _ => Ok(Action::Sent),
        }
    };
    items.iter().zip(lines.chunks_exact(2)).map(action).collect()
}

/// Gives a part its name if its checksum is right, and throws it away if not.
fn accept(device: &dyn Device, dir: &str, item: &Item) -> Result<()> {
    let (part, name) = (quoted(&format!("{}.part", item.to)), quoted(&item.to));
    let script = format!(
        "cd {dir} && set -- $(sha256sum < {part}) && if [ \"$1\" = {sum} ]; then chmod {mode} {part} && mv -f {part} {name} \
         && echo right; else rm -f {part}; echo \"$1\"; fi",
        dir = quoted(dir),
        sum = item.sha256,
        mode = if item.executable { 755 } else { 644 },
    );
    let output = ask(device, &format!("check `{}`", item.to), &script)?;
    ensure!(
        output.trim() == "right",
        "checksum mismatch of `{}` on `{}`: expected {}, found {}\nhint: the damaged file is gone; run the command again, \
         and look for a failing disk or a changed file if it happens twice",
        item.to,
        device.name(),
        item.sha256,
        output.trim()
    );
    Ok(())
}

/// Leaves the list, so that the device can be checked without us.
fn list(device: &dyn Device, dir: &str, items: &[Item]) -> Result<()> {
    let mut text = String::new();
    for item in items {
        writeln!(text, "{}  {}", item.sha256, item.to)?;
    }
    let script =
        format!("cd {} && printf %s {} > {SUMS} && sha256sum -c {SUMS} >/dev/null", quoted(dir), quoted(&text));
    ask(device, "check everything once more", &script).map(drop)
}
