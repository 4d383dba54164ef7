//! A decode step allocates nothing, also where it waits for the workers, on a thread that has never waited before.

use std::sync::Arc;
use std::time::{Duration, Instant};

use genie_types::{SplitIdx, Variant};
use kvmanager::{Keep, KvCache, KvDtype, KvForm, KvGeometry, KvOptions, Plan, Policy, SeqId, Variants};

fn process(kv: &mut KvCache, plan: &mut Plan, n: usize) {
    kv.plan_into(&[(SeqId(0), n)], &Policy::Lenient, kvmanager::LogitsRequest::Last, plan).unwrap();
    for planned in plan.steps() {
        let mut step = kv.begin(planned).unwrap();
        for split in (0..step.n_splits()).map(SplitIdx) {
            step.split(split).unwrap().views().for_each(|view| view.new.fill(7));
            step.commit(split, Keep::All).unwrap();
        }
        step.finish().unwrap();
    }
}

#[test]
fn a_step_that_waits_for_a_worker_does_not_allocate() {
    const N_STEPS: u32 = 20;
    let slow = Duration::from_millis(2);
    let variants = [1, 8].map(|ar| Variant::new(ar, 64).unwrap());
    let variants = Variants::new(variants, KvForm::Concat, None).unwrap();
    let options = KvOptions { n_threads: 2, ..KvOptions::default() };
    let mut kv = KvCache::new(&KvGeometry::uniform(3, 2, 8, KvDtype::U8), variants, options).unwrap();
    let mut plan = Plan::default();
    process(&mut kv, &mut plan, 11);
    process(&mut kv, &mut plan, 1);
    kv.watch_jobs(Arc::new(move |job| {
        if !job.ended {
            std::thread::sleep(slow)
        }
    }));
    let decode = move || {
        let began = Instant::now();
        let counted = allocation_counter::measure(|| (0..N_STEPS).for_each(|_| process(&mut kv, &mut plan, 1)));
        (counted, began.elapsed(), kv.state().n_past)
    };
    let (counted, took, n_past) = std::thread::spawn(decode).join().unwrap();
    assert!(took >= (N_STEPS - 1) * slow, "{took:?}: every step waits for the jobs of the one before it");
    assert_eq!((counted.count_total, n_past), (0, 12 + N_STEPS as usize), "{} bytes", counted.bytes_total);
}
