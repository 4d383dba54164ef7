//! What is written where the path is no plain file: links, pipes, devices (rows 2 and 17 of the list of failures).
#![cfg(unix)]

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use file_io::FileError;

/// While it is held no other test starts a program: a child has all open files of this process until its program runs.
fn no_children() -> MutexGuard<'static, ()> {
    static CHILDREN: Mutex<()> = Mutex::new(());
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a program; whether it succeeded.
fn succeeds(program: &str, args: &[&str], path: &Path) -> bool {
    let _alone = no_children();
    Command::new(program).args([path.as_os_str()]).args(args).output().is_ok_and(|output| output.status.success())
}

fn pipe(path: &Path) {
    assert!(succeeds("mkfifo", &[], path));
}

#[test]
fn a_link_stays_and_its_file_is_replaced() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let target = elsewhere.path().join("target");
    std::fs::write(&target, "old").unwrap();
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o640)).unwrap();
    let (link, second, dangling) = (folder.path().join("a"), folder.path().join("b"), folder.path().join("c"));
    symlink(&target, &link).unwrap();
    symlink("a", &second).unwrap();
    symlink("made-later", &dangling).unwrap();
    for (path, end) in [(&link, &target), (&second, &target), (&dangling, &folder.path().join("made-later"))] {
        file_io::write_bytes(path, path.to_str().unwrap().as_bytes()).unwrap();
        assert!(path.symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(end).unwrap(), path.to_str().unwrap());
    }
    assert_eq!(target.metadata().unwrap().permissions().mode() & 0o777, 0o640, "who may read it is kept");
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 1);

    symlink("y", folder.path().join("x")).unwrap();
    symlink("x", folder.path().join("y")).unwrap();
    assert!(file_io::write_bytes(&folder.path().join("x"), b"").is_err(), "links in a circle");
}

/// Only a name that is missing is a place for a new file.
#[test]
fn a_path_that_cannot_be_looked_up_is_refused_as_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    symlink("circle", folder.path().join("circle")).unwrap();
    for name in ["circle", &"x".repeat(300)] {
        let refused = file_io::write_bytes(&folder.path().join(name), b"x");
        assert!(matches!(refused, Err(FileError::Io { operation: "open", .. })), "{refused:?}");
    }
}

/// `/dev/fd/3` of a file that was removed since it was opened.
#[cfg(target_os = "linux")]
#[test]
fn an_open_file_without_a_name_is_written_in_place() {
    use std::os::fd::AsRawFd;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gone");
    let file = std::fs::File::create_new(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    assert!(file_io::is_written_in_place(link.as_ref()).unwrap());
    file_io::write_bytes(link.as_ref(), b"text").unwrap();
    assert_eq!(std::fs::read_to_string(&link).unwrap(), "text");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_pipe_is_written_in_place_and_needs_a_reader() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    pipe(&path);
    // A child would be a reader, too.
    let _alone = no_children();
    file_io::check_writable(&path).unwrap();
    assert!(file_io::is_written_in_place(&path).unwrap());
    let reader = std::thread::spawn({
        let path = path.clone();
        move || std::fs::read(path).unwrap()
    });
    let long = vec![7; 300_000]; // more than a pipe holds
    file_io::write_bytes(&path, &long).unwrap();
    assert_eq!(reader.join().unwrap(), long);
    assert!(path.symlink_metadata().unwrap().file_type().is_fifo());
    assert!(matches!(file_io::write_bytes(&path, b"x"), Err(FileError::NoReader { .. })));
    assert!(file_io::NewFile::create(&path).is_err(), "a pipe cannot be mapped");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_device_stays_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let device = folder.path().join("null");
    if !succeeds("mknod", &["c", "1", "3"], &device) {
        return eprintln!("a_device_stays_a_device: skipped: making device nodes is not allowed");
    }
    let link = folder.path().join("link");
    symlink("null", &link).unwrap();
    for path in [&device, &link] {
        file_io::check_writable(path).unwrap();
        match file_io::write_bytes(path, b"text") {
            Ok(()) => {}
            // A folder mounted without devices.
            Err(FileError::Io { source, .. }) if source.kind() == std::io::ErrorKind::PermissionDenied => {}
            Err(error) => panic!("{error}"),
        }
        assert!(device.symlink_metadata().unwrap().file_type().is_char_device());
    }
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_socket_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let error = file_io::write_bytes(&path, b"x").unwrap_err().to_string();
    assert_eq!(error, format!("cannot write `{}`: expected a file, device or pipe, found a socket", path.display()));
}

/// `program --output /dev/stdout > file`, or the file's own name: what was printed before stays, and so does the file.
#[test]
fn the_file_that_stdout_goes_to_is_written_in_place() {
    const CHILD: &str = "FILE_IO_TEST_OUTPUT";
    if let Some(path) = std::env::var_os(CHILD) {
        let path = Path::new(&path);
        assert!(file_io::is_written_in_place(path).unwrap());
        assert!(!file_io::is_written_in_place(&path.with_extension("other")).unwrap());
        file_io::write_bytes(path, b"by its name,").unwrap();
        return file_io::write_bytes(Path::new("/dev/stdout"), b"by the device").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("out"), folder.path().join("out.other"));
    std::fs::write(&other, "").unwrap();
    let test = ["--exact", "the_file_that_stdout_goes_to_is_written_in_place", "--nocapture"];
    let _alone = no_children();
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = std::fs::File::create(&path).unwrap();
    let before = output.metadata().unwrap().ino();
    assert!(child.args(test).env(CHILD, &path).stdout(output).status().unwrap().success());
    assert_eq!(path.metadata().unwrap().ino(), before, "the same file");
    let text = std::fs::read_to_string(&path).unwrap();
    let own = text.find("by its name,by the device").unwrap_or_else(|| panic!("{text}"));
    assert!(own > 0 && text[..own].contains("running 1 test"), "{text}");
}
