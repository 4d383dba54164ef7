//! Plans a prompt of 40 tokens over two variants and keeps its rows: all that a runtime of your own has to do.

use genie_types::{SplitIdx, Variant};
use kvmanager::{Keep, KvCache, KvDtype, KvForm, KvGeometry, KvOptions, Policy, SeqId, Variants};

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let variants = [Variant::new(1, 128)?, Variant::new(32, 128)?];
    let geometry = KvGeometry::uniform(16, 8, 64, KvDtype::U8);
    let mut kv = KvCache::new(&geometry, Variants::new(variants, KvForm::Concat, None)?, KvOptions::default())?;
    for (i, planned) in kv.plan(&[(SeqId(0), 40)], &Policy::Lenient)?.steps().iter().enumerate() {
        let mut step = kv.begin(planned)?;
        for view in step.split(SplitIdx(0))?.views() {
            view.new.fill(planned.n_past() as u8); // your graph reads `view.past` and writes `view.new`
        }
        step.commit(SplitIdx(0), Keep::All)?;
        step.finish()?;
        println!("{}", planned.numbered(i));
    }
    Ok(())
}
