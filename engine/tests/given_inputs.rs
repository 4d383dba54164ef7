//! Inputs that come from beside the tokens: an LM head's weight from a file, and rows of embeddings from the caller.

use std::path::Path;

use engine::{EmbeddingLut, Engine, EngineConfig, EngineError, LutDtype, SeqId, TokenModel};
use genie_types::{Dtype, TokenId};
use nsp_graph::InputRole;
use testkit::{Decoder, Form, Size, distance, linked_backend};

const VOCAB: usize = Size::TINY.vocab;
const HIDDEN: usize = Size::TINY.hidden;

fn ids(tokens: &[u32]) -> Vec<TokenId> {
    tokens.iter().copied().map(TokenId).collect()
}

fn prompt(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 13 + 5) % VOCAB as u32).collect()
}

#[test]
fn a_head_takes_its_weight_from_a_file() {
    const WIDTHS: &[(usize, usize)] = &[(1, 48), (8, 48)];
    for (form, within) in [
        (Form::new(WIDTHS), 1e-5),
        (Form::new(WIDTHS).in_two(), 1e-5),
        (Form { head_ars: Some(&[1]), ..Form::new(WIDTHS).in_three() }, 1e-5),
        (Form { dtype: Dtype::F16, ..Form::new(WIDTHS).in_two() }, 1e-2),
    ] {
        let decoder = Decoder::for_type(Size::TINY, Decoder::SEED, form.dtype);
        let form = Form { head_weight_input: true, ..form };
        let folder = tempfile::tempdir().unwrap();
        let config = form.config(&decoder, form.save(&decoder, &linked_backend(), folder.path()));
        for dynamic_load in [false, true] {
            let config = EngineConfig { dynamic_load, ..config.clone() };
            let mut engine = Engine::open(&config, &linked_backend()).unwrap();
            assert_eq!(engine.layout().weights[0].info.name, "lm_head_weight");
            let head = engine.layout().splits.last().unwrap();
            assert!(head.graphs.iter().all(|graph| graph.input(InputRole::Weight(0)).is_some()));
            let mut tokens = prompt(11);
            for next in [3, 50, 1] {
                let n_past = engine.n_past();
                let off = distance(engine.process(&ids(&tokens[n_past..])).unwrap(), &decoder.logits(&tokens));
                assert!(off < within, "{form:?}: off by {off}");
                tokens.push(next);
            }
        }
    }
}

#[test]
fn the_weight_is_what_the_file_holds() {
    let decoder = Decoder::random(Size::TINY, Decoder::SEED, |x| x);
    let form = Form { head_weight_input: true, ..Form::new(&[(1, 48), (8, 48)]).in_two() };
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = form.config(&decoder, form.save(&decoder, &linked_backend(), folder.path()));
    let open = |config: &EngineConfig| Engine::open(config, &linked_backend());
    // Twice the weight, twice the logits; the file is taken from the folder that is named.
    let plain = open(&config).unwrap().process(&ids(&prompt(9))).unwrap().to_vec();
    let doubled: Vec<f32> = decoder.head.data.iter().map(|x| 2.0 * x).collect();
    let file = other.path().join("lm_head_weight.raw");
    std::fs::write(&file, form.bytes(&doubled)).unwrap();
    let elsewhere = EngineConfig { weight_folder: Some(other.path().into()), ..config.clone() };
    let twice = open(&elsewhere).unwrap().process(&ids(&prompt(9))).unwrap().to_vec();
    assert!(plain.iter().zip(&twice).all(|(a, b)| (2.0 * a - b).abs() < 1e-5), "{plain:?} {twice:?}");

    std::fs::write(&file, [0; 12]).unwrap();
    let error = open(&elsewhere).unwrap_err().to_string();
    let want = format!(
        "weight file `{}` has 12 bytes, expected {} for input `lm_head_weight`, float32 [1, 1, {VOCAB}, {HIDDEN}]",
        file.display(),
        VOCAB * HIDDEN * 4
    );
    assert_eq!(error, want);
    std::fs::remove_file(&file).unwrap();
    let error = open(&elsewhere).unwrap_err().to_string();
    assert_eq!(error, format!("weight of the LM head `{}` does not exist", file.display()));
}

/// A bundle that takes embeddings, with the decoder's table in a file.
fn embedding_bundle(form: &Form, decoder: &Decoder, folder: &Path) -> EngineConfig {
    let path = folder.join("table.raw");
    std::fs::write(&path, decoder.embed.data.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>()).unwrap();
    let embedding = Some(EmbeddingLut { path, size: HIDDEN, dtype: LutDtype::Float32 });
    EngineConfig { embedding, ..form.config(decoder, form.save(decoder, &linked_backend(), folder)) }
}

/// The decoder with more entries in its table, for the reference.
fn with_rows(decoder: &Decoder, rows: &[f32]) -> Decoder {
    let mut decoder = decoder.clone();
    decoder.embed.data.extend(rows);
    decoder.embed.dims[0] += rows.len() / HIDDEN;
    decoder
}

#[test]
fn rows_stand_in_for_tokens() {
    let decoder = Decoder::random(Size::TINY, Decoder::SEED, |x| x);
    let rows: Vec<f32> = (0..5 * HIDDEN).map(|i| (i as f32 * 0.37).sin()).collect();
    let reference = with_rows(&decoder, &rows);
    // Also on graphs without a past, which see the whole dialog again in each step.
    for form in [Form::new(&[(1, 48), (8, 48)]), Form::new(&[(48, 48)]), Form::new(&[(1, 48), (8, 48)]).in_two()] {
        let form = Form { embeds: true, ..form };
        let folder = tempfile::tempdir().unwrap();
        let mut engine = Engine::open(&embedding_bundle(&form, &decoder, folder.path()), &linked_backend()).unwrap();
        assert_eq!(engine.embedding_width(), Some(HIDDEN));
        let image = engine.add_embeddings(&rows).unwrap();
        assert_eq!(image, VOCAB as u32..VOCAB as u32 + 5);
        let mut tokens = [&prompt(4)[..], &image.clone().collect::<Vec<_>>(), &[7, 8]].concat();
        for next in [9, 10, image.start, 3] {
            let n_past = engine.n_past();
            let off = distance(engine.process(&ids(&tokens[n_past..])).unwrap(), &reference.logits(&tokens));
            assert!(off < 1e-5, "{form:?}: off by {off} at {}", tokens.len());
            tokens.push(next);
        }
        // Back into the image and on again; a second sequence shares it.
        engine.rewind(6).unwrap();
        tokens.truncate(6);
        tokens.extend([image.start + 2, 11]);
        let off = distance(engine.process(&ids(&tokens[6..])).unwrap(), &reference.logits(&tokens));
        assert!(off < 1e-5, "{form:?}: off by {off} after going back");
        let unknown = engine.process(&[TokenId(image.end)]).unwrap_err();
        assert!(matches!(unknown, EngineError::TokenOutOfRange { place: 0, .. }), "{unknown}");
        engine.reset().unwrap();
        engine.forget_embeddings();
        assert!(engine.process(&ids(&tokens)).is_err(), "the rows are gone");
        assert_eq!(engine.add_embeddings(&rows[..HIDDEN]).unwrap().start, image.end);
    }
}

#[test]
fn a_saved_dialog_keeps_what_its_cache_has_of_rows() {
    let decoder = Decoder::random(Size::TINY, Decoder::SEED, |x| x);
    let rows: Vec<f32> = (0..3 * HIDDEN).map(|i| (i as f32 * 0.53).cos()).collect();
    let form = Form { embeds: true, ..Form::new(&[(1, 48), (8, 48)]) };
    let folder = tempfile::tempdir().unwrap();
    let config = embedding_bundle(&form, &decoder, folder.path());
    let mut first = Engine::open(&config, &linked_backend()).unwrap();
    let image = first.add_embeddings(&rows).unwrap();
    let tokens = [&prompt(3)[..], &image.clone().collect::<Vec<_>>()].concat();
    first.process(&ids(&tokens)).unwrap();
    let snapshot = first.snapshot().unwrap();
    let mut second = Engine::open(&config, &linked_backend()).unwrap();
    second.restore_snapshot(&snapshot).unwrap();
    assert_eq!(second.process(&ids(&[5])).unwrap(), first.process(&ids(&[5])).unwrap());
    assert_eq!(second.history(), first.history());
    assert_eq!(second.add_embeddings(&rows).unwrap().start, image.end, "an id stands for one row only");
    assert!(second.process(&[TokenId(image.start)]).is_err(), "the row was not saved");
    // Sequences share rows as they share tokens.
    second.share(SeqId(0), SeqId(1), 0..6).unwrap();
    assert_eq!(second.transcript_of(SeqId(1)).unwrap().tokens(), ids(&tokens));
}

#[test]
fn a_model_that_takes_ids_takes_no_rows() {
    let decoder = Decoder::random(Size::TINY, Decoder::SEED, |x| x);
    let (form, folder) = (Form::new(&[(1, 48)]), tempfile::tempdir().unwrap());
    let config = form.config(&decoder, form.save(&decoder, &linked_backend(), folder.path()));
    let mut engine = Engine::open(&config, &linked_backend()).unwrap();
    assert_eq!(engine.embedding_width(), None);
    let error = engine.add_embeddings(&[0.0; HIDDEN]).unwrap_err().to_string();
    let want = "feeding rows of embeddings to graphs that take `input_ids` is not yet supported; it needs a bundle whose graphs take `inputs_embeds`";
    assert_eq!(error, want);
}
