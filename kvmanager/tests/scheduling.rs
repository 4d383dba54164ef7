//! The step as a scheduler and as a drafter use it: several sequences in one step, steps taken back, drafts verified.

mod toy;

use kvmanager::{
    Column, Columns, Eviction, InferenceStep, Keep, KvCache, KvForm, KvOptions, ModeKind, Policy, SeqId, Step,
};
use toy::*;

fn cache(form: KvForm, n_threads: usize) -> KvCache {
    let options = KvOptions { mode: ModeKind::SMART_MASK, n_threads, ..KvOptions::default() };
    KvCache::new(&geometry(1), plain(grid(&[1, 8, 32], &[64, 128]), form), options).unwrap()
}

/// The tokens of a step's columns, from the whole text of each sequence.
fn tokens_of(step: &InferenceStep, texts: &[Vec<u32>]) -> Vec<u32> {
    step.columns.iter().map(|c| texts[usize::from(c.seq.0)][c.pos]).collect()
}

/// What comes after each sequence whose columns end its text here.
fn ends<'a>(step: &'a InferenceStep, texts: &'a [Vec<u32>]) -> impl Iterator<Item = (usize, usize)> + 'a {
    let end = |c: &Column| c.pos + 1 == texts[usize::from(c.seq.0)].len();
    step.columns.iter().enumerate().filter(move |(_, c)| end(c)).map(|(i, c)| (i, usize::from(c.seq.0)))
}

/// Three sequences decode while the prompt of a fourth comes in, chunk by chunk. Some steps are taken back in their
/// middle and run again, as after a graph that failed. Each sequence gets the text it gets alone.
#[test]
fn decodes_and_a_prompt_share_steps_and_rollbacks_leave_no_trace() {
    const N_DECODE: usize = 3;
    const CHUNK: usize = 5;
    for form in [KvForm::Concat, KvForm::Scatter] {
        for n_threads in [0, 2] {
            let mut kv = cache(form, n_threads);
            let prompts: Vec<Vec<u32>> = [7, 3, 11, 23].iter().map(|&n| prompt(n, n as u32)).collect();
            let mut texts = prompts.clone();
            for (seq, text) in texts[..N_DECODE].iter_mut().enumerate() {
                text.push(process_seq(&mut kv, SeqId(seq as u8), &prompts[seq]));
            }
            for round in 0..9 {
                let ready = |seq: usize, kv: &KvCache| texts[seq].len() - kv.next_pos(SeqId(seq as u8));
                let wanted: Vec<_> = (0..texts.len())
                    .map(|seq| (SeqId(seq as u8), ready(seq, &kv).min(if seq < N_DECODE { 1 } else { CHUNK })))
                    .filter(|&(_, n)| n > 0)
                    .collect();
                let plan = kv.plan(&wanted, &Policy::Lenient).unwrap();
                for step in plan.steps() {
                    let tokens = tokens_of(step, &texts);
                    let before = kv.export().unwrap();
                    let mut first = kv.begin(step).unwrap();
                    execute(&mut first, &tokens);
                    match round % 3 {
                        0 => drop(first),
                        1 => first.rollback().unwrap(),
                        _ => {
                            first.commit(genie_types::SplitIdx(0), Keep::All).unwrap();
                            first.rollback().unwrap();
                        }
                    }
                    assert_eq!(kv.export().unwrap(), before, "round {round}");
                    let predicted = run(&mut kv, step, &tokens);
                    let next: Vec<_> = ends(step, &texts).map(|(i, seq)| (seq, predicted[i])).collect();
                    next.into_iter().for_each(|(seq, token)| texts[seq].push(token));
                }
            }
            for (text, prompt) in texts.iter().zip(&prompts) {
                let n = text.len() - prompt.len();
                assert!(n >= 4, "{n} tokens");
                assert_eq!(text[prompt.len()..], reference(&[Eviction::None], prompt, n));
            }
        }
    }
}

/// A drafter that is right for a while: the true text, spoilt from token `right` on.
fn draft(text: &[u32], n: usize, right: usize) -> Vec<u32> {
    let mut draft = reference(&[Eviction::None], text, n);
    draft[right.min(n)..].iter_mut().for_each(|token| *token = (*token + 1) % 251);
    draft
}

/// Runs the last token with a draft behind it in one step; keeps the prefix that greedy decoding agrees with. Returns the
/// tokens accepted, the model's own next one included.
fn verify(mut step: Step<'_>, tokens: &[u32]) -> Vec<u32> {
    let predicted = execute(&mut step, tokens);
    let n_right = tokens[1..].iter().zip(&predicted).take_while(|(draft, model)| draft == model).count();
    let keep: Vec<bool> = (0..tokens.len()).map(|i| i <= n_right).collect();
    finish(step, Keep::Rows(&keep));
    predicted[..=n_right].to_vec()
}

#[test]
fn verified_drafts_are_plain_greedy_decoding() {
    for form in [KvForm::Concat, KvForm::Scatter] {
        let start = prompt(9, 4);
        let mut kv = cache(form, 0);
        let mut text = start.clone();
        text.push(process(&mut kv, &start));
        let mut n_steps = 0;
        while text.len() < 60 {
            let mut tokens = vec![text[text.len() - 1]];
            tokens.extend(draft(&text, 5, n_steps % 7));
            let plan = kv.plan(&[(SeqId(0), tokens.len())], &Policy::Lenient).unwrap();
            let [planned] = plan.steps() else { panic!("a draft is one step") };
            let accepted = verify(kv.begin(planned).unwrap(), &tokens);
            assert_eq!(accepted.len(), 1 + (n_steps % 7).min(5));
            text.extend(accepted);
            assert_eq!(kv.next_pos(SeqId(0)), text.len() - 1);
            n_steps += 1;
        }
        assert_eq!(text[9..], reference(&[Eviction::None], &start, text.len() - 9));
    }
}

/// Two branches of a tree in one step: both continue the same prefix, as sequences that share it, and the loser is dropped.
#[test]
fn branches_of_a_draft_share_their_prefix() {
    let start = prompt(9, 4);
    let (main, branch) = (SeqId(0), SeqId(1));
    let mut kv = cache(KvForm::Concat, 0);
    let next = process(&mut kv, &start);
    kv.share(main, branch, 0..9).unwrap();
    let right = reference(&[Eviction::None], &start, 4);
    assert_eq!(right[0], next);
    let wrong: Vec<u32> = right.iter().map(|t| (t + 7) % 251).collect();
    let slice = |seq| (9..12).map(move |pos| Column { seq, pos });
    let columns: Columns = slice(branch).chain(slice(main)).collect();
    let step = kv.step(spec(8, 64), columns);
    let predicted = run(&mut kv, &step, &[&right[..3], &wrong[..3]].concat());
    assert_eq!(predicted[..3], right[1..4]);
    kv.keep(branch).unwrap();
    assert_eq!((kv.next_pos(branch), kv.cells(0).unwrap().n_used()), (12, 12));
    assert_eq!(process_seq(&mut kv, branch, &right[3..4]), reference(&[Eviction::None], &start, 5)[4]);
}
