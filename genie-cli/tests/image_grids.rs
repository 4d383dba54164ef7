//! `--image-grid`: rows of images turn by frame, row and column, as a program has it through `Session::place_image`.

use std::path::Path;

use compiler::Family;
use compiler::testmodel::TestModel;
use engine::Grid;
use genie_types::TokenId;
use open_genie::{Options, Prompt, Session, place_images};
use serde_json::{Value, json};

use crate::program::{done, genie};

/// A bundle `plain` that takes embeddings, the same with three positions a token as `bundle`, and six rows: `rows.npy` in two rows of
/// three, `flat.raw` without an order.
fn make(folder: &Path) -> usize {
    let model = TestModel::tiny(Family::Llama);
    model.write(&folder.join("model")).unwrap();
    for bundle in ["plain", "bundle"] {
        let args =
            ["compile", "model", "-o", bundle, "--ar", "1,8", "--cl", "64", "--precision", "f32", "--inputs-embeds"];
        done(folder, &args);
    }
    let path = folder.join("bundle/genie_config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let positions = config.pointer_mut("/dialog/engine/model/positional-encoding").unwrap();
    let dim = positions["rope-dim"].as_u64().unwrap();
    let sections = [dim - 2 * (dim / 3), dim / 3, dim / 3];
    positions["rope-scaling"] = json!({"rope-type": "qwen2vl-mrope", "mrope-section": sections});
    std::fs::write(&path, config.to_string()).unwrap();
    let width = model.hidden;
    let numbers: Vec<f32> = (0..6 * width).map(|i| (i as f32 * 0.37).sin() * 2.0).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, {width}), }}\n");
    let npy = [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &bytes].concat();
    std::fs::write(folder.join("rows.npy"), npy).unwrap();
    std::fs::write(folder.join("flat.raw"), bytes).unwrap();
    width
}

fn args<'a>(bundle: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
    let plain =
        ["run", "-c", bundle, "--prompt-tokens", "3,11,9,8", "-n", "24", "--greedy", "--json", "--image-token", "11"];
    [&plain, flags].concat()
}

fn tokens(folder: &Path, bundle: &str, flags: &[&str]) -> Value {
    let record: Value = serde_json::from_slice(&done(folder, &args(bundle, flags)).stdout).unwrap();
    record["tokens"].clone()
}

/// The same through the library, with the place counted by hand.
fn by_library(folder: &Path, grid: Option<Grid>) -> Value {
    let mut session = Session::open(folder.join("bundle"), &Options::new()).unwrap();
    session.set_sampler(open_genie::SamplerSettings::argmax());
    session.set_max_tokens(Some(24));
    let rows = session.read_rows(folder.join("flat.raw")).unwrap();
    assert_eq!(rows.grid, None);
    let ids = session.add_rows(&rows).unwrap();
    let prompt = place_images(&[3, 11, 9, 8].map(TokenId), TokenId(11), &[ids]).unwrap();
    let n_bos = usize::from(session.bundle().config().context().bos.is_some());
    if let Some(grid) = grid {
        session.place_image(n_bos + 1, grid).unwrap();
    }
    let reply = session.generate(Prompt::Tokens(&prompt)).map(|token| token.unwrap().id).collect::<Vec<_>>();
    json!(reply.into_iter().flatten().map(|id| id.0).collect::<Vec<_>>())
}

#[test]
fn a_grid_is_placed_where_the_images_rows_are() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    make(folder);
    let grid = |frames, rows, columns| Grid { frames, rows, columns };
    let flat = tokens(folder, "bundle", &["--image-features", "flat.raw"]);
    assert_eq!(flat, by_library(folder, None));
    let mut differ = 0;
    for (text, grid) in [("1,2,3", grid(1, 2, 3)), ("1,3,2", grid(1, 3, 2)), ("6,1,1", grid(6, 1, 1))] {
        let found = tokens(folder, "bundle", &["--image-features", "flat.raw", "--image-grid", text]);
        assert_eq!(found, by_library(folder, Some(grid)), "{text}");
        differ += usize::from(found != flat);
    }
    assert!(differ > 0, "no grid changes a token of 24");
    // By the extents of the file alone; a model without the three positions has no use for them.
    let by_file = tokens(folder, "bundle", &["--image-features", "rows.npy"]);
    assert_eq!(by_file, by_library(folder, Some(grid(1, 2, 3))));
    let plain = tokens(folder, "plain", &["--image-features", "rows.npy"]);
    assert_eq!(plain, tokens(folder, "plain", &["--image-features", "flat.raw"]));
}

#[test]
fn grids_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    make(folder);
    for (bundle, flags, want) in [
        (
            "bundle",
            &["--image-grid", "1,2,2"][..],
            "an image of 6 rows of embeddings cannot lie in 1 frames of 2 rows of 2 columns",
        ),
        ("bundle", &["--image-grid", "1,2,3", "--image-grid", "1,2,3"], "2 grids for 1 images"),
        ("bundle", &["--image-grid", "2,3"], "expected frames, rows and columns"),
        ("plain", &["--image-grid", "1,2,3"], "mrope"),
    ] {
        let flags = [&["--image-features", "flat.raw"], flags].concat();
        let output = genie(folder, &args(bundle, &flags));
        let said = format!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        assert!(!output.status.success() && said.contains(want), "{flags:?}: {said}");
    }
}

#[test]
fn a_refused_prompt_leaves_no_image_behind() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    make(folder);
    let open = || {
        let mut session = Session::open(folder.join("bundle"), &Options::new()).unwrap();
        session.set_sampler(open_genie::SamplerSettings::argmax());
        session.set_max_tokens(Some(24));
        session
    };
    let (mut session, mut fresh) = (open(), open());
    let rows = session.read_rows(folder.join("flat.raw")).unwrap();
    let ids = session.add_rows(&rows).unwrap();
    let grid = Grid { frames: 1, rows: 2, columns: 3 };
    let too_long = [[3, 11].map(TokenId).to_vec(), vec![TokenId(8); 90]].concat();
    let prompt = place_images(&too_long, TokenId(11), std::slice::from_ref(&ids)).unwrap();
    // Twice: the place is free again.
    for _ in 0..2 {
        session.place_grids(&prompt, &[(ids.clone(), grid)]).unwrap();
        let error = session.generate(Prompt::Tokens(&prompt)).into_reply().unwrap_err();
        assert!(error.to_string().contains("context limit"), "{error}");
    }
    // One of two images that does not fit: none is placed.
    let images = [(ids.clone(), grid), (900..906, grid)];
    session.place_grids(&prompt, &images).unwrap_err();
    let text = [3, 7, 9, 8, 1, 2, 5, 6].map(TokenId);
    let reply = session.generate(Prompt::Tokens(&text)).into_reply().unwrap();
    assert_eq!(reply.tokens, fresh.generate(Prompt::Tokens(&text)).into_reply().unwrap().tokens);
}
