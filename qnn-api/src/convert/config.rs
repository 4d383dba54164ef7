//! Null-terminated lists of pointers to config structs, as every `create` call takes them.

/// Configs in the form that C walks. Build it, then call [`ConfigList::as_ptr`] and keep it until the call returned.
pub(crate) struct ConfigList<T> {
    items: Vec<T>,
    pointers: Vec<*const T>,
}

impl<T> ConfigList<T> {
    pub(crate) fn new(items: Vec<T>) -> Self {
        Self { items, pointers: Vec::new() }
    }

    /// Adds one, before the list is asked for.
    pub(crate) fn push(&mut self, item: T) {
        self.items.push(item);
    }

    /// The list; null when it is empty. Valid until this is dropped.
    pub(crate) fn as_ptr(&mut self) -> *mut *const T {
        if self.items.is_empty() {
            return core::ptr::null_mut();
        }
        self.pointers = self.items.iter().map(|item| &raw const *item).chain([core::ptr::null()]).collect();
        self.pointers.as_mut_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_ends_in_null() {
        let mut list = ConfigList::new(vec![7_u32, 8]);
        let first = list.as_ptr();
        // SAFETY: three entries, the last of them null.
        let entries = unsafe { core::slice::from_raw_parts(first, 3) };
        // SAFETY: the first two point at the items.
        assert_eq!(unsafe { (*entries[0], *entries[1]) }, (7, 8));
        assert!(entries[2].is_null());
        assert!(ConfigList::<u32>::new(Vec::new()).as_ptr().is_null());
    }
}
