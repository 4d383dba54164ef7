//! The library's timings of a run, as a tree of plain values.

use std::sync::Arc;

use qnn_sys::*;

use crate::backend::{Backend, log_failure};
use crate::convert;
use crate::error::{Error, Result};
use crate::table::{CallContext, CallError};

/// How much is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProfileLevel {
    /// Times of whole calls.
    #[default]
    Basic,
    /// Times of nodes as well.
    Detailed,
}

/// What an event's value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileUnit {
    /// Microseconds.
    Microseconds,
    /// Bytes.
    Bytes,
    /// Cycles of the chip.
    Cycles,
    /// Things.
    Count,
    /// Any other, by QNN's number.
    Other(u32),
}

/// One event and those below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileEvent {
    /// QNN's event type, e.g. 400 for an execution, 404 for a node.
    pub kind: u32,
    /// The value.
    pub value: u64,
    /// What it counts.
    pub unit: ProfileUnit,
    /// What it is about: a node's name, say.
    pub name: String,
    /// What it is made of.
    pub parts: Vec<ProfileEvent>,
}

/// Collects events of runs that are given it.
///
/// Invariant: `raw` is live, made by `backend`'s table; freed exactly once, in `drop`.
pub struct Profile {
    raw: Qnn_ProfileHandle_t,
    backend: Arc<Backend>,
}

// SAFETY: the handle is not bound to a thread; calls on it are serialised by the backend's lock.
unsafe impl Send for Profile {}
// SAFETY: as above.
unsafe impl Sync for Profile {}

/// Depth at which a tree is cut off.
const MAX_DEPTH: usize = 8;

impl Profile {
    /// Starts collecting.
    ///
    /// # Errors
    /// A library without profiles.
    pub fn new(backend: &Arc<Backend>, level: ProfileLevel) -> Result<Self> {
        let library = backend.library();
        let level = match level {
            ProfileLevel::Basic => QNN_PROFILE_LEVEL_BASIC,
            ProfileLevel::Detailed => QNN_PROFILE_LEVEL_DETAILED,
        };
        let mut raw = core::ptr::null_mut();
        let calls = backend.lock();
        // SAFETY: a live backend and an out pointer.
        unsafe { library.table.profile_create(backend.raw(), level, &raw mut raw) }
            .context(library.display_name(), || "start a profile".into())?;
        drop(calls);
        Ok(Self { raw, backend: backend.clone() })
    }

    /// What was collected so far.
    ///
    /// # Errors
    /// What the library refuses.
    pub fn events(&self) -> Result<Vec<ProfileEvent>> {
        let table = &self.backend.library().table;
        let (mut first, mut n) = (core::ptr::null::<QnnProfile_EventId_t>(), 0);
        let _calls = self.backend.lock();
        // SAFETY: a live profile and two out pointers.
        unsafe { table.profile_get_events(self.raw, &raw mut first, &raw mut n) }
            .context(self.backend.library().display_name(), || "read the profile".into())?;
        // SAFETY: on success `n` ids, owned by the profile until its next change, which the lock holds off.
        let ids = unsafe { convert::slice(first, n) }.to_vec();
        ids.into_iter().map(|id| self.event(id, 0)).collect()
    }

    fn event(&self, id: QnnProfile_EventId_t, depth: usize) -> Result<ProfileEvent> {
        let (table, shown) = (&self.backend.library().table, self.backend.library().display_name());
        let mut data = QnnProfile_EventData_t::default();
        // SAFETY: an id of this profile and an out struct.
        unsafe { table.profile_get_event_data(id, &raw mut data) }.context(shown, || "read a profile event".into())?;
        let (mut first, mut n) = (core::ptr::null::<QnnProfile_EventId_t>(), 0);
        // SAFETY: an id of this profile and two out pointers.
        let parts = match unsafe { table.profile_get_sub_events(id, &raw mut first, &raw mut n) } {
            // SAFETY: as for the top events.
            Ok(()) if depth < MAX_DEPTH => unsafe { convert::slice(first, n) }.to_vec(),
            // Some libraries return an error for a leaf.
            Ok(()) | Err(CallError::Missing(_) | CallError::Status(_)) => Vec::new(),
        };
        Ok(ProfileEvent {
            kind: data.r#type,
            value: data.value,
            unit: match data.unit {
                QNN_PROFILE_EVENTUNIT_MICROSEC => ProfileUnit::Microseconds,
                QNN_PROFILE_EVENTUNIT_BYTES => ProfileUnit::Bytes,
                QNN_PROFILE_EVENTUNIT_CYCLES => ProfileUnit::Cycles,
                QNN_PROFILE_EVENTUNIT_COUNT => ProfileUnit::Count,
                other => ProfileUnit::Other(other),
            },
            // SAFETY: a C string or null, owned by the profile.
            name: unsafe { convert::text(data.identifier) },
            parts: parts.into_iter().map(|id| self.event(id, depth + 1)).collect::<Result<_>>()?,
        })
    }

    /// A handle means something to the backend that made it only.
    pub(crate) fn check_backend(&self, backend: &Arc<Backend>) -> Result<()> {
        if Arc::ptr_eq(&self.backend, backend) {
            return Ok(());
        }
        Err(Error::Invalid {
            what: "profile".into(),
            expected: "a profile of the graph's backend".into(),
            found: "a profile of another backend".into(),
        })
    }

    pub(crate) fn raw(&self) -> Qnn_ProfileHandle_t {
        self.raw
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        let _calls = self.backend.lock();
        // SAFETY: live until here; runs that use it borrow it.
        log_failure("profileFree", unsafe { self.backend.library().table.profile_free(self.raw) });
    }
}

impl core::fmt::Debug for Profile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Profile").finish_non_exhaustive()
    }
}
