//! Plans a prompt of 40 tokens over two shapes and keeps its rows: all that a runtime of your own has to do.

use genie_types::{Ar, Cl, SplitIdx, VariantSpec};
use kvmanager::{KvDtype, KvForm, KvGeometry, KvManager, KvOptions, Policy, Variants};

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shape = |ar, cl| Some(VariantSpec::new(Ar::new(ar)?, Cl::new(cl)?));
    let shapes = [shape(1, 128).ok_or("zero")??, shape(32, 128).ok_or("zero")??];
    let geometry = KvGeometry::uniform(16, 8, 64, KvDtype::U8);
    let mut kv = KvManager::new(&geometry, Variants::new(shapes, KvForm::Concat, None)?, KvOptions::default())?;
    for (i, step) in kv.plan(40, &Policy::Serve)?.steps().iter().enumerate() {
        kv.prepare(step)?;
        for view in kv.split(SplitIdx(0))?.views() {
            view.new.fill(step.n_past as u8); // your graph reads `view.past` and writes `view.new`
        }
        kv.commit(SplitIdx(0), step)?;
        kv.advance(step)?;
        println!("{}", step.numbered(i));
    }
    Ok(())
}
