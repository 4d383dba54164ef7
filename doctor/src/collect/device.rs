//! This machine's SoC, as a Linux kernel reports it.

use std::path::Path;

use qnn_api::Soc;

/// By `soc_id`, the kernel's own number.
pub(super) fn here(folder: &Path) -> Option<&'static Soc> {
    let text = std::fs::read_to_string(folder.join("soc_id")).ok()?;
    Soc::by_kernel_id(text.trim().parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_number_is_looked_up() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(here(dir.path()), None);
        for (text, name) in [("557\n", Some("SM8650")), ("356", Some("SM8250")), ("999999", None), ("x", None)] {
            std::fs::write(dir.path().join("soc_id"), text).unwrap();
            assert_eq!(here(dir.path()).map(|soc| soc.name), name, "{text}");
        }
    }
}
