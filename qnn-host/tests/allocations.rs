//! A run allocates nothing on the calling thread after the first.

#[path = "capi/client.rs"]
#[expect(dead_code, unused_imports, reason = "shared with the tests of the C API")]
mod client;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use client::*;

struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is the system allocator's; the counter itself allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|c| c.set(c.get() + 1));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_run_allocates_nothing() {
    let client = Client::new();
    let context = client.context();
    let small = Small::ready(&client, context, c"small", 4);
    let (x, mut y) = (floats(&small.sample()), vec![0u8; 48]);
    let input = [small.x.reading(&x)];
    let mut output = [small.y.writing(&mut y)];
    assert_eq!(client.run(small.graph, &input, &mut output), 0);
    let before = COUNT.get();
    for _ in 0..10 {
        assert_eq!(client.run(small.graph, &input, &mut output), 0);
    }
    assert_eq!(COUNT.get() - before, 0);
    // The counter does count.
    drop(std::hint::black_box(vec![1u8; 3]));
    assert!(COUNT.get() > before);
    // An output over an input allocates its scratch the first time only.
    let mut memory = x.clone();
    let start = memory.as_mut_ptr();
    let (from, mut into) = ([small.x.with(start, 64)], [small.y.with(start, 48)]);
    assert_eq!(client.run(small.graph, &from, &mut into), 0);
    let before = COUNT.get();
    assert_eq!(client.run(small.graph, &from, &mut into), 0);
    assert_eq!(COUNT.get() - before, 0);
    client.free(context);
}
