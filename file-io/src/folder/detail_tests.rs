//! Folders where the system answers in a rare way: errors by kind, entries that are copied, names at their limits.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::time::{Duration, SystemTime};

use super::sweep::{open_up, remove_tree};
use super::*;
use crate::Maker;

fn begin(path: &Path) -> NewFolder {
    NewFolder::create(FolderPlace::of(path).unwrap()).unwrap()
}

#[test]
fn errors_are_distinguished_by_kind() {
    use io::ErrorKind::*;
    let which = |is: fn(&io::Error) -> bool| {
        [InvalidInput, Unsupported, AlreadyExists, DirectoryNotEmpty, NotADirectory, NotFound, PermissionDenied]
            .map(|kind| u8::from(is(&kind.into())))
    };
    assert_eq!(which(cannot_exchange), [1, 1, 0, 0, 0, 0, 0]);
    assert_eq!(which(is_occupied), [0, 0, 1, 1, 1, 0, 0]);
    assert_eq!(which(carry::knows_no_links), [0, 1, 0, 0, 0, 0, 1]);
    let dir = tempfile::tempdir().unwrap();
    let new = begin(&dir.path().join("out"));
    let refused = |kind: io::ErrorKind| new.refused(kind.into());
    assert!(matches!(refused(ResourceBusy), FolderError::Unfit { why: UnfitPlace::MountPoint, .. }));
    assert!(matches!(refused(CrossesDevices), FolderError::Unfit { why: UnfitPlace::Unmovable, .. }));
    assert!(matches!(refused(NotFound), FolderError::File(FileError::Io { operation: "replace", .. })));
    assert_eq!(refused(NotFound).path(), dir.path().join("out"));
}

/// Between the look at the folders above and their making, another process may make one, or put a file there.
#[test]
fn folders_above_that_appear_meanwhile_are_taken_and_other_errors_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let create = |path: &str| match NewFolder::create(FolderPlace::unchecked(dir.path().join(path))) {
        Err(FolderError::File(FileError::Io { operation, path, .. })) => (operation, path),
        other => panic!("{other:?}"),
    };
    // A link to nothing counts as a folder that is missing, and then is there.
    symlink("nothing", dir.path().join("link")).unwrap();
    assert_eq!(create("link/out"), ("make a folder in", dir.path().join("link")));
    fs::write(dir.path().join("file"), "x").unwrap();
    assert_eq!(create("file/a/out"), ("make the folder", dir.path().join("file/a")));
}

/// Its hidden name is cut, its own is too long for the system.
#[test]
fn a_place_that_the_system_refuses_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut new = NewFolder::create(FolderPlace::unchecked(dir.path().join("x".repeat(300)))).unwrap();
    for refused in [new.put(), new.exchange()] {
        assert!(matches!(refused, Err(FolderError::File(FileError::Io { operation: "replace", .. }))), "{refused:?}");
    }
    assert!(new.path().is_dir());
}

#[test]
fn a_folder_is_moved_in_whole_and_a_missing_one_is_fine() {
    let dir = tempfile::tempdir().unwrap();
    let new = begin(&dir.path().join("out"));
    new.move_in(&dir.path().join("missing")).unwrap();
    fs::create_dir(dir.path().join("old")).unwrap();
    fs::write(dir.path().join("old/f"), "x").unwrap();
    new.move_in(&dir.path().join("old")).unwrap();
    assert!(new.path().join("f").exists() && !dir.path().join("old").exists());
    fs::write(dir.path().join("file"), "x").unwrap();
    assert!(new.move_in(&dir.path().join("file")).is_err());
    assert!(new.sync().is_ok());
    fs::remove_dir_all(new.path()).unwrap();
    assert!(new.sync().is_err(), "there is nothing to bring onto the disk");
}

#[test]
fn a_place_says_what_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let (path, link) = (dir.path().join("out"), dir.path().join("link"));
    symlink("out", &link).unwrap();
    let place = FolderPlace::of(&link).unwrap();
    assert_eq!((place.asked(), place.path().file_name()), (&*link, path.file_name()));
    assert_eq!(place.content().unwrap(), Content::Missing);
    fs::create_dir(&path).unwrap();
    assert_eq!(place.content().unwrap(), Content::Empty);
    fs::write(path.join("f"), "x").unwrap();
    assert_eq!(place.content().unwrap(), Content::Entries);
    fs::remove_dir_all(&path).unwrap();
    fs::write(&path, "x").unwrap();
    assert!(matches!(place.content(), Err(FolderError::NotAFolder { .. })));
    let too_long = dir.path().join("x".repeat(300));
    assert!(matches!(FolderPlace::of(&too_long), Err(FolderError::File(FileError::Io { operation: "open", .. }))));
    let place = FolderPlace::unchecked(too_long);
    assert!(matches!(place.content(), Err(FolderError::File(FileError::Io { operation: "list", .. }))));
}

#[test]
fn a_copy_has_contents_permissions_time_and_owner() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("f"), "text").unwrap();
    fs::set_permissions(at("f"), fs::Permissions::from_mode(0o604)).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::options().write(true).open(at("f")).unwrap().set_modified(time).unwrap();
    let is_root = chown(at("f"), Some(4001), None).is_ok();
    let meta = |name: &str| fs::symlink_metadata(at(name)).unwrap();
    carry::copy(&at("f"), &at("g"), &meta("f")).unwrap();
    assert_eq!(fs::read_to_string(at("g")).unwrap(), "text");
    assert_eq!((meta("g").mode() & 0o777, meta("g").modified().unwrap()), (0o604, time));
    assert!(!is_root || meta("g").uid() == 4001);
    symlink("nothing", at("link")).unwrap();
    carry::copy(&at("link"), &at("link2"), &meta("link")).unwrap();
    assert_eq!(fs::read_link(at("link2")).unwrap(), Path::new("nothing"));
    assert!(std::process::Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
    assert!(matches!(carry::copy(&at("fifo"), &at("x"), &meta("fifo")), Err(FolderError::CannotKeep { .. })));
    // A folder that is carried keeps its time as well.
    fs::create_dir(at("folder")).unwrap();
    File::open(at("folder")).unwrap().set_modified(time).unwrap();
    carry(&at("folder"), &at("folder2")).unwrap();
    assert_eq!(meta("folder2").modified().unwrap(), time);
    // A second name where there is one already is refused as what it is.
    assert!(matches!(carry(&at("f"), &at("g")), Err(FolderError::File(FileError::Io { operation: "keep", .. }))));
}

#[test]
fn a_change_is_kept_only_where_nothing_of_another_type_or_the_same_age_is() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for folder in ["old", "new", "old/a", "new/b"] {
        fs::create_dir(at(folder)).unwrap();
    }
    for file in ["new/a", "old/b", "old/c", "new/c"] {
        fs::write(at(file), file).unwrap();
    }
    let future = SystemTime::now() + Duration::from_secs(1000);
    for name in ["old/a", "old/b", "old/c", "new/c"] {
        File::open(at(name)).unwrap().set_modified(future).unwrap();
    }
    carry_changes(&at("old"), &at("new")).unwrap();
    assert!(at("new/a").is_file() && at("new/b").is_dir());
    assert_eq!(fs::read_to_string(at("new/c")).unwrap(), "new/c");
}

#[test]
fn names_are_cut_where_they_would_be_too_long() {
    let bytes = |n: usize| OsString::from(std::ffi::OsStr::from_bytes(&vec![0xff; n]));
    for (name, cut) in [
        ("x".repeat(160).into(), "x".repeat(160).into()),
        ("x".repeat(161).into(), "x".repeat(160).into()),
        (bytes(160), bytes(160)),
        (bytes(161), OsString::from("folder")),
    ] {
        assert_eq!(Kind::Partial.cut(&name), cut.as_os_str());
        assert_eq!(Kind::Replaced.cut(&name), name.as_os_str());
    }
}

#[test]
fn a_name_that_is_taken_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("out");
    let name = hidden_name(&place, Kind::Partial).into_os_string().into_string().unwrap();
    let (stem, number) = name.rsplit_once('.').unwrap();
    let number: u64 = number.parse().unwrap();
    // More than the other tests of this process can use up meanwhile.
    for number in number + 1..=number + 1000 {
        fs::create_dir(format!("{stem}.{number}")).unwrap();
    }
    let made = make_hidden(&place).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1001);
    assert!(made.is_dir());
}

/// Root may remove everything, so another user does it here.
#[test]
fn a_tree_that_forbids_its_owner_to_write_is_removed() {
    use std::os::unix::process::CommandExt;
    const CHILD: &str = "FILE_IO_TEST_CLOSED";
    const UNSEEN: i32 = 3;
    if let Some(tree) = std::env::var_os(CHILD) {
        if !Path::new(&tree).exists() {
            std::process::exit(UNSEEN);
        }
        return remove_tree(Path::new(&tree)).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let (tree, closed) = (dir.path().join("a"), dir.path().join("a/b"));
    fs::create_dir_all(closed.join("c")).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    if [dir.path(), &tree, &closed, &closed.join("c")].iter().any(|path| chown(path, Some(4001), None).is_err()) {
        remove_tree(&tree).unwrap();
    } else {
        let name = "folder::detail_tests::a_tree_that_forbids_its_owner_to_write_is_removed";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        match child.args(["--exact", name]).env(CHILD, &tree).uid(4001).output() {
            Ok(output) if output.status.code() != Some(UNSEEN) => assert!(output.status.success(), "{output:?}"),
            _ => return eprintln!("{name}: skipped: another user sees neither this program nor its folder"),
        }
    }
    assert!(!tree.exists());
}

/// The place was empty when the process was killed, and someone has made a folder there since.
#[test]
fn a_replaced_folder_is_not_put_back_over_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    let this = Maker::this().to_string();
    let old = dir.path().join(format!(".out.replaced.2147483632-{}.1", this.split_once('-').unwrap().1));
    for folder in [&old, &dir.path().join("out")] {
        fs::create_dir(folder).unwrap();
    }
    fs::write(old.join("f"), "x").unwrap();
    assert_eq!(sweep_folders(dir.path()), 0);
    assert!(old.join("f").exists() && !dir.path().join("out/f").exists());
}

#[test]
fn an_entry_of_another_file_system_cannot_be_kept() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("f");
    fs::write(&from, "x").unwrap();
    let here = fs::metadata(dir.path()).unwrap().dev();
    let elsewhere = |folder: &&str| fs::metadata(folder).is_ok_and(|meta| meta.is_dir() && meta.dev() != here);
    let other =
        ["/dev/shm", "/tmp", "/var/tmp", "."].into_iter().filter(elsewhere).find_map(|p| tempfile::tempdir_in(p).ok());
    let Some(other) = other else {
        return eprintln!("an_entry_of_another_file_system_cannot_be_kept: skipped: no second file system to write to");
    };
    let error = carry(&from, &other.path().join("f")).unwrap_err();
    assert!(matches!(&error, FolderError::CannotKeep { path, .. } if *path == from), "{error:?}");
}

/// What is under one name only would be lost with it.
#[test]
fn other_names_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("folder/f"), "x").unwrap();
    assert!(!has_other_name(&at("folder/f")) && !has_other_name(&at("folder")) && !has_other_name(&at("none")));
    fs::hard_link(at("folder/f"), at("second")).unwrap();
    assert!(has_other_name(&at("folder/f")) && has_other_name(&at("folder")) && has_other_name(&at("second")));
    fs::write(at("folder/g"), "x").unwrap();
    assert!(!has_other_name(&at("folder")), "one of its files has no other name");
}

#[test]
fn a_sweep_leaves_files_and_opens_closed_folders() {
    let dir = tempfile::tempdir().unwrap();
    let this = Maker::this().to_string();
    let file = dir.path().join(format!(".lost.replaced.2147483632-{}.1", this.split_once('-').unwrap().1));
    fs::write(&file, "no folder").unwrap();
    assert_eq!(sweep_folders(dir.path()), 0);
    assert!(file.exists() && !dir.path().join("lost").exists());

    remove_tree(&dir.path().join("none")).unwrap();
    assert!(remove_tree(&file).is_err());
    let deep = dir.path().join("a/b/c");
    fs::create_dir_all(&deep).unwrap();
    for path in [&deep, &dir.path().join("a/b")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o500)).unwrap();
    }
    open_up(&dir.path().join("a"));
    assert_eq!(fs::metadata(&deep).unwrap().mode() & 0o777, 0o700);
}
