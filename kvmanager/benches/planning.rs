//! Time to plan a 4,096-token prompt over 12 shapes, under each policy. Target: 10 us, `cost` 1 ms.

use criterion::{Criterion, criterion_group, criterion_main};
use genie_types::Variant;
use kvmanager::{CostTable, KvForm, KvState, Policy, Request, Variants, plan};
use std::{hint::black_box, sync::Arc};

fn planning(c: &mut Criterion) {
    let specs: Vec<_> =
        [512, 1024, 2048, 4096].iter().flat_map(|&cl| [1, 32, 128].map(|ar| Variant::new(ar, cl).unwrap())).collect();
    let times = specs.iter().map(|&s| (s, 500.0 + s.ar().get() as f64 * 20.0 + s.cl().get() as f64 * 0.1));
    let table = CostTable::new(times, 300.0, 0.5).unwrap();
    let variants = Variants::new(specs, KvForm::Concat, None).unwrap();
    for policy in [Policy::Lenient, Policy::FixedVariant, Policy::Cost(Arc::new(table))] {
        c.bench_function(&format!("plan/4096x12/{}", policy.name()), |b| {
            let request = [Request { n_new: 4096, ..Request::default() }];
            b.iter(|| plan(black_box(&KvState::default()), black_box(&request), &variants, &policy).unwrap());
        });
    }
}

criterion_group!(benches, planning);
criterion_main!(benches);
