//! A thousand requests on real graphs through the serving thread, many of them cancelled or failing: slots, rows and memory return to where
//! they were. Alone in its binary, as it measures the process.

use std::path::Path;

use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family, PdGraphs, PdUpdate};
use genie_bundle::manifest::Precision;
use open_genie::serving::{Request, RunningServer, ServeError, ServeOptions};
use open_genie::{Bundle, Options, TokenId, open_backend};

/// What became of requests.
#[derive(Debug, Default)]
struct Ended {
    done: usize,
    cancelled: usize,
    failed: usize,
    refused: usize,
}

fn dice(state: &mut u64, n: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % n
}

/// `n` requests from each of four threads, a few at a time.
fn round(server: &RunningServer, n: u32) -> Ended {
    let parts = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..4_u64)
            .map(|part| {
                scope.spawn(move || {
                    let (mut ended, mut state) = (Ended::default(), part + 1);
                    let mut open = Vec::new();
                    for number in 0..n {
                        let len = 1 + dice(&mut state, 40) as u32;
                        let first = dice(&mut state, 3) as u32;
                        let mut prompt: Vec<_> = (0..len).map(|i| TokenId(40 + (first * 11 + i * 7) % 200)).collect();
                        match dice(&mut state, 10) {
                            // Beyond the vocabulary: the step fails at it.
                            0 => prompt.push(TokenId(9_999)),
                            // Longer than the context.
                            1 if number % 3 == 0 => prompt.resize(500, TokenId(50)),
                            _ => {}
                        }
                        let mut settings = server.settings();
                        settings.max_tokens = Some(dice(&mut state, 12) as usize);
                        match server.submit(Request { prompt, settings, priority: (number % 3) as i32 }) {
                            Ok(handle) => open.push(handle),
                            Err(_) => ended.refused += 1,
                        }
                        if open.len() > 5 {
                            let at = dice(&mut state, 6) as usize;
                            let handle = open.swap_remove(at);
                            if dice(&mut state, 4) == 0 {
                                drop(handle);
                                ended.cancelled += 1;
                            } else {
                                wait(handle.wait(), &mut ended);
                            }
                        }
                    }
                    open.into_iter().for_each(|handle| wait(handle.wait(), &mut ended));
                    ended
                })
            })
            .collect();
        parts.into_iter().map(|part| part.join().unwrap()).collect::<Vec<_>>()
    });
    parts.into_iter().fold(Ended::default(), |all, part| Ended {
        done: all.done + part.done,
        cancelled: all.cancelled + part.cancelled,
        failed: all.failed + part.failed,
        refused: all.refused + part.refused,
    })
}

fn wait(ended: Result<open_genie::serving::Finished, ServeError>, to: &mut Ended) {
    match ended {
        Ok(_) => to.done += 1,
        Err(ServeError::ShutDown) => panic!("the serving thread is gone"),
        Err(_) => to.failed += 1,
    }
}

/// Bytes of the process in memory; `None` where the system does not say.
fn resident_bytes() -> Option<usize> {
    let pages: usize = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

fn soak(bundle: &Path) {
    let options = ServeOptions { max_slots: 6, reserve: 8, ..ServeOptions::default() };
    let serving = Bundle::read(bundle).unwrap().open_serving(&Options::new().threads(1), options).unwrap();
    let server = serving.start().unwrap();
    let mut ended = round(&server, 125);
    let before = resident_bytes();
    for _ in 0..2 {
        let more = round(&server, 125);
        ended = Ended {
            done: ended.done + more.done,
            cancelled: ended.cancelled + more.cancelled,
            failed: ended.failed + more.failed,
            refused: ended.refused + more.refused,
        };
    }
    let all = ended.done + ended.cancelled + ended.failed + ended.refused;
    assert_eq!(all, 1_500, "{ended:?}");
    assert!(ended.done > 500 && ended.cancelled > 100 && ended.failed > 50 && ended.refused > 20, "{ended:?}");
    if let Some((before, after)) = before.zip(resident_bytes()) {
        assert!(after < before + (8 << 20), "{before} bytes after 500 requests, {after} after 1,500");
    }
    // The last that were cancelled end with the next step: none is left to wait for.
    let idle = loop {
        let counts = server.server().counts().unwrap();
        if (counts.running, counts.waiting) == (0, 0) {
            break counts.idle;
        }
        std::thread::yield_now();
    };
    let slots = server.server().slots().unwrap();
    assert_eq!(slots.len(), idle, "only rows that are kept for prompts that begin alike");
    for slot in slots {
        server.erase_slot(slot.seq).unwrap();
    }
    let counts = server.server().counts().unwrap();
    assert_eq!((counts.idle, counts.rows.used), (0, 0), "{counts:?}");
}

#[test]
fn a_thousand_requests_on_graphs_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let backend = open_backend(&Options::new()).unwrap();
    let source = folder.path().join("model");
    TestModel { seed: 7, vocab: 320, ..TestModel::tiny(Family::Llama) }.write(&source).unwrap();
    for (name, pd) in
        [("plain", None), ("fused", Some(PdGraphs { total_lens: vec![4, 8], update: PdUpdate::Graph, only: true }))]
    {
        let bundle = folder.path().join(name);
        let mut options = CompileOptions::new(&source, &bundle);
        (options.ars, options.cls, options.precision) = (vec![1, 4, 8], vec![128], Precision::F32);
        options.kinds.pd = pd;
        compiler::compile(&options, &backend, &mut compiler::Silent).unwrap();
        soak(&bundle);
    }
}
