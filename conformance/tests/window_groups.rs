//! A cache group with a window under policy `genie` on the host: libGenie's slots through the engine, saved and restored, rewound,
//! at the end of the context, and where a step writes over rows.

use std::sync::Arc;

use conformance::backends;
use engine::{Engine, EngineConfig, Eviction, Policy, Snapshot, TokenModel};
use genie_types::{Dtype, TokenId};
use qnn_api::Backend;
use testkit::{Decoder, Form, Size};

const VARIANTS: &[(usize, usize)] = &[(1, 128), (8, 128)];

fn ids(range: std::ops::Range<usize>) -> Vec<TokenId> {
    range.map(|i| TokenId((i * 37 + i * i * 11 + 5) as u32 % Size::TINY.vocab as u32)).collect()
}

struct Rig {
    config: EngineConfig,
    backend: Arc<Backend>,
    folder: tempfile::TempDir,
}

/// 40 slots, and a window of `size` rows of which `reserved` are kept.
fn rig(size: usize, reserved: usize) -> Rig {
    let (decoder, backend) = (Decoder::for_type(Size::TINY, 3, Dtype::F32), backends::linked());
    let folder = tempfile::tempdir().unwrap();
    let form = Form { scatter: true, ..Form::new(VARIANTS) }.with_window_group(40);
    let mut config = form.config(&decoder, form.save(&decoder, &backend, folder.path()));
    config.long_context = vec![("swa_".into(), Eviction::Window { size, sinks: reserved })];
    config.policy = Policy::Genie;
    Rig { config, backend, folder }
}

impl Rig {
    fn open(&self) -> Engine {
        Engine::open(&self.config, &self.backend).unwrap()
    }
}

/// Positions of the group's rows.
fn held(engine: &Engine) -> Vec<usize> {
    let mut held: Vec<usize> = engine.cells(1).unwrap().used().map(|(_, cell)| cell.pos).collect();
    held.sort_unstable();
    held
}

fn go_on(engine: &mut Engine, range: std::ops::Range<usize>) -> Vec<Vec<f32>> {
    range.map(|i| engine.process(&ids(i..i + 1)).unwrap().to_vec()).collect()
}

#[test]
fn a_saved_dialog_goes_on_as_if_never_saved() {
    for (size, reserved) in [(12, 0), (20, 4), (36, 0)] {
        let rig = rig(size, reserved);
        let mut straight = rig.open();
        straight.process(&ids(0..43)).unwrap();
        let file = rig.folder.path().join("saved.kvs");
        straight.snapshot().unwrap().write(&file).unwrap();
        let mut restored = rig.open();
        restored.process(&ids(5..30)).unwrap();
        restored.restore_snapshot(&Snapshot::read(&file).unwrap()).unwrap();
        assert_eq!(held(&restored), held(&straight));
        // Rows may lie in other slots, so sums may round otherwise.
        for (found, want) in go_on(&mut restored, 43..70).iter().zip(&go_on(&mut straight, 43..70)) {
            let off = found.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 1e-4, "window {size}, {reserved} reserved: off by {off}");
        }
        assert_eq!(held(&restored), held(&straight));
    }
}

#[test]
fn a_dialog_goes_back_as_far_as_its_window_is_there() {
    let rig = rig(12, 0);
    let mut engine = rig.open();
    engine.process(&ids(0..43)).unwrap();
    let want = go_on(&mut engine, 43..44);
    assert_eq!(held(&engine).first(), Some(&32));
    engine.rewind(43).unwrap();
    for (found, want) in go_on(&mut engine, 43..44).iter().zip(&want) {
        let off = found.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 1e-4, "off by {off}");
    }
    let refused = engine.rewind(20).unwrap_err().to_string();
    assert!(refused.contains("20"), "{refused}");
    assert_eq!(engine.n_past(), 44);
    engine.rewind(0).unwrap();
    assert_eq!((engine.n_past(), held(&engine).len()), (0, 0));
    engine.process(&ids(0..43)).unwrap();
    assert_eq!(go_on(&mut engine, 43..44), want, "from the beginning again");
}

#[test]
fn a_dialog_ends_where_the_default_group_does() {
    let mut engine = rig(36, 0).open();
    engine.process(&ids(0..60)).unwrap();
    let said = go_on(&mut engine, 60..127).len();
    assert_eq!((said, engine.n_past()), (67, 127));
    // libGenie runs one more step, whose logits it discards.
    let error = engine.process(&ids(127..128)).unwrap_err().to_string();
    assert!(error.contains("gives up at 127 past tokens with a chunk of 1"), "{error}");
    assert_eq!((engine.n_past(), held(&engine).last()), (127, Some(&126)), "it is where it was");
}

#[test]
fn a_step_without_free_slots_writes_over_rows_and_the_window_then_reaches_further_back() {
    // As recorded on libGenie: 43 tokens, the last 7 in slots 0 to 6; a piece of 5 has no 5 slots in a row.
    let mut engine = rig(36, 0).open();
    engine.process(&ids(0..24)).unwrap();
    go_on(&mut engine, 24..43);
    engine.process(&ids(43..53)).unwrap();
    // Positions 36 to 40 were in slots 0 to 4, then 43 to 47 were.
    let left: Vec<usize> = (8..36).chain(41..43).chain(48..53).collect();
    assert_eq!(held(&engine), left);
    go_on(&mut engine, 53..54);
    assert_eq!(held(&engine).len(), 36);
    assert_eq!(held(&engine)[0], 8, "35 rows and one, though position 8 is 45 tokens back");
}
