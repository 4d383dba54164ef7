//! A toy decoder over the public API: what a token "sees" decides its output, so any row that is missing, doubled,
//! misplaced or left over changes the text.
//!
//! A row holds its token and its position. A group's output for a token is a sum over the visible columns, read through
//! the mask and the past bytes as a graph would; the next token follows from the outputs of all groups.

#![allow(dead_code)] // each test file uses its part

use genie_types::{SplitIdx, Variant};
use kvmanager::{
    Columns, Eviction, InferenceStep, Keep, KvCache, KvDtype, KvForm, KvGeometry, KvKind, KvTensor, Policy, SeqId,
    SplitGeometry, Step, Variants,
};

pub fn spec(ar: u32, cl: u32) -> Variant {
    Variant::new(ar, cl).unwrap()
}

pub fn grid(ars: &[u32], cls: &[u32]) -> Vec<Variant> {
    cls.iter().flat_map(|&cl| ars.iter().map(move |&ar| spec(ar, cl))).collect()
}

/// One split for each group: a key and a value of one head of two float32 elements.
pub fn geometry(n_groups: usize) -> KvGeometry {
    let tensors = |group| {
        let tensor = |kind| KvTensor { group, ..KvTensor::new(kind, group, 1, 2, KvDtype::F32) };
        SplitGeometry { tensors: vec![tensor(KvKind::Key), tensor(KvKind::Value)] }
    };
    KvGeometry { splits: (0..n_groups).map(tensors).collect() }
}

/// What a visible row adds to a token's output.
fn weight(token: u32, pos: u32) -> u64 {
    u64::from(token + 1) * 1_000_003 % 9_973 * (u64::from(pos) + 7) % 99_991
}

/// The next token after outputs of all groups.
fn next(outputs: &[u64]) -> u32 {
    (outputs.iter().enumerate().map(|(g, o)| (g as u64 + 1) * o).sum::<u64>() % 251) as u32
}

/// Tokens by definition: every group sees what its rule keeps.
pub fn reference(rules: &[Eviction], prompt: &[u32], n: usize) -> Vec<u32> {
    let mut tokens = prompt.to_vec();
    for _ in 0..n {
        let pos = tokens.len() - 1;
        let sees = |rule: &Eviction, key: usize| match *rule {
            Eviction::Window { size, sinks } => key + size > pos || key < sinks,
            _ => true,
        };
        let outputs: Vec<u64> = rules
            .iter()
            .map(|rule| (0..=pos).filter(|&k| sees(rule, k)).map(|k| weight(tokens[k], k as u32)).sum())
            .collect();
        tokens.push(next(&outputs));
    }
    tokens.split_off(prompt.len())
}

fn column(view: &[u8], kind: KvKind, n: usize, col: usize) -> (u32, u32) {
    let at = |dim: usize| if kind == KvKind::Key { dim * n + col } else { col * 2 + dim };
    let read = |dim: usize| f32::from_le_bytes(view[at(dim) * 4..at(dim) * 4 + 4].try_into().unwrap()) as u32;
    (read(0), read(1))
}

/// Runs a step's graphs over the tokens of its columns; returns what each of them predicts. Nothing is committed.
pub fn execute(step: &mut Step<'_>, tokens: &[u32]) -> Vec<u32> {
    let ar = step.variant().ar().get();
    let columns = step.columns().to_vec();
    assert_eq!(columns.len(), tokens.len());
    let mut outputs = vec![vec![0; step.n_splits()]; tokens.len()];
    for group in 0..step.n_splits() {
        let rule = step.variants().groups()[group].clone();
        let (width, past_len) = (rule.ctx_of(step.variant()), rule.past_len(step.variant()));
        let mut mask = vec![false; ar * width];
        step.fill_mask(group, false, true, &mut mask).unwrap();
        let new = match rule.form {
            KvForm::Concat => width - ar,
            KvForm::Scatter => step.cache_index(group),
        };
        let mut guard = step.split(SplitIdx(group)).unwrap();
        for view in guard.views() {
            let kind = view.spec.kind;
            for i in 0..ar {
                let row = tokens.get(i).zip(columns.get(i)).map_or([f32::NAN; 2], |(t, c)| [*t as f32, c.pos as f32]);
                for (dim, x) in row.into_iter().enumerate() {
                    let at = if kind == KvKind::Key { dim * ar + i } else { i * 2 + dim };
                    view.new[at * 4..at * 4 + 4].copy_from_slice(&x.to_le_bytes());
                }
            }
            for (i, output) in outputs.iter_mut().enumerate() {
                let seen = (0..width).filter(|c| mask[i * width + c]);
                let sum: u64 = seen
                    .map(|c| match c.checked_sub(new).filter(|&j| j < ar) {
                        Some(j) => weight(tokens[j], columns[j].pos as u32),
                        None => {
                            let (token, pos) = column(view.past, kind, past_len, c);
                            weight(token, pos)
                        }
                    })
                    .sum();
                // Keys and values must agree.
                assert!(kind == KvKind::Key || output[group] == sum, "keys and values differ");
                output[group] = sum;
            }
        }
    }
    outputs.iter().map(|o| next(o)).collect()
}

/// Commits all splits and ends the step.
pub fn finish(mut step: Step<'_>, keep: Keep<'_>) {
    for split in (0..step.n_splits()).map(SplitIdx) {
        step.commit(split, keep).unwrap();
        assert!(step.fill_mask(0, 0, 1, &mut []).is_err(), "too late for a mask");
    }
    step.finish().unwrap();
}

/// Runs one step and keeps all of it; returns what each of its tokens predicts.
pub fn run(kv: &mut KvCache, step: &InferenceStep, tokens: &[u32]) -> Vec<u32> {
    let mut running = kv.begin(step).unwrap();
    let predicted = execute(&mut running, tokens);
    finish(running, Keep::All);
    predicted
}

/// Processes tokens of a sequence; returns what comes next.
pub fn process_seq(kv: &mut KvCache, seq: SeqId, tokens: &[u32]) -> u32 {
    let plan = kv.plan(&[(seq, tokens.len())], &Policy::Lenient).unwrap();
    let (mut at, mut last) = (0, 0);
    for step in plan.steps() {
        last = *run(kv, step, &tokens[at..at + step.n_process()]).last().unwrap();
        at += step.n_process();
    }
    last
}

/// Processes tokens of sequence 0; returns what comes next.
pub fn process(kv: &mut KvCache, tokens: &[u32]) -> u32 {
    process_seq(kv, SeqId(0), tokens)
}

/// A step of one more token of sequence 0, to look at what it lends.
pub fn look(kv: &KvCache, variant: Variant) -> InferenceStep {
    kv.step(variant, Columns::of(SeqId(0), kv.next_pos(SeqId(0)), 1))
}

/// Prompt in, `n` tokens out.
pub fn generate(kv: &mut KvCache, prompt: &[u32], n: usize) -> Vec<u32> {
    let mut out = vec![process(kv, prompt)];
    while out.len() < n {
        out.push(process(kv, &out[out.len() - 1..]));
    }
    out
}

pub fn prompt(n: usize, seed: u32) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 37 + seed * 101 + 5) % 251).collect()
}

pub fn plain(specs: Vec<Variant>, form: KvForm) -> Variants {
    Variants::new(specs, form, None).unwrap()
}
