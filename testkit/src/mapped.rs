//! Files that this process has mapped.

use std::path::Path;

/// Bytes of a file that are mapped now, as `/proc/self/maps` has them.
///
/// # Panics
/// There is no such list: not on Linux.
pub fn mapped_bytes(path: &Path) -> u64 {
    let address = |hex: &str| u64::from_str_radix(hex, 16).expect("addresses are hexadecimal");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux lists what is mapped");
    let of_file = maps.lines().filter(|line| line.ends_with(&*path.to_string_lossy()));
    let ranges = of_file.filter_map(|line| line.split_whitespace().next()?.split_once('-'));
    ranges.map(|(from, to)| address(to) - address(from)).sum()
}
