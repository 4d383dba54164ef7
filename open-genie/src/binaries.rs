//! Which backend a context binary is for, by its first bytes; files that are none are named for what they are.

use std::path::{Path, PathBuf};

use file_io::FileKind;
use qnn_host::container::NEWEST_VERSION;

use crate::Error;
use crate::options::{BackendChoice, Options};

impl Options {
    /// These options with the backend for these binaries; see [`BackendChoice::for_binaries`].
    ///
    /// # Errors
    /// Those of [`BackendChoice::for_binaries`].
    pub fn for_binaries<P: AsRef<Path>>(self, paths: &[P]) -> Result<Self, Error> {
        let backend = self.backend.for_binaries(paths)?;
        Ok(self.backend(backend))
    }
}

impl BackendChoice {
    /// The backend for these binaries: [`BackendChoice::OfBundle`] becomes the one that their first bytes show, another
    /// choice is checked against them.
    ///
    /// # Errors
    /// [`Error::NoBinary`] for a file that is no context binary, [`Error::OtherBackend`] for one of another backend,
    /// [`Error::NewerBinary`] for one of a format to come, [`Error::MixedBinaries`].
    pub fn for_binaries<P: AsRef<Path>>(&self, paths: &[P]) -> Result<Self, Error> {
        let mut chosen = self.clone();
        let mut first: Option<(&Path, FileKind)> = None;
        for path in paths {
            let path = path.as_ref();
            let kind = FileKind::of(path);
            self.check(path, &kind)?;
            if let Some((other, found)) = &first
                && found.is_context_binary()
                && kind.is_context_binary()
                && std::mem::discriminant(found) != std::mem::discriminant(&kind)
            {
                let files = [other.to_path_buf(), path.to_owned()];
                return Err(Error::MixedBinaries { files, found: [Box::new(found.clone()), Box::new(kind)] });
            }
            chosen = match (chosen, &kind) {
                (Self::OfBundle, FileKind::HostBinary { .. }) => Self::Embedded,
                (Self::OfBundle, FileKind::HtpBinary) => Self::Htp,
                (chosen, _) => chosen,
            };
            first = first.or(Some((path, kind)));
        }
        Ok(if chosen == Self::OfBundle { Self::Embedded } else { chosen })
    }

    fn check(&self, path: &Path, kind: &FileKind) -> Result<(), Error> {
        // Qualcomm's formats are not public: a library of the user's choice may know what is unknown here.
        let unknown_is_fine = matches!(self, Self::Htp | Self::Library(_));
        let fails = match kind {
            FileKind::HostBinary { format } if *format > NEWEST_VERSION => {
                return Err(Error::NewerBinary { path: path.to_owned(), found: *format, newest: NEWEST_VERSION });
            }
            FileKind::HostBinary { .. } => *self == Self::Htp,
            FileKind::HtpBinary => *self == Self::Embedded,
            FileKind::Missing => return Err(Error::NoFile { path: path.to_owned() }),
            FileKind::Unknown { .. } if unknown_is_fine => false,
            _ => return Err(Error::NoBinary { path: path.to_owned(), found: Box::new(kind.clone()) }),
        };
        if fails {
            let (path, found) = (path.to_owned(), Box::new(kind.clone()));
            return Err(Error::OtherBackend { path, found, backend: self.clone() });
        }
        Ok(())
    }
}

/// What may be done about a file that stands where a bundle or a context binary should.
pub(crate) fn instead(path: &Path, found: &FileKind) -> Option<crate::Hint> {
    use crate::Hint;
    Some(match found {
        kind if kind.is_checkpoint() => Hint::CompileFirst(path.to_owned()),
        FileKind::Safetensors => Hint::CompileFirst(folder_of(path)),
        kind if kind.is_context_binary() => Hint::GiveFolder(folder_of(path)),
        FileKind::LfsPointer | FileKind::WebPage => Hint::DownloadAgain,
        FileKind::Unknown { .. } | FileKind::Empty => Hint::CopyAgain,
        _ => return None,
    })
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D7: the backend follows from the binaries; an explicit one is checked against them.
    #[test]
    fn the_backend_follows_from_the_binaries() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(dir.path().join(name), bytes).unwrap();
            dir.path().join(name)
        };
        let host = write("host.bin", &[b"\x89OGHOST\n".as_slice(), &NEWEST_VERSION.to_le_bytes()].concat());
        let newer = write("newer.bin", b"\x89OGHOST\n\x63\0\0\0");
        let htp = write("htp.bin", &[0, 0, 0, 2, 0, 0, 0, 3]);
        let other = write("other.bin", &[0xfe; 32]);
        let gguf = write("x.gguf", b"GGUF\x03\0\0\0");
        let library = BackendChoice::Library("libQnnHtp.so".into());
        let choose = |choice: &BackendChoice, paths: &[&PathBuf]| {
            let chosen = choice.for_binaries(paths).map(|chosen| chosen.to_string());
            chosen.map_err(|error| error.to_string().replace(&format!("{}/", dir.path().display()), ""))
        };
        let (auto, embedded) = (BackendChoice::OfBundle, BackendChoice::Embedded);
        let ok = |name: &str| Ok(name.to_owned());
        let fails = |text: &str| Err(text.to_owned());
        for (choice, paths, want) in [
            (&auto, &[&host][..], ok("host")),
            (&auto, &[&htp, &htp], ok("htp")),
            (&auto, &[], ok("host")),
            (&library, &[&other], ok("libQnnHtp.so")),
            (&library, &[&host], ok("libQnnHtp.so")),
            (&BackendChoice::Htp, &[&other], ok("htp")),
            (
                &auto,
                &[&other],
                fails(
                    "`other.bin` is a file of no known kind (it begins with fe fe fe fe fe fe fe fe), expected a context \
                     binary",
                ),
            ),
            (&library, &[&gguf], fails("`x.gguf` is a GGUF file, expected a context binary")),
            (
                &BackendChoice::Htp,
                &[&host],
                fails("`host.bin` is a context binary of the host backend, but backend `htp` was chosen"),
            ),
            (
                &embedded,
                &[&htp],
                fails("`htp.bin` is a context binary of Qualcomm's HTP backend, but backend `host` was chosen"),
            ),
            (
                &auto,
                &[&htp, &host],
                fails(
                    "`htp.bin` is a context binary of Qualcomm's HTP backend, but `host.bin` is a context binary of the \
                     host backend: one bundle runs on one backend",
                ),
            ),
            (
                &auto,
                &[&newer],
                fails(&format!("`newer.bin` has format version 99, this program reads up to {NEWEST_VERSION}")),
            ),
        ] {
            assert_eq!(choose(choice, paths), want);
        }
    }

    /// `file-io` knows the signature of the host backend's binaries.
    #[test]
    fn the_signature_of_host_binaries_is_known() {
        let bytes = [qnn_host::container::MAGIC.as_slice(), &7u32.to_le_bytes()].concat();
        assert_eq!(FileKind::of_bytes(&bytes), FileKind::HostBinary { format: 7 });
    }
}
