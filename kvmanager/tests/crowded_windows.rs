//! Several sequences in a group with a window: what admission says can be processed can be, and a token more is refused by
//! the plan, before anything is dropped.

use kvmanager::{
    CacheGroup, ContextLimit, Eviction, KvCache, KvForm, KvOptions, PlanError, Policy, SeqId, Variants, admit,
};

use crate::toy::{geometry, grid, process_seq, prompt};

fn cache(form: KvForm, size: usize, sinks: usize) -> KvCache {
    let specs = grid(&[1, 8], &[128]);
    let ctx = specs.iter().map(|&s| (s, 32)).collect();
    let swa = CacheGroup { prefix: "swa_".to_owned(), form, ctx, long: Eviction::Window { size, sinks } };
    let variants = Variants::with_groups(specs, vec![CacheGroup::plain(form), swa], None).unwrap();
    KvCache::new(&geometry(2), variants, KvOptions::default()).unwrap()
}

#[test]
fn what_admission_promises_is_kept() {
    let mut n_full = 0;
    for form in [KvForm::Concat, KvForm::Scatter] {
        for (size, sinks) in [(9, 2), (12, 0), (16, 0), (5, 1)] {
            // Some tokens of three sequences, the second with a prefix of the first.
            for (a, b, c) in [(20, 14, 11), (3, 30, 2), (9, 1, 25), (12, 12, 12)] {
                let mut kv = cache(form, size, sinks);
                let mut texts = [prompt(a, 1), Vec::new(), Vec::new()];
                process_seq(&mut kv, SeqId(0), &texts[0]);
                kv.share(SeqId(0), SeqId(1), 0..a.min(6)).unwrap();
                texts[1] = texts[0][..a.min(6)].to_vec();
                for (seq, n) in [(1, b), (2, c)] {
                    let what = format!("{form:?}, window {size}, {sinks} sinks, {a} {b} {c}, sequence {seq}");
                    let admitted = admit(&kv.state_of(SeqId(seq)), kv.variants());
                    let n = n.min(admitted.n_fit);
                    if n > 0 {
                        let fresh = prompt(n, u32::from(seq) + 5);
                        process_seq(&mut kv, SeqId(seq), &fresh);
                        texts[usize::from(seq)].extend(fresh);
                    }
                    let found = admit(&kv.state_of(SeqId(seq)), kv.variants());
                    if let ContextLimit::Rows { .. } = found.bound {
                        let more = [(SeqId(seq), found.n_fit + 1)];
                        let refused = kv.plan(&more, &Policy::Lenient).unwrap_err();
                        let by_group = matches!(&refused, PlanError::GroupFull { prefix, .. } if prefix == "swa_");
                        n_full += usize::from(by_group);
                        assert!(by_group || matches!(refused, PlanError::NoRoom { .. }), "{what}: {refused}");
                    }
                    if found.n_fit > 0 {
                        process_seq(&mut kv, SeqId(seq), &prompt(found.n_fit, 9));
                    }
                    // The group's slots are not more than there are, and each sequence has its whole window.
                    assert!(kv.cells(1).unwrap().n_used() <= 32, "{what}");
                    for other in 0..=seq {
                        let next = kv.next_pos(SeqId(other));
                        let from = (next + 1).saturating_sub(size);
                        assert_eq!(
                            kv.cells(1).unwrap().count(SeqId(other), from..next),
                            next - from,
                            "{what}: {other}"
                        );
                    }
                }
            }
        }
    }
    assert!(n_full > 3, "the group was full {n_full} times only");
}

#[test]
fn a_batch_beyond_the_slots_is_refused_before_it_begins() {
    let mut kv = cache(KvForm::Concat, 16, 0);
    process_seq(&mut kv, SeqId(0), &prompt(20, 1));
    process_seq(&mut kv, SeqId(1), &prompt(10, 2));
    let wanted = [(SeqId(0), 1), (SeqId(1), 12)];
    let plan = kv.plan(&wanted, &Policy::Lenient).unwrap();
    assert_eq!(plan.n_tokens(), 13);
    let three = [(SeqId(0), 1), (SeqId(1), 12), (SeqId(2), 9)];
    assert!(kv.plan(&three, &Policy::Lenient).is_err(), "15 and 15 rows leave 1 of 31 for the third");
    assert_eq!((kv.next_pos(SeqId(0)), kv.next_pos(SeqId(1)), kv.next_pos(SeqId(2))), (20, 10, 0));
}
