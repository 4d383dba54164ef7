//! Sessions: what is lent, what is checked, and that running allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use super::*;
use crate::fake::{self, backend, fail, take_calls};

fn graph() -> Graph {
    let context = Context::from_bytes(&backend(), b"FAKE3", &ContextOptions::default()).unwrap();
    let graph = context.graph(GRAPH).unwrap();
    take_calls();
    graph
}

#[test]
fn a_run_reads_and_writes_the_lent_buffers() {
    let mut graph = graph();
    let (ids, past, mut logits) = ([7; 16], [0; 192], [0; 24]);
    let mut session = graph.session();
    session.input(0, &ids).unwrap().input(1, &past).unwrap().output(0, &mut logits).unwrap();
    session.run().unwrap();
    session.run().unwrap();
    assert_eq!(logits, [8; 24]);
    assert_eq!(take_calls(), ["graphExecute 2 in, 1 out"; 2]);
}

#[test]
fn misfits_are_named() {
    let mut graph = graph();
    let (ids, mut logits) = ([7; 16], [0; 24]);
    let mut session = graph.session();
    let error = session.input(0, &ids[..12]).unwrap_err();
    assert_eq!(error.to_string(), format!("graph `{GRAPH}`: tensor `input_ids` takes 16 bytes, the buffer has 12"));
    let error = session.input(2, &ids).unwrap_err();
    assert_eq!(error.to_string(), format!("graph `{GRAPH}` has 2 inputs, no input 2"));
    session.input(0, &ids).unwrap().output(0, &mut logits).unwrap();
    let error = session.run().unwrap_err();
    assert_eq!(error.to_string(), format!("graph `{GRAPH}`: input `past_key_0_in` has no buffer"));
    assert!(take_calls().is_empty(), "the library was not asked");
}

#[test]
fn an_earlier_sessions_buffers_are_forgotten() {
    let mut graph = graph();
    {
        let (ids, past, mut logits) = ([7; 16], [0; 192], [0; 24]);
        let mut session = graph.session();
        session.input(0, &ids).unwrap().input(1, &past).unwrap().output(0, &mut logits).unwrap();
    }
    assert!(matches!(graph.session().run(), Err(Error::Unbound { .. })));
}

#[test]
fn an_unknown_graph_is_reported_with_the_known_ones() {
    let context = Context::from_bytes(&backend(), b"FAKE3", &ContextOptions::default()).unwrap();
    let error = context.graph("ar1").unwrap_err();
    assert_eq!(error.to_string(), "no graph `ar1` in this context");
    assert_eq!(error.hint().unwrap().to_string(), format!("it has: {GRAPH}"));
}

#[test]
fn a_failing_run_names_the_graph() {
    let mut graph = graph();
    let (ids, past, mut logits) = ([7; 16], [0; 192], [0; 24]);
    fail("graphExecute", 1100);
    let mut session = graph.session();
    let error =
        session.input(0, &ids).unwrap().input(1, &past).unwrap().output(0, &mut logits).unwrap().run().unwrap_err();
    assert_eq!(error.to_string(), format!("cannot run graph `{GRAPH}`"));
    assert_eq!(error.qnn().unwrap().call, "graphExecute");
}

#[test]
fn memory_is_registered_where_it_can_be_and_bound_by_address_otherwise() {
    struct WithFd;
    struct FdBlock(Box<dyn Block>);
    // SAFETY: a plain block; the fake does not look behind the descriptor.
    unsafe impl Block for FdBlock {
        fn start(&self) -> core::ptr::NonNull<u8> {
            self.0.start()
        }
        fn len(&self) -> usize {
            self.0.len()
        }
        fn fd(&self) -> Option<i32> {
            Some(42)
        }
    }
    impl Allocator for WithFd {
        fn allocate(&self, n_bytes: usize) -> Result<Box<dyn Block>> {
            Ok(Box::new(FdBlock(PlainMemory.allocate(n_bytes)?)))
        }
    }

    let context = Context::from_bytes(&backend(), b"FAKE3", &ContextOptions::default()).unwrap();
    let mut graph = context.graph(GRAPH).unwrap();
    let infos = graph.info().clone();
    take_calls();
    let shared = context.allocate(&WithFd, &infos.inputs[1]).unwrap();
    assert!(shared.is_shared());
    assert_eq!(take_calls(), ["memRegister 1 fd 42"]);

    let other = Context::from_bytes(&backend(), b"FAKE3", &ContextOptions::default()).unwrap();
    let foreign = other.allocate(&WithFd, &infos.inputs[1]).unwrap();
    assert!(graph.session().input_mem(1, &foreign).unwrap_err().to_string().contains("another context"));

    fail("memRegister", 8005);
    let mut ids = context.allocate(&PlainMemory, &infos.inputs[0]).unwrap();
    let mut logits = context.allocate(&WithFd, &infos.outputs[0]).unwrap();
    assert!(!ids.is_shared() && !logits.is_shared(), "no descriptor; a library that does not take it");
    ids.bytes_mut().fill(1);
    let mut session = graph.session();
    session.input_mem(0, &ids).unwrap().input_mem(1, &shared).unwrap().output_mem(0, &mut logits).unwrap();
    session.run().unwrap();
    assert_eq!(logits.bytes(), [2; 24]);
    take_calls();
    drop(shared);
    assert!(take_calls()[0].starts_with("memDeRegister 1 "));
}

#[test]
fn running_allocates_nothing() {
    let mut graph = graph();
    let (ids, past, mut logits) = ([7; 16], [0; 192], [0; 24]);
    fake::with(|state| state.quiet = true);
    let before = ALLOCATIONS.get();
    for _ in 0..10 {
        let mut session = graph.session();
        session.input(0, &ids).unwrap().input(1, &past).unwrap().output(0, &mut logits).unwrap();
        session.run().unwrap();
    }
    assert_eq!(ALLOCATIONS.get(), before);
    drop(std::hint::black_box(vec![1_u8]));
    assert_eq!(ALLOCATIONS.get(), before + 1, "the counter counts");
}

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting per thread.
struct Counting;

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) };
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_section_goes_to_the_library_as_it_is() {
    let mut graph = graph();
    graph.apply_binary_section(b"new weights").unwrap();
    assert_eq!(take_calls(), ["contextApplyBinarySection section 1, buffer 1: new weights"]);
    fail("contextApplyBinarySection", 5003);
    let error = graph.apply_binary_section(b"x").unwrap_err().to_string();
    assert!(error.contains("apply a binary section to graph"), "{error}");
}
