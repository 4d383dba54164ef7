//! What the system forbids to this process: long files, entries of a folder that is closed to its user. Each test runs itself
//! again in a child that has the limit.
#![cfg(target_os = "linux")]

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use file_io::{FileError, FileSet, Shortage};

/// Names the folder of a child.
const FOLDER: &str = "FILE_IO_TEST_FOLDER";
/// No root, and no user of this machine.
const USER: u32 = 4001;

/// The folder that this process was started for, if it is a child.
fn folder_of_child() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Runs one test of this file again.
fn run(mut child: Command, test: &str, folder: &Path) -> std::io::Result<Output> {
    child.args(["--exact", test, "--nocapture"]).env(FOLDER, folder).output()
}

/// As [`run`], as a user who is not root. `None` where it cannot be.
fn run_as_user(test: &str, folder: &Path) -> Option<Output> {
    let mut child = Command::new(std::env::current_exe().unwrap());
    if chown(folder, Some(USER), None).is_ok() {
        child.uid(USER);
        // The user may not be allowed to reach the folder, or this program.
        let mut look = Command::new("ls");
        if !look.arg(folder).uid(USER).output().is_ok_and(|output| output.status.success()) {
            return None;
        }
    }
    run(child, test, folder).ok()
}

#[test]
fn a_file_beyond_the_limit_is_refused_with_what_it_needs() {
    const TEST: &str = "a_file_beyond_the_limit_is_refused_with_what_it_needs";
    if let Some(folder) = folder_of_child() {
        let Err(FileError::NoSpace { shortage, .. }) = file_io::write_bytes(&folder.join("f"), &[1; 5000]) else {
            panic!("expected an error")
        };
        assert!(matches!(*shortage, Shortage::Limit { needed: 5000, exact: true, limit: Some(_) }), "{shortage:?}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new("sh");
    child.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    let output = run(child, TEST, folder.path()).unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_file_that_cannot_be_moved_aside_fails_the_set() {
    const TEST: &str = "a_file_that_cannot_be_moved_aside_fails_the_set";
    if let Some(folder) = folder_of_child() {
        let mut set = FileSet::new(&folder);
        set.remove("f");
        let published = set.publish();
        assert!(matches!(published, Err(FileError::Io { operation: "move aside", .. })), "{published:?}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f"), "x").unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o500)).unwrap();
    let Some(output) = run_as_user(TEST, folder.path()) else {
        return eprintln!("{TEST}: skipped: another user sees neither this program nor its folder");
    };
    assert!(output.status.success(), "{output:?}");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    assert!(folder.path().join("f").exists());
}

/// `fs.protected_hardlinks`: another user's file gets no second name, so a copy is made.
#[test]
fn a_file_of_another_user_is_copied() {
    const TEST: &str = "a_file_of_another_user_is_copied";
    if let Some(folder) = folder_of_child() {
        file_io::carry(&folder.join("f"), &folder.join("g")).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f"), "text").unwrap();
    let Some(output) = run_as_user(TEST, folder.path()) else {
        return eprintln!("{TEST}: skipped: another user sees neither this program nor its folder");
    };
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read_to_string(folder.path().join("g")).unwrap(), "text");
}
