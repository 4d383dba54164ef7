//! Two sequences share a prompt of 20 tokens and decode together, one step for both:
//! `cargo run -p kvmanager --example 03_several_sequences`.

use genie_types::{SplitIdx, Variant};
use kvmanager::{
    InferenceStep, Keep, KvCache, KvDtype, KvError, KvForm, KvGeometry, KvOptions, Policy, SeqId, Variants,
};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let kv = run()?;
    for seq in [SeqId(0), SeqId(1)] {
        println!("sequence {} is at position {}", seq.0, kv.next_pos(seq));
    }
    println!("{} rows in the cache", kv.state().n_valid_kv);
    Ok(())
}

/// The cache after three steps that take one token of each sequence.
pub fn run() -> Result<KvCache, Box<dyn Error>> {
    let (first, second) = (SeqId(0), SeqId(1));
    let variants = [Variant::new(1, 64)?, Variant::new(8, 64)?];
    let geometry = KvGeometry::uniform(2, 4, 32, KvDtype::U8);
    let mut kv = KvCache::new(&geometry, Variants::new(variants, KvForm::Concat, None)?, KvOptions::default())?;

    for planned in kv.plan(&[(first, 20)], &Policy::Lenient)?.steps() {
        execute(&mut kv, planned)?;
    }
    kv.share(first, second, 0..20)?; // the same rows for both: no byte moves
    for _ in 0..3 {
        for planned in kv.plan(&[(first, 1), (second, 1)], &Policy::Lenient)?.steps() {
            execute(&mut kv, planned)?;
        }
    }
    Ok(kv)
}

/// Stands in for the graph. Column `i` of the step is token `columns[i].pos` of sequence `columns[i].seq`; which rows it may
/// see is in `Step::fill_mask`.
fn execute(kv: &mut KvCache, planned: &InferenceStep) -> Result<(), KvError> {
    let mut step = kv.begin(planned)?;
    for view in step.split(SplitIdx(0))?.views() {
        view.new.fill(7);
    }
    step.commit(SplitIdx(0), Keep::All)?;
    step.finish()
}
