//! Runs every example. They name no crate of ours except `genie-types` and `kvmanager`.

#[allow(dead_code)] // the example's `main`
#[path = "../examples/02_keep_a_cache.rs"]
mod keep_a_cache;
#[allow(dead_code)] // the example's `main`
#[path = "../examples/01_plan_a_prompt.rs"]
mod plan_a_prompt;
#[allow(dead_code)] // the example's `main`
#[path = "../examples/03_several_sequences.rs"]
mod several_sequences;

use kvmanager::{InferenceStep, SeqId};

#[test]
fn a_prompt_is_planned_without_a_cache() {
    let widths =
        plan_a_prompt::run().unwrap().map(|plan| plan.steps().iter().map(InferenceStep::ar).collect::<Vec<_>>());
    assert_eq!(widths, [vec![64, 64, 64, 8], vec![1]]);
}

#[test]
fn the_cache_alone_plans_and_runs_over_plain_buffers() {
    let state = keep_a_cache::run().unwrap().state();
    assert_eq!((state.n_past, state.n_valid_kv), (40, 40));
}

#[test]
fn sequences_that_share_a_prompt_decode_in_one_step() {
    let kv = several_sequences::run().unwrap();
    assert_eq!([SeqId(0), SeqId(1)].map(|seq| kv.next_pos(seq)), [23, 23]);
    assert_eq!(kv.state().n_valid_kv, 20 + 2 * 3, "the prompt's rows are stored once");
}

#[test]
fn it_needs_nothing_else_of_ours() {
    let examples = [
        include_str!("../examples/01_plan_a_prompt.rs"),
        include_str!("../examples/02_keep_a_cache.rs"),
        include_str!("../examples/03_several_sequences.rs"),
    ];
    for example in examples {
        let mut crates: Vec<_> =
            example.lines().filter_map(|line| line.strip_prefix("use ")?.split("::").next()).collect();
        crates.dedup();
        assert_eq!(crates, ["genie_types", "kvmanager", "std"]);
    }
    let own = include_str!("../Cargo.toml");
    let (_, own) = own.split_once("[dependencies]").unwrap();
    let (own, _) = own.split_once("\n[").unwrap();
    let ours = ["engine", "qnn-", "nsp-graph", "compiler", "dialog", "genie-cli"];
    assert!(!own.lines().any(|line| ours.iter().any(|name| line.starts_with(name))), "{own}");
}
