//! Sequences beside each other: mixed wishes for logits, one taken out and put back, the rows that are counted.

use kvmanager::{LogitsRequest, SeqId};
use proptest::prelude::*;

use super::bundle::{Form, VOCAB};
use super::run::{engine, ids, truth};
use crate::{EngineConfig, ModelHash, SeqRows, SequenceModel, Snapshot, TokenModel};

/// With a hash: the toy has no file to take one of.
fn config() -> EngineConfig {
    EngineConfig { model_hash: Some(ModelHash([7; 32])), ..super::bundle::config() }
}

const VARIANTS: &[(usize, usize)] = &[(1, 64), (4, 64), (8, 64)];

#[test]
fn logits_come_for_the_rows_that_ask() {
    let mut engine = engine(Form::plain(VARIANTS), &config());
    let (prompt, draft, piece) = (ids(&[3, 4]), ids(&[5, 6, 7]), ids(&[8, 9]));
    let rows = |seq, tokens, wanted| SeqRows { seq: SeqId(seq), tokens, wanted, prompt: false };
    let inputs = [
        rows(0, &prompt, LogitsRequest::Last),
        rows(1, &draft, LogitsRequest::Each),
        rows(2, &piece, LogitsRequest::Nothing),
    ];
    let mut found = Vec::new();
    engine.process_mixed(&inputs, &mut |input, place, row| found.push((input, place, row.to_vec()))).expect("it runs");
    let want = [(0, 1, &[3, 4][..]), (1, 0, &[5]), (1, 1, &[5, 6]), (1, 2, &[5, 6, 7])];
    let want: Vec<_> = want.iter().map(|(input, place, tokens)| (*input, *place, truth(&engine, tokens))).collect();
    assert_eq!(found, want);
    assert_eq!(engine.steps().len(), engine.layout().splits.len(), "one step");
    let budget = SequenceModel::rows(&engine);
    assert_eq!((budget.total, budget.used, budget.free()), (64, 7, 57));
    assert_eq!((SequenceModel::widths(&engine), SequenceModel::runs_together(&engine)), (vec![1, 4, 8], true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Three sequences, pieces in any order, taken out and put back under the same or another number.
    #[test]
    fn a_parked_sequence_goes_on_where_it_was(
        ops in prop::collection::vec((0_usize..3, 1_usize..5, 0_u8..4), 1..14),
        scatter in any::<bool>(),
    ) {
        let mut engine = engine(Form { scatter, ..Form::plain(VARIANTS) }, &config());
        let mut given: [Vec<u32>; 3] = Default::default();
        let mut parked: [Option<Snapshot>; 3] = Default::default();
        for (step, (which, n, what)) in ops.into_iter().enumerate() {
            let seq = SeqId(which as u8);
            if what == 0 && parked[which].is_none() && !given[which].is_empty() {
                let before = SequenceModel::rows(&engine).used;
                parked[which] = Some(engine.snapshot_of(seq).expect("it can be saved"));
                let freed = engine.remove(seq, 0..usize::MAX).expect("it is there");
                prop_assert_eq!((freed, SequenceModel::rows(&engine).used), (given[which].len(), before - freed));
                continue;
            }
            if let Some(snapshot) = parked[which].take() {
                engine.restore_sequence(seq, &snapshot).expect("it fits");
            }
            let tokens: Vec<u32> = (0..n).map(|i| ((step * 7 + i * 3 + which) % VOCAB) as u32).collect();
            given[which].extend(&tokens);
            let mut found = Vec::new();
            let tokens = ids(&tokens);
            let input = SeqRows { seq, tokens: &tokens, wanted: LogitsRequest::Last, prompt: false };
            engine.process_mixed(&[input], &mut |_, _, row| found = row.to_vec()).expect("it runs");
            prop_assert_eq!(found, truth(&engine, &given[which]));
        }
    }
}

#[test]
fn a_sequence_in_use_is_not_overwritten() {
    let mut engine = engine(Form::plain(VARIANTS), &config());
    engine.process(&ids(&[1, 2, 3])).expect("it runs");
    let snapshot = engine.snapshot_of(SeqId(0)).expect("it can be saved");
    let error = engine.restore_sequence(SeqId(0), &snapshot).expect_err("it has rows");
    assert!(error.to_string().contains("bad cache image") || format!("{error:?}").contains("already"), "{error}");
    assert_eq!(engine.process(&ids(&[4])).expect("it goes on").to_vec(), truth(&engine, &[1, 2, 3, 4]));
    engine.restore_sequence(SeqId(9), &snapshot).expect("another is free");
    assert_eq!(engine.transcript_of(SeqId(9)).map(|t| t.tokens().to_vec()), Some(ids(&[1, 2, 3])));
}

#[test]
fn sequences_that_begin_alike_share_rows_again_when_they_are_restored() {
    let mut engine = engine(Form::plain(VARIANTS), &config());
    let prompt: Vec<u32> = (0..20).map(|i| (i * 5 % VOCAB) as u32).collect();
    engine.process(&ids(&prompt)).expect("it runs");
    let others = [SeqId(1), SeqId(2)];
    for (seq, n) in others.into_iter().zip([19, 12]) {
        engine.share(SeqId(0), seq, 0..n).expect("it is there");
        let tokens = ids(&[u32::from(seq.0)]);
        let input = SeqRows { seq, tokens: &tokens, wanted: LogitsRequest::Last, prompt: false };
        engine.process_mixed(&[input], &mut |_, _, _| ()).expect("it runs");
    }
    let all = [SeqId(0), SeqId(1), SeqId(2)];
    let saved = all.map(|seq| engine.snapshot_of(seq).expect("it can be saved"));
    let used = SequenceModel::rows(&engine).used;
    engine.reset().expect("it empties");
    for (seq, snapshot) in all.into_iter().zip(&saved) {
        let (before, takes) = (SequenceModel::rows(&engine).used, engine.rows_to_restore(snapshot));
        engine.restore_sequence(seq, snapshot).expect("it fits");
        assert_eq!(SequenceModel::rows(&engine).used - before, takes);
    }
    assert_eq!((used, SequenceModel::rows(&engine).used), (22, 22));
    for (seq, n) in others.into_iter().zip([19, 12]) {
        let (tokens, mut found) = (ids(&[6, 7]), Vec::new());
        let input = SeqRows { seq, tokens: &tokens, wanted: LogitsRequest::Last, prompt: false };
        engine.process_mixed(&[input], &mut |_, _, row| found = row.to_vec()).expect("it runs");
        let whole: Vec<u32> = prompt[..n].iter().copied().chain([u32::from(seq.0), 6, 7]).collect();
        assert_eq!(found, truth(&engine, &whole));
    }
}
