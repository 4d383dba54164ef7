//! Names of requests, replies and calls: unlike any other, without a meaning.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);
static NEXT: AtomicU64 = AtomicU64::new(0);

/// 24 hexadecimal digits behind the prefix.
pub(crate) fn new(prefix: &str) -> String {
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let [a, b] = &*KEYS;
    format!("{prefix}{:016x}{:08x}", a.hash_one(n), b.hash_one(n) as u32)
}

/// Seconds since 1970, as replies carry them.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn no_two_are_alike() {
        let all: HashSet<String> = (0..10_000).map(|_| super::new("x-")).collect();
        assert_eq!(all.len(), 10_000);
        assert!(all.iter().all(|id| id.len() == 26));
    }
}
