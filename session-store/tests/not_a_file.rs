//! What stands where a session's file should be and is none is refused at once; it was waited for before (a fifo).
#![cfg(unix)]

use std::process::Command;

use session_store::{GenieFolder, Snapshot, StoreError};

#[test]
fn a_fifo_in_a_session_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = |name: &str| {
        let path = dir.path().join(name);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    };
    let snapshot = fifo("open-genie.kvs");
    fifo("token-history-slot-0");
    let refused = |error: StoreError| match error {
        StoreError::Io { source, .. } => source.to_string(),
        other => panic!("{other:?}"),
    };
    let expected = "expected a file, found a named pipe (fifo)";
    assert_eq!(refused(Snapshot::read(&snapshot).unwrap_err()), expected);
    assert_eq!(refused(Snapshot::version_of(&snapshot).unwrap_err()), expected);
    assert_eq!(refused(GenieFolder::new(dir.path()).read_history().unwrap_err()), expected);
}

/// A sparse file of terabytes took as much memory.
#[test]
fn counters_that_are_too_long_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::File::create(dir.path().join("dialog.json")).unwrap().set_len(3 << 40).unwrap();
    let StoreError::Io { source, .. } = GenieFolder::new(dir.path()).read_dialog(&[]).unwrap_err() else {
        panic!("another error")
    };
    assert_eq!(source.to_string(), "expected at most 65536 bytes, found 3298534883328");
}
