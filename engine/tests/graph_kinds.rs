//! Kinds of graphs beside the plain ones: graphs of which only cache rows come out, LM heads narrower than the decoder's
//! steps, an index of each row. Each bundle runs on the embedded backend and equals plain code.

use std::path::Path;

use engine::{DumpOptions, Engine, EngineConfig, Policy, SeqId, SeqTokens, TokenModel};
use genie_types::{Dtype, TokenId};
use nsp_graph::GraphKind;
use testkit::{Decoder, Form, Size, distance, linked_backend, mapped_bytes};

const VOCAB: usize = Size::TINY.vocab;

fn tiny() -> Decoder {
    Decoder::random(Size::TINY, Decoder::SEED, |x| x)
}

fn ids(tokens: &[u32]) -> Vec<TokenId> {
    tokens.iter().copied().map(TokenId).collect()
}

fn prompt(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 13 + 5) % VOCAB as u32).collect()
}

fn open(form: &Form, folder: &Path) -> Engine {
    let config = form.config(&tiny(), form.save(&tiny(), &linked_backend(), folder));
    Engine::open(&config, &linked_backend()).unwrap_or_else(|e| panic!("{form:?}: {e}"))
}

/// The graphs that ran, by AR and split.
fn ran(engine: &Engine) -> Vec<(usize, usize)> {
    let parts = |name: &str| {
        let numbers: Vec<usize> = name.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
        (numbers[0], numbers[2])
    };
    engine.steps().names().map(parts).collect()
}

/// Prompts of many lengths, then a few greedy tokens, to the context's end, each step against the model without a cache.
fn equals_plain_code(form: &Form) {
    let (tiny, folder) = (tiny(), tempfile::tempdir().unwrap());
    let mut engine = open(form, folder.path());
    for policy in [Policy::Lenient, Policy::FixedVariant] {
        engine.set_policy(policy);
        engine.reset().unwrap();
        let most = engine.admission().n_fit;
        for n in [1, 9, 27, most - 1] {
            engine.reset().unwrap();
            let (mut tokens, mut fresh) = (prompt(n), prompt(n));
            loop {
                let found = engine.process(&ids(&fresh)).unwrap().to_vec();
                let off = distance(&found, &tiny.logits(&tokens));
                assert!(off < 1e-5, "{form:?}: off by {off} at {} of {n}", tokens.len());
                if engine.admission().n_fit == 0 || tokens.len() == n + 2 {
                    break;
                }
                let best = (0..VOCAB).max_by(|&a, &b| found[a].total_cmp(&found[b])).unwrap() as u32;
                tokens.push(best);
                fresh = vec![best];
            }
        }
    }
    // All logits of a prompt, and a prompt without any.
    engine.reset().unwrap();
    let tokens = prompt(13);
    engine.prefill(&ids(&tokens[..5])).unwrap();
    let mut n_rows = 0;
    let mut row = |place: usize, logits: &[f32]| {
        assert!(distance(logits, &tiny.logits(&tokens[..6 + place])) < 1e-5, "{form:?}: row {place}");
        n_rows += 1;
    };
    engine.process_rows(&ids(&tokens[5..]), &mut row).unwrap();
    assert_eq!(n_rows, 8);
    // A draft keeps what its judge keeps.
    let draft = ids(&prompt(3));
    let draft = SeqTokens { seq: SeqId(0), tokens: &draft };
    let whole = [&tokens[..], &prompt(3)].concat();
    let mut judge = |rows: &[&[f32]]| {
        for (i, row) in rows.iter().enumerate() {
            assert!(distance(row, &tiny.logits(&whole[..14 + i])) < 1e-5, "{form:?}: draft row {i}");
        }
        vec![true, false, false]
    };
    match engine.verify_draft(draft, &mut judge) {
        Ok(kept) => assert_eq!((kept, engine.n_past()), (1, 14)),
        // Where only one-token graphs have logits, no draft fits a step.
        Err(error) => assert!(error.to_string().contains("draft"), "{error}"),
    }
}

const WIDTHS: &[(usize, usize)] = &[(1, 32), (8, 32), (1, 48), (8, 48)];

#[test]
fn prompts_run_on_graphs_of_which_only_cache_rows_come_out() {
    for form in [Form::new(WIDTHS), Form::new(WIDTHS).in_two(), Form::new(WIDTHS).in_three(), Form::new(WIDTHS).cut(2)]
    {
        equals_plain_code(&Form { rows_only: &[8], ..form.clone() });
        equals_plain_code(&Form { rows_only: &[8], scatter: true, ..form });
    }
    equals_plain_code(&Form { rows_only: &[8], ..Form::new(&[(1, 48), (4, 48), (8, 48)]).in_three() });

    let folder = tempfile::tempdir().unwrap();
    let form = Form { rows_only: &[8], ..Form::new(&[(1, 48), (8, 48)]).in_two() };
    let mut engine = open(&form, folder.path());
    let kinds: Vec<_> = engine.layout().splits[0].graphs.iter().map(|g| g.kind).collect();
    assert_eq!(kinds, [GraphKind::Decoder, GraphKind::DecoderPrefill]);
    assert_eq!(engine.layout().gives_logits, [true, false]);
    // The last token runs on a graph with logits, and so do all whose logits are asked for.
    engine.process(&ids(&prompt(16))).unwrap();
    assert_eq!(ran(&engine), [(8, 1), (8, 1), (1, 1), (1, 2)]);
    engine.clear_steps();
    engine.prefill(&ids(&prompt(8))).unwrap();
    assert_eq!(ran(&engine), [(8, 1)]);
    engine.clear_steps();
    engine.process_rows(&ids(&prompt(2)), &mut |_, _| ()).unwrap();
    assert_eq!(ran(&engine), [(1, 1), (1, 2), (1, 1), (1, 2)]);
}

#[test]
fn a_head_of_one_row_serves_wide_decoders() {
    for form in [Form::new(WIDTHS).in_two(), Form::new(WIDTHS).in_three(), Form::new(WIDTHS).cut(2)] {
        equals_plain_code(&Form { head_ars: Some(&[1]), ..form });
    }
    equals_plain_code(&Form { head_ars: Some(&[2]), ..Form::new(&[(2, 48), (8, 48)]).in_two() });

    let folder = tempfile::tempdir().unwrap();
    let form = Form { head_ars: Some(&[1]), ..Form::new(&[(1, 48), (8, 48)]).in_two() };
    let mut engine = open(&form, folder.path());
    let notes: Vec<String> = engine.layout().note_lines().collect();
    assert_eq!(notes, ["graph `ar1_cl48_2_of_2` also computes the logits of ar8_cl48, whose LM head is missing"]);
    for policy in [Policy::Lenient, Policy::Genie] {
        engine.set_policy(policy);
        engine.reset().unwrap();
        engine.clear_steps();
        engine.process(&ids(&prompt(16))).unwrap();
        assert_eq!(ran(&engine), [(8, 1), (8, 1), (1, 2)], "the last row goes through the head");
        engine.clear_steps();
        engine.process_rows(&ids(&prompt(3)), &mut |_, _| ()).unwrap();
        assert_eq!(ran(&engine), [(8, 1), (1, 2), (1, 2), (1, 2)], "each row goes through the head");
    }
}

#[test]
fn sequences_share_a_step_and_a_narrow_head() {
    let folder = tempfile::tempdir().unwrap();
    let form = Form { head_ars: Some(&[1]), ..Form::new(&[(1, 48), (8, 48)]).in_two() };
    let mut engine = open(&form, folder.path());
    let (a, b) = (ids(&prompt(3)), ids(&[9, 2, 40, 7]));
    let inputs = [SeqTokens { seq: SeqId(0), tokens: &a }, SeqTokens { seq: SeqId(1), tokens: &b }];
    let mut off = Vec::new();
    let want = [tiny().logits(&prompt(3)), tiny().logits(&[9, 2, 40, 7])];
    engine.process_batch(&inputs, &mut |input, logits| off.push(distance(logits, &want[input]))).unwrap();
    assert!(off.len() == 2 && off.iter().all(|&off| off < 1e-5), "{off:?}");
    assert_eq!(ran(&engine), [(8, 1), (1, 2), (1, 2)]);
}

#[test]
fn scatter_graphs_take_the_slot_of_each_row() {
    for form in [Form::new(WIDTHS), Form::new(WIDTHS).in_three(), Form::new(WIDTHS).with_window_group(32)] {
        equals_plain_code(&Form { scatter: true, slot_per_row: true, ..form });
    }
    equals_plain_code(&Form {
        scatter: true,
        slot_per_row: true,
        per_head: true,
        rows_only: &[8],
        head_ars: Some(&[1]),
        ..Form::new(&[(1, 48), (4, 48), (8, 48)]).in_three()
    });
}

#[test]
fn a_narrow_head_in_float16_takes_half_of_the_bytes() {
    let form = Form { dtype: Dtype::F16, head_ars: Some(&[1]), ..Form::new(&[(1, 48), (8, 48)]).in_two() };
    let decoder = Decoder::for_type(Size::TINY, Decoder::SEED, Dtype::F16);
    let folder = tempfile::tempdir().unwrap();
    let config: EngineConfig = form.config(&decoder, form.save(&decoder, &linked_backend(), folder.path()));
    let mut engine = Engine::open(&config, &linked_backend()).unwrap();
    let logits = engine.process(&ids(&prompt(14))).unwrap();
    let off = distance(logits, &decoder.logits(&prompt(14)));
    assert!(off < 1e-2, "{off}");
}

#[test]
fn binaries_that_are_loaded_on_demand_give_the_same_logits() {
    let form = Form::new(&[(1, 48), (8, 48)]).in_three();
    let folder = tempfile::tempdir().unwrap();
    let config = form.config(&tiny(), form.save(&tiny(), &linked_backend(), folder.path()));
    let mut kept = Engine::open(&config, &linked_backend()).unwrap();
    let config = EngineConfig { dynamic_load: true, ..config };
    let mut freed = Engine::open(&config, &linked_backend()).unwrap();
    assert_eq!((kept.executor().loaded(), freed.executor().loaded()), (None, None), "nothing before the first step");
    for tokens in [ids(&prompt(11)), ids(&[3]), ids(&[50])] {
        assert_eq!(kept.process(&tokens).unwrap(), freed.process(&tokens).unwrap());
        assert_eq!(freed.executor().loaded(), Some(2), "the LM head ran last");
    }
    freed.prefill(&ids(&[1, 2])).unwrap();
    assert_eq!(freed.executor().loaded(), Some(1), "no logits were wanted");
    // A binary that has gone meanwhile is named, and the step is taken back.
    std::fs::remove_file(folder.path().join("part1.bin")).unwrap();
    let error = freed.process(&ids(&[4])).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("part1.bin"), "{error}: {cause}");
    assert_eq!(freed.n_past(), 15);
}

#[test]
#[cfg(target_os = "linux")]
fn binaries_are_mapped_as_they_are_loaded() {
    let form = Form::new(&[(1, 48), (8, 48)]).in_three();
    let folder = tempfile::tempdir().unwrap();
    let config = form.config(&tiny(), form.save(&tiny(), &linked_backend(), folder.path()));
    let mapped = || -> Vec<usize> {
        let is_mapped = |i: &usize| mapped_bytes(&folder.path().join(format!("part{i}.bin"))) > 0;
        (1..=3).filter(is_mapped).collect()
    };
    // The embedded backend maps them in any case; without `use_mmap` what holds whole huge pages moves later.
    let mut logits = Vec::new();
    for (use_mmap, dynamic_load, want) in
        [(true, true, &[3][..]), (false, true, &[3]), (true, false, &[1, 2, 3]), (false, false, &[1, 2, 3])]
    {
        let config = EngineConfig { use_mmap, dynamic_load, mmap_budget_mb: 25, ..config.clone() };
        let mut engine = Engine::open(&config, &linked_backend()).unwrap();
        logits.push(engine.process(&ids(&prompt(11))).unwrap().to_vec());
        assert_eq!(mapped(), want, "mapped {use_mmap}, on demand {dynamic_load}");
        drop(engine);
        assert!(mapped().is_empty(), "contexts are freed");
    }
    assert!(logits.iter().all(|row| *row == logits[0]));
}

#[test]
fn tensors_are_dumped_as_libgenie_lays_them_out() {
    let form = Form { rows_only: &[8], dtype: Dtype::F16, ..Form::new(&[(1, 48), (8, 48)]) };
    let decoder = Decoder::for_type(Size::TINY, Decoder::SEED, Dtype::F16);
    let folder = tempfile::tempdir().unwrap();
    let config = form.config(&decoder, form.save(&decoder, &linked_backend(), folder.path()));
    let out = folder.path().join("a/dump");
    let all = DumpOptions { tensors: true, specs: true, outputs: true, last: 2, ..DumpOptions::new(&out) };
    let config = EngineConfig { dump: Some(all), ..config };
    let mut engine = Engine::open(&config, &linked_backend()).unwrap();
    engine.process(&ids(&prompt(12))).unwrap();
    let logits = engine.process(&ids(&[7])).unwrap().to_vec();
    engine.process(&ids(&[8])).unwrap();
    let file = |name: &str| std::fs::read(out.join("text_primary").join(name));
    let ids_of = |name: &str| -> Vec<u32> {
        file(name).unwrap().chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
    };
    // 12 tokens: 8, then 3 and padding, then the last one on the graph with logits.
    assert_eq!(ids_of("ar8_cl48_1_of_1/000_in_input_ids"), prompt(8));
    assert_eq!(ids_of("ar8_cl48_1_of_1/001_in_input_ids")[..3], prompt(11)[8..]);
    assert_eq!(ids_of("ar1_cl48_1_of_1/002_in_input_ids"), prompt(12)[11..]);
    assert!(file("ar1_cl48_1_of_1/003_in_input_ids").is_err(), "the range of steps ends at 2");
    assert_eq!(file("ar8_cl48_1_of_1/000_out_past_key_0_out").unwrap().len(), 2 * 8 * 8 * 2);
    assert!(file("ar8_cl48_1_of_1/000_out_logits").is_err() && file("logits/001").is_err());
    assert_eq!(file("logits/002").unwrap(), file("ar1_cl48_1_of_1/002_out_logits").unwrap());
    // Logits have no range of steps.
    let written = file("logits/003").unwrap();
    let written = written.chunks(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32());
    assert_eq!(written.collect::<Vec<_>>(), logits);
    assert!(file("logits/004").is_ok() && file("logits/005").is_err());
    let table = file("position_ids_cos.f16.dat").unwrap();
    assert_eq!((table.len(), &table[..2]), (48 * 4 * 2, &half::f16::ONE.to_le_bytes()[..]));
    let spec = String::from_utf8(file("spec.ar8_cl48_1_of_1.json").unwrap()).unwrap();
    assert!(spec.contains(r#"{ "name": "past_key_0_in", "dims": [1, 2, 8, 40], "bitwidth": 2,"#), "{spec}");

    // A folder that cannot be made ends the dump, not the model.
    let config = EngineConfig {
        dump: Some(DumpOptions { specs: true, ..DumpOptions::new(folder.path().join("part1.bin")) }),
        ..config
    };
    assert_eq!(Engine::open(&config, &linked_backend()).unwrap().process(&ids(&prompt(12))).unwrap().len(), VOCAB);
}
