//! Things that are started once in a process, shared, and not started again before the last one has ended.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// What is shared, by what it is asked for.
pub(super) struct Shared<K, V> {
    list: Mutex<Vec<(K, Weak<V>)>>,
    ended: Condvar,
}

impl<K: PartialEq, V> Shared<K, V> {
    pub(super) const fn new() -> Self {
        Self { list: Mutex::new(Vec::new()), ended: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(K, Weak<V>)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that is there, or a new one. Waits while one ends: nothing holds it any more, and [`ended`](Self::ended) was not called.
    ///
    /// # Errors
    /// Those of `start`.
    pub(super) fn get<E>(&self, key: K, start: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let mut list = self.lock();
        while let Some((_, found)) = list.iter().find(|(k, _)| *k == key) {
            if let Some(found) = found.upgrade() {
                return Ok(found);
            }
            list = self.ended.wait(list).unwrap_or_else(PoisonError::into_inner);
        }
        let started = Arc::new(start()?);
        list.push((key, Arc::downgrade(&started)));
        Ok(started)
    }

    /// The end of one that [`get`](Self::get) gave out: the last that its `drop` does.
    pub(super) fn ended(&self, value: &V) {
        self.lock().retain(|(_, listed)| !std::ptr::eq(listed.as_ptr(), value));
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    static ALL: Shared<&str, Thing> = Shared::new();
    static RUNS: AtomicBool = AtomicBool::new(false);
    static STARTS: AtomicUsize = AtomicUsize::new(0);

    /// Something of which there may be one at a time, and whose end takes a while.
    struct Thing;

    impl Thing {
        fn start() -> Result<Self, ()> {
            assert!(!RUNS.swap(true, Ordering::SeqCst), "it is started while one runs");
            STARTS.fetch_add(1, Ordering::SeqCst);
            Ok(Self)
        }
    }

    impl Drop for Thing {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(5));
            assert!(RUNS.swap(false, Ordering::SeqCst), "it ends once");
            ALL.ended(self);
        }
    }

    #[test]
    fn one_is_started_only_when_the_one_before_has_ended() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20).for_each(|_| drop(ALL.get("it", Thing::start).unwrap())));
            }
        });
        let (first, again) = (ALL.get("it", Thing::start).unwrap(), ALL.get("it", Thing::start).unwrap());
        assert!(Arc::ptr_eq(&first, &again));
        let starts = STARTS.load(Ordering::SeqCst);
        drop((first, again));
        assert!(ALL.get("another", || Err::<Thing, _>("no")).is_err());
        drop(ALL.get("it", Thing::start));
        assert_eq!(STARTS.load(Ordering::SeqCst), starts + 1);
        assert_eq!(ALL.lock().len(), 0, "nothing is left behind");
    }
}
