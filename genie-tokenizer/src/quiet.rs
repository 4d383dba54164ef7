//! Runs the `tokenizers` crate so that a panic inside it is an error, without a word on stderr.
//!
//! The crate panics on files and texts that it did not foresee. The checks of this crate find those that are known; what
//! they miss ends here. Aborts (memory, stack) cannot be caught: the bounds in `limits` are there for them.
//!
//! *Trap*: a panic hook belongs to the whole process. Ours is put in front of the one that was there, once, and is silent
//! for a thread only while that thread runs a guarded call.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Guarded calls that this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Counts a guarded call, also while it unwinds.
struct Inside;

impl Inside {
    fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// What the call gives; a panic's message as an error.
pub(crate) fn quietly<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    install();
    let inside = Inside::enter();
    // What a panic left behind is thrown away with the call, or has locks that say so (the crate's caches).
    let result = catch_unwind(AssertUnwindSafe(call));
    drop(inside);
    result.map_err(|panic| {
        let words = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
        format!("the tokenizers library failed: {}", words.unwrap_or_else(|| "it gave no reason".into()))
    })
}

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            // A thread that ends has no count any more, and is in no guarded call.
            if DEPTH.try_with(Cell::get).unwrap_or(0) == 0 {
                before(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_words() {
        assert_eq!(quietly(|| 3), Ok(3));
        let words: Result<(), String> = quietly(|| panic!("chunk size must be non-zero"));
        assert_eq!(words.unwrap_err(), "the tokenizers library failed: chunk size must be non-zero");
        let formatted: Result<(), String> = quietly(|| panic!("{}", 7));
        assert_eq!(formatted.unwrap_err(), "the tokenizers library failed: 7");
        assert_eq!(DEPTH.get(), 0);
    }

    #[test]
    fn calls_may_nest_and_other_panics_are_heard() {
        let inner = quietly(|| {
            let _ = quietly(|| panic!("inner"));
            DEPTH.get()
        });
        assert_eq!((inner, DEPTH.get()), (Ok(1), 0));
    }
}
