//! Removes what killed processes left in a folder.

use std::path::Path;

use crate::temporary;

/// Removes temporary files of this crate in `folder` whose makers are dead; returns how many. Files of processes that
/// still run, and everything else, stay. A folder that cannot be listed has nothing to sweep.
pub fn sweep(folder: &Path) -> usize {
    sweep_names(folder, &|_| false)
}

/// As [`sweep`], and also what earlier releases left for the file names that `is_ours`: their temporaries,
/// `.NAME.PID.N.tmp` and `NAME.PID.part`, could as well be other programs' files.
pub fn sweep_names(folder: &Path, is_ours: &dyn Fn(&str) -> bool) -> usize {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let mut n_removed = 0;
    for entry in entries.flatten() {
        let path = entry.path();
        let is_file = || entry.file_type().is_ok_and(|kind| kind.is_file());
        // Another process may sweep the same folder: who comes second finds nothing.
        if temporary::is_left_behind(&path, is_ours) && is_file() && std::fs::remove_file(&path).is_ok() {
            n_removed += 1;
        }
    }
    n_removed
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use crate::Maker;

    #[test]
    fn files_of_the_dead_go_and_all_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let this = Maker::this().to_string();
        let (_, rest) = this.split_once('-').unwrap();
        let dead = format!("2147483632-{rest}");
        let goes =
            [format!(".a.{dead}.0.tmp"), format!(".b.c.{dead}.12.tmp"), ".dialog.json.2147483632.0.tmp".to_owned()];
        let stays = [
            format!(".a.{this}.0.tmp"),
            format!(".dialog.json.{}.7.tmp", std::process::id()),
            ".other.json.2147483632.0.tmp".to_owned(),
            "thesis.2147483632.part".to_owned(),
            ".a.tmp".to_owned(),
            "dialog.json".to_owned(),
        ];
        for name in goes.iter().chain(&stays) {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        assert_eq!(sweep_names(folder.path(), &|name| name == "dialog.json"), goes.len());
        let mut left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        let mut expected = stays.map(std::ffi::OsString::from);
        expected.sort();
        assert_eq!(left, expected);
        assert_eq!(sweep(Path::new("/no/such/folder")), 0);

        // Without a name to be sure by, an earlier release's file stays.
        for name in &goes {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        assert_eq!(sweep(folder.path()), 2);
        assert!(folder.path().join(&goes[2]).exists());
    }
}
