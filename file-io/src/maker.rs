//! Which process made a temporary file or folder, as a part of its name: `PID-HOST-START`.
//!
//! *PID*: decimal. *HOST*: 8 hex digits for this boot of this machine and this container, since a process id means
//! nothing elsewhere. *START*: when that process started, in ticks since boot and in hex, since ids are used again.
//!
//! *Trap*: a killed child whose parent has not waited for it still has an entry; it counts as dead.

use std::fmt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// What another machine or container left is removed at this age: nothing else shows that it is dead.
const FOREIGN_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// A process that makes temporary files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maker {
    pid: u32,
    host: u32,
    start: u64,
}

impl Maker {
    /// This process.
    pub fn this() -> Self {
        static THIS: OnceLock<Maker> = OnceLock::new();
        *THIS.get_or_init(|| {
            let pid = std::process::id();
            let start = match process(pid) {
                Process::Runs { start } => start.unwrap_or(0),
                Process::Dead => 0,
            };
            Self { pid, host: host(), start }
        })
    }

    /// Reads what [`Display`](fmt::Display) writes, and nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (pid, host, start) = (parts.next()?, parts.next()?, parts.next()?);
        let maker = Self {
            pid: pid.parse().ok()?,
            host: u32::from_str_radix(host, 16).ok()?,
            start: u64::from_str_radix(start, 16).ok()?,
        };
        (maker.to_string() == text).then_some(maker)
    }

    /// Whether what this process made may be removed: it is dead, or it ran elsewhere and has not touched `path` for a day.
    pub fn has_left(&self, path: &Path) -> bool {
        if *self == Self::this() {
            return false;
        }
        if self.host != Self::this().host {
            return is_older(path, FOREIGN_AGE);
        }
        match process(self.pid) {
            Process::Dead => true,
            Process::Runs { start } => start.is_some_and(|start| start != self.start),
        }
    }
}

impl fmt::Display for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:08x}-{:x}", self.pid, self.host, self.start)
    }
}

/// Whether no process of this machine has this id.
pub(crate) fn is_dead(pid: u32) -> bool {
    matches!(process(pid), Process::Dead)
}

fn is_older(path: &Path, age: Duration) -> bool {
    let modified = path.symlink_metadata().and_then(|meta| meta.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|found| found > age))
}

enum Process {
    #[cfg_attr(not(unix), expect(dead_code, reason = "only a Unix kernel is asked"))]
    Dead,
    Runs {
        start: Option<u64>,
    },
}

#[cfg(unix)]
fn process(pid: u32) -> Process {
    use rustix::process::{Pid, test_kill_process};
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let Some(id) = id else { return Process::Dead };
    // Asked of the kernel first: `/proc` may be hidden from this user.
    if test_kill_process(id) == Err(rustix::io::Errno::SRCH) {
        return Process::Dead;
    }
    // The first thread started when the process did. Not `/proc/PID/stat`: qemu-user makes one up for its own process, in
    // which each thread finds another start.
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")) else {
        return Process::Runs { start: None };
    };
    // `PID (NAME) STATE ...`; the name may hold anything, so the last parenthesis counts. The start is field 22.
    let Some((_, fields)) = text.rsplit_once(") ") else { return Process::Runs { start: None } };
    if fields.starts_with(['Z', 'X']) {
        return Process::Dead;
    }
    Process::Runs { start: fields.split(' ').nth(19).and_then(|field| field.parse().ok()) }
}

/// Nothing is known of other processes: what they left goes by its age.
#[cfg(not(unix))]
fn process(_pid: u32) -> Process {
    Process::Runs { start: None }
}

/// This boot and this container: what gives a process id its meaning.
fn host() -> u32 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let container = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    // FNV-1a: any mixing will do.
    let bytes = boot.bytes().chain(container.to_string_lossy().bytes().collect::<Vec<_>>());
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maker_reads_as_it_was_written() {
        let this = Maker::this();
        assert_eq!(Maker::parse(&this.to_string()), Some(this));
        for text in
            ["", "1", "1-2", "1-0000000x-1", "01-00000000-1", "1-00000000-01", "1-00000000-1-1", "+1-00000000-1"]
        {
            assert_eq!(Maker::parse(text), None, "{text}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_knows_where_and_since_when_it_runs() {
        let this = Maker::this();
        assert_eq!(this.pid, std::process::id());
        assert!(this.host > 1 && this.start > 1, "{this}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_has_left_when_it_is_dead_or_its_id_is_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let fresh = folder.path();
        let this = Maker::this();
        assert!(!this.has_left(fresh));
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!this.has_left(fresh), "asked by another thread"));
        });
        assert!(Maker { start: this.start + 1, ..this }.has_left(fresh), "the id is used again");
        assert!(Maker { pid: 0x7fff_fff0, ..this }.has_left(fresh), "no such id");
        let elsewhere = Maker { host: !this.host, pid: 0x7fff_fff0, ..this };
        assert!(!elsewhere.has_left(fresh), "perhaps alive on another machine");
        let old = fresh.join("old");
        let file = std::fs::File::create(&old).unwrap();
        for (hours, has_left) in [(1, false), (23, false), (25, true), (1000, true)] {
            let age = Duration::from_secs(hours * 3600);
            file.set_modified(std::time::SystemTime::now() - age).unwrap();
            assert_eq!(elsewhere.has_left(&old), has_left, "untouched for {hours} hours");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_killed_child_is_dead_before_its_parent_has_waited() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(!is_dead(child.id()));
        child.kill().unwrap();
        while !is_dead(child.id()) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(is_dead(child.id()));
    }
}
