//! QNN's libraries: all copies in the searched folders, and the API versions of the first ones.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use qnn_api::library::runtime;
use qnn_api::{Library, SystemLibrary};

use super::{Environment, files};
use crate::facts::{Interfaces, LibraryFile, Machine, Place};

const SYSTEM: &str = "libQnnSystem.so";
/// Prefixes of the names of QNN's libraries.
const NAMES: [&str; 3] = ["libQnn", "libHtpPrepare", "libGenie."];

/// The machine's libraries, and the system library, if it can be opened.
pub(super) fn find(
    requested: Option<&Path>,
    environment: &Environment,
    cwd: &Path,
) -> (Machine, Option<SystemLibrary>) {
    let mut folders: Vec<(PathBuf, Place)> = Vec::new();
    let mut add = |folder: PathBuf, place| {
        if !folders.iter().any(|(known, _)| *known == folder) {
            folders.push((folder, place));
        }
    };
    if let Some(folder) = requested {
        add(folder.to_owned(), Place::Request);
    }
    if let Some(folder) = &environment.runtime {
        add(folder.clone(), Place::Runtime);
    }
    let on_path = environment.loader_path.iter().flat_map(|path| path.split(':')).filter(|folder| !folder.is_empty());
    on_path.for_each(|folder| add(cwd.join(folder), Place::LoaderPath));
    environment.system_folders.iter().for_each(|folder| add(folder.clone(), Place::System));

    let arch = environment.arch.as_str();
    let libraries: Vec<_> = folders.iter().flat_map(|(folder, place)| in_folder(folder, *place, arch)).collect();
    let mut machine = Machine {
        arch: arch.to_owned(),
        cwd: cwd.to_owned(),
        libraries,
        searched: folders.into_iter().map(|(folder, _)| folder).collect(),
        ..Machine::default()
    };
    let open_htp = |library: &LibraryFile| {
        let opened = Library::open(&library.path).map_err(|error| chain(&error))?;
        Ok(Interfaces { core: opened.core_version(), backend: opened.backend_version() })
    };
    machine.htp = machine.library(runtime::HTP).filter(|library| library.native).map(open_htp);
    // A system library for this processor reads binaries for all SoCs, whichever folder it is in.
    let native = machine.libraries.iter().find(|library| library.name == SYSTEM && library.native);
    let system = native.map(|library| SystemLibrary::open(&library.path).map_err(|error| chain(&error)));
    machine.system = system.as_ref().map(|opened| opened.as_ref().map(SystemLibrary::version).map_err(Clone::clone));
    (machine, system.and_then(Result::ok))
}

/// The error and its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn in_folder(folder: &Path, place: Place, arch: &str) -> Vec<LibraryFile> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| NAMES.iter().any(|begin| name.starts_with(begin)) && name.ends_with(".so"));
    names.sort();
    let look = |name: String| {
        let path = folder.join(&name);
        let bytes = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?.len();
        let native = machine_of(&path).is_some_and(|machine| machine == arch);
        let build = files::build_in(&path);
        Some(LibraryFile { name, path, place, bytes, native, build })
    };
    names.into_iter().filter_map(look).collect()
}

/// The architecture of an ELF file, as Rust names it.
fn machine_of(path: &Path) -> Option<&'static str> {
    let mut head = [0; 20];
    File::open(path).ok()?.read_exact(&mut head).ok()?;
    if head[..4] != *b"\x7fELF" {
        return None;
    }
    Some(match u16::from_le_bytes([head[18], head[19]]) {
        62 => "x86_64",
        183 => "aarch64",
        164 => "hexagon",
        _ => "other",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with the ELF header of a library for that processor, and a build id.
    fn fake(folder: &Path, name: &str, machine: u16, build: &str) {
        std::fs::create_dir_all(folder).unwrap();
        let mut bytes = b"\x7fELF".to_vec();
        bytes.resize(18, 0);
        bytes.extend(machine.to_le_bytes());
        bytes.extend(format!("\0{build}\0").bytes());
        std::fs::write(folder.join(name), bytes).unwrap();
    }

    #[test]
    fn folders_are_searched_in_order_and_foreign_libraries_are_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fake(&at("mine"), "libQnnHtp.so", 183, "v2.51.0.260929181845");
        fake(&at("mine"), "libQnnHtpV75Skel.so", 164, "v2.51.0.260929181845");
        fake(&at("vendor"), "libQnnHtp.so", 183, "v2.31.0.250101000000");
        fake(&at("vendor"), "libother.so", 183, "");
        let environment = Environment {
            loader_path: Some(format!("{}:{}", at("mine").display(), at("none").display())),
            system_folders: vec![at("vendor")],
            arch: "x86_64".into(),
            ..Environment::default()
        };
        let (machine, system) = find(None, &environment, dir.path());
        let names: Vec<_> = machine.libraries.iter().map(|l| (l.name.as_str(), l.place, l.native)).collect();
        let want = [
            ("libQnnHtp.so", Place::LoaderPath, false),
            ("libQnnHtpV75Skel.so", Place::LoaderPath, false),
            ("libQnnHtp.so", Place::System, false),
        ];
        assert_eq!(names, want);
        assert_eq!(machine.htp_build().unwrap().release, (2, 51, 0));
        assert!(machine.htp.is_none() && system.is_none() && machine.has_dsp());
        let (machine, _) = find(Some(&at("vendor")), &environment, dir.path());
        assert_eq!(machine.htp_build().unwrap().release, (2, 31, 0), "the requested folder comes first");
    }

    #[test]
    fn a_library_that_cannot_be_opened_has_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let machine = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
        for name in ["libQnnHtp.so", SYSTEM] {
            fake(dir.path(), name, machine, "v2.51.0.260929181845");
        }
        let environment = Environment { arch: std::env::consts::ARCH.into(), ..Environment::default() };
        let (machine, system) = find(Some(dir.path()), &environment, dir.path());
        let message = machine.htp.unwrap().unwrap_err();
        assert!(message.starts_with("cannot load library `") && message.contains("libQnnHtp.so"), "{message}");
        assert!(machine.system.unwrap().is_err() && system.is_none());
    }
}
