//! Plans a prompt of 200 tokens and a decode step after it, without a cache: `cargo run -p kvmanager --example 01_plan_a_prompt`.

use genie_types::Variant;
use kvmanager::{KvForm, KvState, Plan, Policy, Request, Variants, plan};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    for plan in run()? {
        print!("{plan}");
    }
    Ok(())
}

/// The plan of the prompt, and that of the token after it.
pub fn run() -> Result<[Plan; 2], Box<dyn Error>> {
    let variants = [Variant::new(1, 512)?, Variant::new(8, 512)?, Variant::new(64, 512)?];
    let variants = Variants::new(variants, KvForm::Concat, None)?;
    let prompt = Request { n_new: 200, ..Request::default() };
    let prefill = plan(&KvState::default(), &[prompt], &variants, &Policy::Lenient)?;

    // All 200 rows are in the cache now.
    let state = KvState { n_past: 200, n_valid_kv: 200, ..KvState::default() };
    let token = Request { n_past: 200, n_new: 1, ..Request::default() };
    Ok([prefill, plan(&state, &[token], &variants, &Policy::Lenient)?])
}
