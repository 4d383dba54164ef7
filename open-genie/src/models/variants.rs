//! The context lengths that a model is compiled for by default.

/// Longest context that is compiled without being asked for: its cache is allocated when a model is opened.
const LONGEST: usize = 8192;
/// Context if neither the model nor the caller names one.
const USUAL: usize = 4096;
/// Contexts below the longest, so that short conversations run on short graphs.
const SHORTER: [usize; 2] = [512, 2048];
/// The cache may take this part of the memory.
const PART_OF_MEMORY: u64 = 4;

/// Context lengths to compile, ascending: the longest is what is `wanted`, else the positions that the model was trained for,
/// at most 8,192 and at most what a quarter of the memory holds in keys and values.
pub fn context_lengths(
    wanted: Option<usize>,
    trained: Option<usize>,
    cache_bytes_per_token: u64,
    memory_bytes: Option<u64>,
) -> Vec<u32> {
    let fits = memory_bytes.map_or(LONGEST as u64, |bytes| bytes / PART_OF_MEMORY / cache_bytes_per_token.max(1));
    let fits = usize::try_from(fits).unwrap_or(usize::MAX).max(SHORTER[0]);
    let longest = wanted.unwrap_or_else(|| trained.unwrap_or(USUAL).min(LONGEST).min(fits)).max(1);
    let shorter = SHORTER.into_iter().filter(|&length| length < longest);
    shorter.chain([longest]).map(|length| u32::try_from(length).unwrap_or(u32::MAX)).collect()
}

/// The memory of this machine, in bytes; `None` where the system does not say.
pub fn memory_bytes() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        let info = rustix::system::sysinfo();
        Some(info.totalram as u64 * u64::from(info.mem_unit))
    }
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_longest_context_is_the_trained_one_as_far_as_memory_goes() {
        // A Llama-3.2-1B: 32 KiB a token in f16.
        assert_eq!(context_lengths(None, Some(131_072), 32 << 10, Some(24 * GIB)), [512, 2048, 8192]);
        assert_eq!(context_lengths(None, Some(2048), 32 << 10, Some(24 * GIB)), [512, 2048]);
        assert_eq!(context_lengths(None, Some(256), 32 << 10, Some(24 * GIB)), [256]);
        // A Llama-2-7B takes 512 KiB a token: a quarter of 8 GiB holds 4,096.
        assert_eq!(context_lengths(None, Some(8192), 512 << 10, Some(8 * GIB)), [512, 2048, 4096]);
        assert_eq!(context_lengths(None, None, 32 << 10, None), [512, 2048, 4096]);
        // However little memory there is, something runs.
        assert_eq!(context_lengths(None, Some(8192), 512 << 10, Some(1 << 20)), [512]);
    }

    #[test]
    fn a_context_that_is_asked_for_is_compiled() {
        assert_eq!(context_lengths(Some(32_768), Some(2048), 32 << 10, Some(GIB)), [512, 2048, 32_768]);
        assert_eq!(context_lengths(Some(100), Some(2048), 32 << 10, Some(GIB)), [100]);
    }
}
