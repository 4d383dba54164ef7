//! A file or a set of files is replaced as a whole or stays byte for byte, wherever the writer fails.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use file_io::{FileError, FileSet};
use proptest::prelude::*;

/// All files of a folder, hidden ones too.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.path().is_file());
    files.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// The writer fails after any number of bytes, also in the middle of a buffer that was flushed before.
    #[test]
    fn a_writer_that_fails_leaves_the_old_file(
        old in prop::option::of(prop::collection::vec(any::<u8>(), 0..50)),
        chunks in prop::collection::vec(0..600_000_usize, 0..6),
        fails in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        if let Some(old) = &old {
            std::fs::write(&path, old).unwrap();
        }
        let before = files(folder.path());
        let written = file_io::write(&path, |out| {
            for (i, &n) in chunks.iter().enumerate() {
                out.write_all(&vec![i as u8; n])?;
            }
            if fails { Err(io::Error::other("no more")) } else { Ok(()) }
        });
        prop_assert_eq!(written.is_err(), fails);
        let new: Vec<u8> = chunks.iter().enumerate().flat_map(|(i, &n)| vec![i as u8; n]).collect();
        let expected = if fails { before } else { BTreeMap::from([("file".to_owned(), new)]) };
        prop_assert_eq!(files(folder.path()), expected);
    }

    /// A set fails while its files are written, or while they are put into their places; or it does not.
    #[test]
    fn a_set_that_fails_leaves_the_old_set(
        old in prop::collection::vec(any::<bool>(), 5),
        new in prop::collection::vec(any::<bool>(), 5),
        mark in prop::option::of(0..5_usize),
        obsolete in prop::option::of(0..5_usize),
        fails_at_file in prop::option::of(0..5_usize),
        blocked in prop::option::of(0..5_usize),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let name = |i: usize| format!("file-{i}");
        let write = |i: usize, text: &str| std::fs::write(folder.path().join(name(i)), format!("{text} {i}")).unwrap();
        old.iter().enumerate().filter(|(_, there)| **there).for_each(|(i, _)| write(i, "old"));
        let before = files(folder.path());

        let mut set = FileSet::new(folder.path());
        let mut failed = false;
        for (i, _) in new.iter().enumerate().filter(|(_, there)| **there) {
            let added = set.add(&name(i), |out| {
                out.write_all(format!("new {i}").as_bytes())?;
                if fails_at_file == Some(i) { Err(io::Error::other("no more")) } else { Ok(()) }
            });
            failed |= added.is_err();
        }
        if let Some(mark) = mark {
            set.set_mark(&name(mark));
        }
        let obsolete = obsolete.filter(|&i| !new[i]);
        if let Some(i) = obsolete {
            set.remove(&name(i));
        }
        if failed {
            drop(set);
            prop_assert_eq!(files(folder.path()), before);
            return Ok(());
        }
        // A folder that appears in a file's place after the file was written: putting it there fails.
        let blocked = blocked.filter(|&i| new[i] && !old[i]);
        if let Some(i) = blocked {
            std::fs::create_dir(folder.path().join(name(i))).unwrap();
        }
        let published = set.publish();
        prop_assert_eq!(published.is_err(), blocked.is_some());
        let mut expected = before;
        if blocked.is_none() {
            for (i, &is_new) in new.iter().enumerate() {
                if obsolete == Some(i) || (mark == Some(i) && !is_new) {
                    expected.remove(&name(i));
                }
                if is_new {
                    expected.insert(name(i), format!("new {i}").into_bytes());
                }
            }
        }
        prop_assert_eq!(files(folder.path()), expected);
    }
}

#[test]
fn files_of_a_set_may_be_given_as_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let mut set = FileSet::new(folder.path());
    set.add_bytes("a", b"12").unwrap();
    set.add_bytes("empty", b"").unwrap();
    set.publish().unwrap();
    assert_eq!(files(folder.path()), BTreeMap::from([("a".to_owned(), b"12".to_vec()), ("empty".to_owned(), vec![])]));
}

#[test]
fn a_folder_in_the_place_of_a_file_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let expected = format!("cannot write `{}`: expected a file, found a folder", folder.path().display());
    for refused in [
        file_io::write_bytes(folder.path(), b"x"),
        file_io::check_writable(folder.path()),
        file_io::NewFile::create(folder.path()).map(drop),
    ] {
        assert_eq!(refused.unwrap_err().to_string(), expected);
    }
    for path in ["", "/", "x/.."] {
        assert!(matches!(file_io::write_bytes(Path::new(path), b"x"), Err(FileError::Unfit { .. })), "{path}");
    }
}

#[test]
fn a_missing_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no");
    let path = missing.join("file");
    let expected = format!("cannot write `{}`: there is no folder `{}`", path.display(), missing.display());
    assert_eq!(file_io::write_bytes(&path, b"x").unwrap_err().to_string(), expected);
    assert_eq!(file_io::check_writable(&path).unwrap_err().to_string(), expected);
    file_io::check_folder(&path).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a check leaves nothing");
    std::fs::write(&missing, "x").unwrap();
    assert!(file_io::check_folder(&path).is_err(), "a file stands where the folder would be");
}
