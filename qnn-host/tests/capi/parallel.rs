//! Several threads at once, and executions that wait.

use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use qnn_sys::*;

use crate::client::*;

/// Handles are numbers to the tests; the backend is thread safe.
#[derive(Clone, Copy)]
struct Shared<T>(T);

// SAFETY: a handle is never dereferenced, and the table may be called from any thread.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn get(&self) -> &T {
        &self.0
    }
}

#[test]
fn graphs_of_one_context_run_from_many_threads() {
    let client = Client::new();
    let context = client.context();
    let names: [&CStr; 3] = [c"a", c"b", c"c"];
    let graphs: Vec<_> = (1u32..).zip(names).map(|(rows, name)| Small::ready(&client, context, name, rows)).collect();
    let shared = Shared((&client, &graphs));
    std::thread::scope(|s| {
        for t in 0..4 {
            let shared = &shared;
            s.spawn(move || {
                let (client, graphs) = *shared.get();
                for i in 0..25 {
                    let small = &graphs[(t + i) % graphs.len()];
                    small.check(client, small.graph);
                }
            });
        }
    });
    client.free(context);
}

#[test]
#[cfg(target_os = "linux")]
fn threads_are_pinned_to_cores_that_exist() {
    use qnn_host::pool::cores;

    let before = cores();
    let last = before.last().expect("Linux tells its cores");
    let client = Client::with(&CString::new(format!("host_pin:{last},{}", before[0])).unwrap()).expect("they exist");
    let context = client.context();
    let small = Small::ready(&client, context, c"small", 3);
    small.check(&client, small.graph);
    assert_eq!(cores(), before, "the caller is free after a run");
    client.free(context);

    let Err(code) = Client::with(c"host_threads:2;host_pin:0,1023") else { panic!("core 1023 was taken") };
    let message = client.message(code);
    assert!(message.contains("expected `host_pin:` some of the cores"), "{message}");
    assert!(message.contains("found `1023`"), "{message}");
}

#[test]
fn freeing_while_others_run_is_only_an_error_for_them() {
    let client = Client::new();
    let bytes = {
        let context = client.context();
        Small::ready(&client, context, c"small", 4);
        let bytes = client.binary(context);
        client.free(context);
        bytes
    };
    let shape = {
        let context = client.context();
        let small = Small::compose(&client, context, c"shape", 4);
        client.free(context);
        small
    };
    for _ in 0..10 {
        let kept = bytes.clone();
        let context = client.load(&kept, true).unwrap();
        let graph = client.retrieve(context, c"small");
        let shared = Shared((&client, &shape, graph));
        std::thread::scope(|s| {
            for _ in 0..2 {
                let shared = &shared;
                s.spawn(move || {
                    let (client, shape, graph) = *shared.get();
                    let (x, mut y) = (floats(&shape.sample()), vec![0u8; 48]);
                    for _ in 0..50 {
                        let code = client.run(graph, &[shape.x.reading(&x)], &mut [shape.y.writing(&mut y)]);
                        assert!(matches!(code, 0 | 6001 | 6031), "{code}");
                    }
                });
            }
            std::thread::sleep(Duration::from_micros(300));
            client.free(context);
            // The bytes may change from here: a backend that still read these bytes would compute nonsense or crash.
            drop(kept);
        });
    }
}

static DONE: AtomicUsize = AtomicUsize::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn done(param: *mut c_void, status: Qnn_NotifyStatus_t) {
    assert_eq!(param.addr(), 42);
    FAILED.fetch_max(status.error, Ordering::SeqCst);
    DONE.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn waiting_executions_are_always_notified() {
    let client = Client::new();
    let context = client.context();
    let small = Small::ready(&client, context, c"small", 3);
    let x = floats(&small.sample());
    let mut outs = vec![vec![0u8; 36]; 20];
    for y in &mut outs {
        let (input, mut output) = (small.x.reading(&x), small.y.writing(y));
        let code = call!(
            client.table,
            graphExecuteAsync(
                small.graph,
                &raw const input,
                1,
                &raw mut output,
                1,
                null_mut(),
                null_mut(),
                Some(done),
                std::ptr::without_provenance_mut(42)
            )
        );
        assert_eq!(code, 0, "{}", client.message(code));
    }
    let start = Instant::now();
    while DONE.load(Ordering::SeqCst) < 20 {
        assert!(start.elapsed() < Duration::from_secs(60), "only {} came back", DONE.load(Ordering::SeqCst));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(FAILED.load(Ordering::SeqCst), 0);
    let want = reference(&small.sample());
    outs.iter().for_each(|y| expect(&as_floats(y), &want));

    // Jobs that still wait when the context is freed get an error; none is forgotten.
    for y in &mut outs {
        let (input, mut output) = (small.x.reading(&x), small.y.writing(y));
        let param = std::ptr::without_provenance_mut(42);
        let run = client.table.graphExecuteAsync.unwrap();
        // SAFETY: the buffers live until `contextFree` below has returned, and with it every notification.
        let code = unsafe {
            run(small.graph, &raw const input, 1, &raw mut output, 1, null_mut(), null_mut(), Some(done), param)
        };
        assert_eq!(code, 0);
    }
    client.free(context);
    assert_eq!(DONE.load(Ordering::SeqCst), 40);
    assert!(matches!(FAILED.load(Ordering::SeqCst), 0 | 6031), "{}", FAILED.load(Ordering::SeqCst));
    // A bad call is refused at once.
    let code = call!(
        client.table,
        graphExecuteAsync(
            small.graph,
            std::ptr::null(),
            0,
            null_mut(),
            0,
            null_mut(),
            null_mut(),
            Some(done),
            null_mut()
        )
    );
    assert_eq!(code, 6001);
}
