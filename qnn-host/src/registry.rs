//! Handles that may be handed to a client and taken back without trust.
//!
//! A handle is a number dressed as a pointer: never dereferenced, never reused, with the kind of object in its low
//! bits. So a null, foreign, stale or mixed-up handle is found out by a look-up, not by a crash.
//!
//! ```text
//! bit  63 .. 8        7 .. 0
//!     | serial >= 1 |  kind |
//! ```

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

/// What a handle stands for. The numbers only have to differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Log = 0x11,
    Backend = 0x12,
    Device = 0x13,
    Context = 0x14,
    Graph = 0x15,
    Profile = 0x16,
    Mem = 0x17,
    SystemContext = 0x18,
}

const KIND_BITS: u32 = 8;

/// Serial numbers are shared by all registries, so that no two handles of any kind are ever alike.
static SERIAL: AtomicUsize = AtomicUsize::new(1);

/// The live objects of one kind.
pub(crate) struct Registry<T> {
    kind: Kind,
    live: RwLock<Option<HashMap<usize, Arc<T>>>>,
}

impl<T> Registry<T> {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self { kind, live: RwLock::new(None) }
    }

    /// Its kind.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Keeps an object and names it.
    pub(crate) fn add(&self, object: Arc<T>) -> *mut c_void {
        let id = SERIAL.fetch_add(1, Ordering::Relaxed) << KIND_BITS | self.kind as usize;
        self.live.write().get_or_insert_default().insert(id, object);
        std::ptr::without_provenance_mut(id)
    }

    /// The object, if the handle is a live one of this kind.
    pub(crate) fn get(&self, handle: *mut c_void) -> Option<Arc<T>> {
        self.live.read().as_ref()?.get(&handle.addr()).cloned()
    }

    /// Forgets the object; the handle is dead from now on.
    pub(crate) fn remove(&self, handle: *mut c_void) -> Option<Arc<T>> {
        self.live.write().as_mut()?.remove(&handle.addr())
    }

    /// Forgets all objects that `gone` picks.
    pub(crate) fn remove_where(&self, gone: impl Fn(&T) -> bool) {
        if let Some(live) = self.live.write().as_mut() {
            live.retain(|_, object| !gone(object));
        }
    }

    /// A live object that `pick` picks.
    pub(crate) fn find_where(&self, pick: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        self.live.read().as_ref()?.values().find(|object| pick(object)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_live_handles_of_the_kind_are_found() {
        let (a, b) = (Registry::new(Kind::Graph), Registry::new(Kind::Context));
        let (x, y) = (a.add(Arc::new(1)), a.add(Arc::new(2)));
        let z = b.add(Arc::new(3));
        assert_ne!(x, y);
        assert_eq!(a.get(x).as_deref(), Some(&1));
        assert_eq!(a.get(z), None);
        assert_eq!(a.get(std::ptr::null_mut()), None);
        assert_eq!(a.remove(x).as_deref(), Some(&1));
        assert_eq!(a.remove(x), None);
        assert_eq!(a.get(x), None);
        assert_ne!(a.add(Arc::new(4)), x, "handles are never reused");
    }

    #[test]
    fn threads_share_a_registry() {
        let all = Registry::new(Kind::Mem);
        std::thread::scope(|s| {
            for t in 0..4 {
                let all = &all;
                s.spawn(move || {
                    for i in 0..500 {
                        let h = all.add(Arc::new((t, i)));
                        assert_eq!(all.get(h).as_deref(), Some(&(t, i)));
                        assert!(all.remove(h).is_some());
                    }
                });
            }
        });
        assert_eq!(all.find_where(|_| true), None);
    }
}
