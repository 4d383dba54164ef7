//! How much memory there is for weights.

/// Bytes that can be taken without what is in use being written to disk, pages of files being given up for them; with a limit
/// on the process's group, what is left of that. `None` where the system does not say.
#[cfg(target_os = "linux")]
pub(crate) fn available() -> Option<u64> {
    let mut system = sysinfo::System::new().ok()?;
    system.refresh_memory();
    let free = Some(system.available_memory()).filter(|&bytes| bytes > 0);
    // Pages of files count against a group's limit, but are given up for others.
    let in_group = system.cgroup_limits().map(|limits| limits.total_memory.saturating_sub(limits.rss));
    free.into_iter().chain(in_group).min()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn available() -> Option<u64> {
    None
}

/// Whether `len` bytes are to be read into that much memory: a quarter more must be there, for caches and what else grows.
pub(crate) fn has_room(available: u64, len: u64) -> bool {
    len.saturating_add(len / 4) <= available
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_room_for_a_byte_and_not_for_everything() {
        if let Some(available) = available() {
            assert!(has_room(available, 1));
            assert!(!has_room(available, available));
        }
        assert!(has_room(1000, 800) && !has_room(1000, 801));
        assert!(!has_room(1000, u64::MAX));
    }
}
