//! Folders that take a place, what is kept of the old one, and what is swept.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::sweep::remove_tree;
use super::*;
use crate::Maker;

const DEAD: u32 = 0x7fff_fff0;

fn dead() -> String {
    let this = Maker::this().to_string();
    format!("{DEAD}-{}", this.split_once('-').unwrap().1)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn begin(path: &Path) -> NewFolder {
    NewFolder::create(FolderPlace::of(path).unwrap()).unwrap()
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn a_new_folder_takes_an_empty_place_only() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("a/b/out");
    let mut new = begin(&out);
    write(&new.path().join("f"), "1");
    new.sync().unwrap();
    assert_eq!(names(out.parent().unwrap()).len(), 1, "hidden until it is put");
    assert!(new.put().unwrap());
    drop(new);
    assert_eq!((names(out.parent().unwrap()), names(&out)), (vec!["out".to_owned()], vec!["f".to_owned()]));

    // A place that has been taken meanwhile.
    let mut late = begin(&out);
    assert!(!late.put().unwrap());
    write(&dir.path().join("file"), "x");
    drop(late);
    assert_eq!(fs::read_to_string(out.join("f")).unwrap(), "1");
    assert_eq!(names(out.parent().unwrap()), ["out"]);

    // An empty one, which keeps its permissions.
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    fs::set_permissions(&empty, fs::Permissions::from_mode(0o710)).unwrap();
    let mut new = begin(&empty);
    write(&new.path().join("f"), "1");
    assert!(new.put().unwrap());
    assert_eq!(fs::metadata(&empty).unwrap().mode() & 0o777, 0o710);
}

#[test]
fn folders_above_that_were_made_go_with_an_unfinished_one() {
    let dir = tempfile::tempdir().unwrap();
    let new = begin(&dir.path().join("a/b/out"));
    write(&new.path().join("deep/f"), "1");
    drop(new);
    assert!(names(dir.path()).is_empty());
    let new = begin(&dir.path().join("a/b/out"));
    write(&dir.path().join("a/other"), "someone else's");
    drop(new);
    assert_eq!(names(&dir.path().join("a")), ["other"]);
}

#[test]
fn both_ways_of_exchanging_swap_and_take_back() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    write(&out.join("f"), "old");
    let by_renames = |new: &mut NewFolder| new.exchange_by_renames().is_ok();
    let by_exchange = |new: &mut NewFolder| new.exchange().unwrap();
    for swap in [&by_renames as &dyn Fn(&mut NewFolder) -> bool, &by_exchange] {
        let mut new = begin(&out);
        write(&new.path().join("f"), "new");
        assert!(swap(&mut new));
        assert_eq!(fs::read_to_string(out.join("f")).unwrap(), "new");
        assert_eq!(fs::read_to_string(new.path().join("f")).unwrap(), "old");
        assert!(swap(&mut new));
        assert_eq!(fs::read_to_string(out.join("f")).unwrap(), "old");
        drop(new);
        assert_eq!(names(dir.path()), ["out"]);
    }
    fs::remove_dir_all(&out).unwrap();
    let mut new = begin(&out);
    assert!(!new.exchange().unwrap(), "nothing to exchange it with");
}

#[test]
fn what_the_dead_left_is_removed_or_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let (dead, this) = (dead(), Maker::this());
    let goes = [format!(".out.partial.{dead}.0"), format!(".other.partial.{dead}.3")];
    // Others may have worked in the folder that was replaced.
    let old = [format!(".out.replaced.{dead}.1"), format!(".out.exchange.{dead}.2")];
    let [old_1, old_2] = old;
    let stays = [
        old_1,
        old_2,
        format!(".out.partial.{this}.99"),
        ".out.partial-x".to_owned(),
        ".git".to_owned(),
        "out".to_owned(),
    ];
    for name in goes.iter().chain(&stays) {
        write(&dir.path().join(name).join("sub/f"), "1");
    }
    let put_back = format!(".lost.replaced.{dead}.1");
    write(&dir.path().join(put_back).join("f"), "the only one");
    // A folder that forbids to be emptied.
    let closed = dir.path().join(&goes[0]).join("sub");
    fs::set_permissions(closed, fs::Permissions::from_mode(0o500)).unwrap();
    // A file of such a name is no folder of ours.
    let file = format!(".file.partial.{dead}.1");
    write(&dir.path().join(&file), "x");
    assert_eq!(sweep_folders(dir.path()), 3);
    let mut expected: Vec<_> = stays.iter().cloned().chain([file, "lost".into()]).collect();
    expected.sort();
    assert_eq!(names(dir.path()), expected);
    assert_eq!(fs::read_to_string(dir.path().join("lost/f")).unwrap(), "the only one");
    assert_eq!(sweep_folders(Path::new("/no/such/folder")), 0);
}

/// A folder that a killed process was replacing was removed with what others had written into it meanwhile.
#[test]
fn an_old_folder_goes_or_is_shown_as_its_owner_says() {
    let dir = tempfile::tempdir().unwrap();
    let (dead, this) = (dead(), Maker::this());
    let alive = format!(".out.exchange.{this}.7");
    for (name, file) in [
        (format!(".out.exchange.{dead}.1"), "mine"),
        (format!(".out.exchange.{dead}.2"), "expendable"),
        (format!(".put.replaced.{dead}.3"), "mine"),
        (format!(".lost.replaced.{dead}.4"), "mine"),
        (alive.clone(), "expendable"),
        ("out".to_owned(), "new"),
        ("put".to_owned(), "new"),
        ("put.kept".to_owned(), "kept before"),
    ] {
        write(&dir.path().join(name).join(file), "1");
    }
    let mut kept = sweep_exchanged(dir.path(), |path| path.join("expendable").exists());
    kept.sort();
    assert_eq!(kept, ["out.kept", "put.kept.2"].map(|name| dir.path().join(name)));
    assert!(kept.iter().all(|path| path.join("mine").exists()));
    let lost = format!(".lost.replaced.{dead}.4");
    assert_eq!(names(dir.path()), [lost.as_str(), &alive, "out", "out.kept", "put", "put.kept", "put.kept.2"]);
}

/// When an exchange could not be taken back, the old folder was removed under its hidden name.
#[test]
fn what_is_kept_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    write(&out.join("f"), "old");
    let mut new = begin(&out);
    write(&new.path().join("f"), "new");
    assert!(new.exchange().unwrap());
    let kept = new.keep();
    drop(new);
    assert_eq!(kept, dir.path().canonicalize().unwrap().join("out.kept"));
    assert_eq!(fs::read_to_string(kept.join("f")).unwrap(), "old");
    assert_eq!(names(dir.path()), ["out", "out.kept"]);
}

#[test]
fn old_names_are_swept_where_they_are_ours() {
    let dir = tempfile::tempdir().unwrap();
    let alive = format!(".out.partial-{}", std::process::id());
    for name in [&format!(".out.partial-{DEAD}"), &format!(".else.partial-{DEAD}"), &alive] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    assert_eq!(sweep_old_names(dir.path(), |name| name == "out"), 1);
    assert_eq!(names(dir.path()), [format!(".else.partial-{DEAD}"), alive]);
}

#[test]
fn places_are_resolved_or_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let root = dir.path().canonicalize().unwrap();
    fs::create_dir(at("real")).unwrap();
    write(&at("file"), "x");
    symlink("real", at("link")).unwrap();
    symlink("gone", at("dangling")).unwrap();
    symlink("no/such/folder", at("nowhere")).unwrap();
    symlink("circle", at("circle")).unwrap();
    for (name, place) in [
        ("link", "real"),
        ("link/", "real"),
        ("real/.", "real"),
        ("dangling", "gone"),
        ("x/../real", "real"),
        ("new", "new"),
    ] {
        fs::create_dir_all(at("x")).unwrap();
        assert_eq!(FolderPlace::of(&at(name)).unwrap().path(), root.join(place), "{name}");
    }
    for (path, message) in [
        (PathBuf::from("/"), "`/` cannot become a new folder: it is the root folder"),
        (
            PathBuf::from("."),
            "`.` cannot become a new folder: it is the current folder, or the current folder lies in it",
        ),
        (
            PathBuf::from(".."),
            "`..` cannot become a new folder: it is the current folder, or the current folder lies in it",
        ),
        (PathBuf::new(), "`` cannot become a new folder: it has no name"),
        (at("no/such/.."), "`{dir}/no/such/..` cannot become a new folder: it has no name"),
        (PathBuf::from("/proc"), "`/proc` cannot become a new folder: a file system is mounted there"),
        (at("circle"), "`{dir}/circle` cannot become a new folder: its symbolic links lead back to themselves"),
        (
            at("nowhere"),
            "`{dir}/nowhere` cannot become a new folder: it is a symbolic link to `{dir}/no/such/folder`, in a folder \
             that does not exist",
        ),
        (at("file"), "`{dir}/file` is a text file, expected a folder or nothing"),
        (at("file/out"), "`{dir}/file` is a text file, expected a folder or nothing"),
        (at("file/a/out"), "`{dir}/file` is a text file, expected a folder or nothing"),
        (PathBuf::from("/dev/null"), "`/dev/null` is a device, expected a folder or nothing"),
    ] {
        let error = FolderPlace::of(&path).unwrap_err().to_string();
        assert_eq!(error.replace(&*root.to_string_lossy(), "{dir}"), message, "{}", path.display());
    }
}

#[test]
fn the_place_of_a_link_is_replaced_and_the_link_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (out, link) = (dir.path().join("store/v1"), dir.path().join("current"));
    write(&out.join("f"), "old");
    symlink("store/v1", &link).unwrap();
    let mut new = begin(&link);
    write(&new.path().join("f"), "new");
    assert!(new.exchange().unwrap());
    drop(new);
    assert_eq!(fs::read_to_string(link.join("f")).unwrap(), "new");
    assert!(link.is_symlink() && !out.is_symlink());
    assert_eq!((names(dir.path()).len(), names(&dir.path().join("store")).len()), (2, 1));
}

#[test]
fn carried_entries_are_in_both_folders_until_the_old_one_goes() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    fs::create_dir(&new).unwrap();
    write(&old.join("session/deep/f"), "1");
    symlink("nothing", old.join("session/link")).unwrap();
    fs::set_permissions(old.join("session/deep"), fs::Permissions::from_mode(0o500)).unwrap();
    carry(&old.join("session"), &new.join("session")).unwrap();
    let (a, b) = (old.join("session/deep/f"), new.join("session/deep/f"));
    assert_eq!(fs::metadata(a).unwrap().ino(), fs::metadata(b).unwrap().ino());
    assert!(new.join("session/link").is_symlink());
    assert_eq!(fs::metadata(new.join("session/deep")).unwrap().mode() & 0o777, 0o500);
    // Changes of the old one since: a new file, one replaced; and one replaced in the new folder after it.
    write(&old.join("session/late"), "2");
    write(&new.join("session/both"), "older");
    std::thread::sleep(std::time::Duration::from_millis(20));
    write(&old.join("session/both"), "newer");
    carry_changes(&old.join("session"), &new.join("session")).unwrap();
    assert_eq!(fs::read_to_string(new.join("session/late")).unwrap(), "2");
    assert_eq!(fs::read_to_string(new.join("session/both")).unwrap(), "newer");
    write(&old.join("session/both"), "older");
    std::thread::sleep(std::time::Duration::from_millis(20));
    write(&new.join("session/both"), "newest");
    carry_changes(&old.join("session"), &new.join("session")).unwrap();
    assert_eq!(fs::read_to_string(new.join("session/both")).unwrap(), "newest");
    remove_tree(&old).unwrap();
    assert_eq!(fs::read_to_string(new.join("session/deep/f")).unwrap(), "1");
}

#[test]
fn temporary_folders_go_in_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let temporary = NewFolder::temporary(dir.path(), "model").unwrap();
    write(&temporary.path().join("f"), "1");
    assert!(names(dir.path())[0].starts_with(".model.partial."));
    drop(temporary);
    assert!(names(dir.path()).is_empty());
    let error = NewFolder::temporary(Path::new("/proc"), "model").unwrap_err().to_string();
    assert_eq!(error, "cannot make a folder in `/proc`");
}

#[test]
fn of_many_that_want_a_place_one_gets_it() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let won: usize = std::thread::scope(|scope| {
        let make = |i: usize| {
            let out = &out;
            move || {
                let mut new = begin(out);
                write(&new.path().join("f"), &i.to_string());
                usize::from(new.put().unwrap())
            }
        };
        let threads: Vec<_> = (0..8).map(|i| scope.spawn(make(i))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(won, 1);
    assert_eq!((names(dir.path()), names(&out)), (vec!["out".to_owned()], vec!["f".to_owned()]));
}
