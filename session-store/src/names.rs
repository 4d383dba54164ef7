//! Names and numbers of the files: the six of a session, and what their headers begin with.

/// Our snapshot's name.
pub(crate) const SNAPSHOT: &str = "open-genie.kvs";
/// Our snapshot of the other model of a dialog of two.
pub(crate) const SECOND_SNAPSHOT: &str = "open-genie.second.kvs";
/// libGenie's counters.
pub(crate) const DIALOG: &str = "dialog.json";
/// libGenie's random state.
pub(crate) const RANDOM_STATE: &str = "sampler.primary.rng";
/// libGenie's first token of the last reply.
pub(crate) const UNPROCESSED: &str = "unprocessed-data";

/// libGenie's token history.
pub(crate) fn history(slot: usize) -> String {
    format!("token-history-slot-{slot}")
}

/// libGenie's cache.
pub(crate) fn cache(slot: usize, role: &str) -> String {
    format!("kv-slot-{slot}.{role}.qnn-htp")
}

/// libGenie's cache by the name of older releases, which wrote one file for the only slot.
pub(crate) fn old_cache(role: &str) -> String {
    format!("kv-cache.{role}.qnn-htp")
}

/// The magic number of libGenie's cache file.
pub const KV_MAGIC: u32 = 0xC0DE;

/// The version of snapshots that this build writes, and the newest it reads.
pub const VERSION: u32 = 2;
