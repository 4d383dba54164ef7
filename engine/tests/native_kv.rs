//! A cache in the tiles of the Hexagon matrix unit, run by the embedded backend: rows go into tiles and come back, also where a
//! step or a past fills none, and everything is as with a flat cache.

use std::path::Path;

use engine::{Engine, ModeKind, Policy, TokenModel};
use genie_types::{Dtype, TokenId};
use testkit::{CacheType, Decoder, Form, Size, distance, linked_backend};

/// Heads as wide as a tile.
const SIZE: Size = Size { layers: 2, ..Size::RECORDED };
/// One-token steps with pasts of 127 and 89 rows, and a width that fills no tile either.
const WIDTHS: &[(usize, usize)] = &[(1, 90), (1, 128), (5, 90), (32, 128)];

fn ids(tokens: &[u32]) -> Vec<TokenId> {
    tokens.iter().copied().map(TokenId).collect()
}

fn prompt(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 13 + 5) % SIZE.vocab as u32).collect()
}

fn open(form: &Form, decoder: &Decoder, folder: &Path) -> Engine {
    let config = form.config(decoder, form.save(decoder, &linked_backend(), folder));
    Engine::open(&config, &linked_backend()).unwrap_or_else(|e| panic!("{form:?}: {e}"))
}

#[test]
fn tiles_change_nothing() {
    let u8_cache = CacheType::U8 { scale: 0.05 };
    for (form, within) in [
        (Form::new(WIDTHS), 1e-5),
        (Form { dtype: Dtype::F16, ..Form::new(WIDTHS) }, 1e-2),
        (Form { cache: u8_cache, ..Form::new(WIDTHS).in_three() }, 1e-5),
        (Form { cache: u8_cache, per_head: true, ..Form::new(&[(1, 128)]) }, 1e-5),
        (Form { scatter: true, ..Form::new(&[(1, 100), (8, 100)]) }, 1e-5),
        (Form { rows_only: &[8], ..Form::new(&[(1, 100), (8, 100)]).in_two() }, 1e-5),
        (Form::new(&[(70, 70)]), 1e-5),
    ] {
        let decoder = Decoder::for_type(SIZE, Decoder::SEED, form.dtype);
        let (flat_folder, tiled_folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut flat = open(&form, &decoder, flat_folder.path());
        let tiled_form = Form { native_kv: true, ..form.clone() };
        let mut tiled = open(&tiled_form, &decoder, tiled_folder.path());
        assert_eq!((flat.kv_mode(), tiled.kv_mode()), (ModeKind::SMART_MASK, ModeKind::NATIVE_KV));
        assert!(tiled.layout().native_kv);
        for policy in [Policy::Lenient, Policy::FixedVariant] {
            flat.reset().unwrap();
            tiled.reset().unwrap();
            flat.set_policy(policy.clone());
            tiled.set_policy(policy);
            // Through both contexts, then one token at a time, back, and on.
            let mut tokens = prompt(50);
            for step in 0..8 {
                let fresh = ids(&tokens[tiled.n_past()..]);
                let found = tiled.process(&fresh).unwrap().to_vec();
                assert_eq!(flat.process(&fresh).unwrap(), found, "{form:?}: step {step}");
                let off = distance(&found, &decoder.logits_kept(&tokens, |x| form.kept(x)));
                assert!(off < within, "{form:?}: off by {off} at {}", tokens.len());
                if step == 4 {
                    tokens.truncate(33);
                    flat.rewind(33).unwrap();
                    tiled.rewind(33).unwrap();
                }
                tokens.extend(prompt(1 + step * 2));
            }
        }
        let Ok(snapshot) = tiled.snapshot() else {
            assert_eq!(form.variants, [(70, 70)], "only a model without a past has no rows to save");
            continue;
        };
        // Saved rows are in no layout: a flat cache takes them, and the other way round.
        assert_eq!(snapshot.image, flat.snapshot().unwrap().image, "{form:?}");
        flat.reset().unwrap();
        flat.restore_snapshot(&snapshot).unwrap();
        assert_eq!(flat.process(&ids(&[7])).unwrap(), tiled.process(&ids(&[7])).unwrap());
    }
}

#[test]
fn heads_that_fill_no_tile_are_refused() {
    let form = Form { native_kv: true, ..Form::new(&[(1, 48)]) };
    let (decoder, folder) = (Decoder::random(Size::TINY, 1, |x| x), tempfile::tempdir().unwrap());
    let config = form.config(&decoder, form.save(&decoder, &linked_backend(), folder.path()));
    let error = Engine::open(&config, &linked_backend()).unwrap_err().to_string();
    assert_eq!(error, "native-kv cannot keep `past_key_0`: head_dim 8 does not divide into tiles of 32 by 32");
}
