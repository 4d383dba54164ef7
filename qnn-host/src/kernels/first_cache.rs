//! The first-level data cache of this CPU.

use std::sync::OnceLock;

/// What a CPU is taken to have that does not say.
const USUAL: usize = 32 << 10;

/// Its bytes.
pub(crate) fn first_cache_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| reported().unwrap_or(USUAL))
}

/// As `cpuid` reports it: leaf 4, or where that is empty its twin of AMD.
#[cfg(target_arch = "x86_64")]
fn reported() -> Option<usize> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    const LEAF: u32 = 4;
    const LEAF_OF_AMD: u32 = 0x8000_001d;
    // A leaf that is not there may show another one's numbers.
    let has = |leaf: u32| __cpuid(leaf & 0x8000_0000).eax >= leaf;
    [LEAF, LEAF_OF_AMD].into_iter().filter(|&leaf| has(leaf)).find_map(|leaf| {
        // The first data cache is number 0.
        let cache = __cpuid_count(leaf, 0);
        let (kind, level) = (cache.eax & 31, cache.eax >> 5 & 7);
        let [line, parts, ways] = [cache.ebx & 0xfff, cache.ebx >> 12 & 0x3ff, cache.ebx >> 22].map(|n| n as usize + 1);
        (kind == 1 && level == 1).then(|| line * parts * ways * (cache.ecx as usize + 1))
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn reported() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_cpu_has_one_of_a_plausible_size() {
        let bytes = first_cache_bytes();
        assert!((8 << 10..=1 << 20).contains(&bytes), "{bytes}");
    }

    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn it_is_what_the_kernel_says_of_some_core() {
        let sizes: Vec<usize> = (0..1024)
            .map_while(|cpu| {
                std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/cache/index0/size")).ok()
            })
            .filter_map(|text| text.trim().strip_suffix('K')?.parse().ok())
            .collect();
        assert!(sizes.is_empty() || sizes.contains(&(first_cache_bytes() >> 10)), "{sizes:?}");
    }
}
