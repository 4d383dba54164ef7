//! The small files of a bundle.

use genie_bundle::{Calibration, GenieConfig, MANIFEST_FILE, Manifest};

use super::places::{check_message, file, folder};

/// Genie's config. A relative path in it stands below a folder that has none of the files.
pub(super) fn config(bytes: &[u8]) {
    match GenieConfig::from_json(&String::from_utf8_lossy(bytes), folder()) {
        Ok(config) => {
            assert!(config.context().size > 0, "a context of no tokens was accepted");
            if let Err(error) = config.check_files() {
                check_message(&error);
            }
        }
        Err(error) => check_message(&error),
    }
}

/// The manifest, and what it says of files that are not there.
pub(super) fn manifest(bytes: &[u8]) {
    file(MANIFEST_FILE, bytes);
    match Manifest::read(folder()) {
        Ok(manifest) => {
            if let Err(error) = manifest.verify_files(folder()) {
                check_message(&error);
            }
        }
        Err(error) => check_message(&error),
    }
}

/// A calibration: what is read is written again alike.
pub(super) fn calibration(bytes: &[u8]) {
    match Calibration::parse(bytes) {
        Ok(calibration) => assert!(Calibration::parse(calibration.to_json().as_bytes()).is_ok()),
        Err(error) => check_message(&error),
    }
}

/// The sniffer of file kinds.
pub(super) fn file_kind(bytes: &[u8]) {
    let path = file("some-file", bytes);
    assert!(!file_io::FileKind::of(&path).to_string().is_empty());
}
