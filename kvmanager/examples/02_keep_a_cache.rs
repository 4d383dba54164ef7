//! Plans a prompt of 40 tokens over two variants and keeps its rows, over plain buffers: all that a runtime of your own has to
//! do. `cargo run -p kvmanager --example 02_keep_a_cache`.

use genie_types::{SplitIdx, Variant};
use kvmanager::{Keep, KvCache, KvDtype, KvForm, KvGeometry, KvOptions, Policy, SeqId, Variants};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:?}", run()?.state());
    Ok(())
}

/// The cache with the rows of the prompt.
pub fn run() -> Result<KvCache, Box<dyn Error>> {
    let variants = [Variant::new(1, 128)?, Variant::new(32, 128)?];
    let geometry = KvGeometry::uniform(16, 8, 64, KvDtype::U8);
    let mut kv = KvCache::new(&geometry, Variants::new(variants, KvForm::Concat, None)?, KvOptions::default())?;
    for (i, planned) in kv.plan(&[(SeqId(0), 40)], &Policy::Lenient)?.steps().iter().enumerate() {
        println!("{}", planned.numbered(i));
        let mut step = kv.begin(planned)?;
        for view in step.split(SplitIdx(0))?.views() {
            view.new.fill(planned.n_past() as u8); // your graph reads `view.past` and writes `view.new`
        }
        step.commit(SplitIdx(0), Keep::All)?;
        step.finish()?;
    }
    Ok(kv)
}
