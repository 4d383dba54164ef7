//! Where bundles may be written, what `force` replaces, what stays, and what a failure leaves.

use crate::compile::compile_with;
use crate::lower::tests::recorder::FakeTarget;
use crate::testing::{Place, compile, edit, names, place};
use crate::{Amount, CompileError, CompileOptions, Hint, Manifest, Progress, Silent, Splits, Stage};
use genie_bundle::CONFIG_FILE;
use serde_json::json;
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// Notes of a compilation, and what to do at its first stage.
struct Notes<'a>(Vec<String>, &'a mut dyn FnMut());

impl Progress for Notes<'_> {
    fn begin(&mut self, stage: &Stage, _total: Amount) {
        if *stage == Stage::Hash {
            (self.1)();
        }
    }
    fn item(&mut self, _name: &str, _bytes: u64) {}
    fn end(&mut self, _stage: &Stage) {}
    fn note(&mut self, text: &str) {
        self.0.push(text.into());
    }
}

/// Compiles in two splits, by force; returns the notes. `meanwhile` runs when the output place has been checked.
fn replace(model: &Path, out: &Path, mut meanwhile: impl FnMut()) -> Result<Vec<String>, CompileError> {
    let mut options = CompileOptions::new(model, out);
    (options.ars, options.cls) = (vec![1, 4], vec![16]);
    (options.splits, options.force) = (Splits::DecoderLmhead, true);
    let mut notes = Notes(Vec::new(), &mut meanwhile);
    compile_with(&options, &mut FakeTarget::default(), &mut notes)?;
    Ok(notes.0)
}

const ONE: [&str; 4] = ["genie_config.json", "manifest.json", "model.bin", "tokenizer.json"];
const TWO: [&str; 5] = ["decoder.bin", "genie_config.json", "lmhead.bin", "manifest.json", "tokenizer.json"];

/// D1: a bundle was deleted without `--force`, and all that lay in it.
#[test]
fn without_force_nothing_but_an_empty_directory_is_taken() {
    let Place { dir, model, out } = place();
    std::fs::create_dir(&out).unwrap();
    compile(&model, &out, |_| {}).unwrap();
    assert_eq!(names(&out), ONE);

    let error = compile(&model, &out, |_| {}).unwrap_err();
    assert!(error.to_string().ends_with("bundle` already holds a bundle"), "{error}");
    assert_eq!(error.hint(), Some(Hint::OtherDirectoryOrForce));
    std::fs::write(out.join("notes.txt"), "mine").unwrap();
    std::fs::create_dir(out.join("session")).unwrap();
    let error = compile(&model, &out, |_| {}).unwrap_err();
    assert!(error.to_string().ends_with("already holds a bundle, and `notes.txt`, `session/`"), "{error}");
    assert_eq!(names(&out).len(), ONE.len() + 2);
    assert_eq!(names(dir.path()), ["bundle", "model"]);
}

/// Row 4: any directory was deleted.
#[test]
fn a_directory_without_a_bundle_is_never_replaced() {
    let Place { dir, model, out } = place();
    let manifests = [None, Some(r#"{"format":"docker","version":1}"#), Some("{"), Some("")];
    for (manifest, force) in manifests.into_iter().flat_map(|m| [(m, false), (m, true)]) {
        let _ = std::fs::remove_dir_all(&out);
        std::fs::create_dir(&out).unwrap();
        std::fs::write(out.join("thesis.tex"), "irreplaceable").unwrap();
        if let Some(text) = manifest {
            std::fs::write(out.join("manifest.json"), text).unwrap();
        }
        let before = names(&out);
        let error = compile(&model, &out, |o| o.force = force).unwrap_err();
        let holds = before.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let message = format!("bundle` is not empty and not a bundle: it holds {holds}");
        assert!(error.to_string().ends_with(&message), "{error}");
        assert_eq!(std::error::Error::source(&error).is_some(), manifest.is_some(), "{manifest:?}");
        assert_eq!(error.hint(), Some(Hint::OtherDirectory), "no word of force");
        assert_eq!(names(&out), before);
    }
    let error = compile(&model, dir.path(), |o| o.force = true).unwrap_err();
    assert!(error.to_string().ends_with("cannot be a bundle directory: the model lies in it"), "{error}");
    let error = compile(&model, &model.join("config.json"), |_| {}).unwrap_err();
    assert!(
        error.to_string().ends_with("config.json` is a model's `config.json`, expected a folder or nothing"),
        "{error}"
    );
    assert_eq!(names(dir.path()), ["bundle", "model"]);
}

/// Row 4 and D1: saved sessions, notes and an edited config went with the bundle.
#[test]
fn force_replaces_the_files_of_the_manifest_and_keeps_the_rest() {
    let Place { dir, model, out } = place();
    compile(&model, &out, |_| {}).unwrap();
    std::fs::create_dir_all(out.join("session/deep")).unwrap();
    std::fs::write(out.join("session/deep/f"), "saved").unwrap();
    std::fs::write(out.join("notes.txt"), "mine").unwrap();
    std::fs::write(out.join("calibration.json"), "{}").unwrap();
    std::fs::write(out.join("lmhead.bin"), "mine, too").unwrap();
    edit(&out, CONFIG_FILE, |config| config["dialog"]["sampler"]["temp"] = json!(0.1));
    let edited = std::fs::read(out.join(CONFIG_FILE)).unwrap();

    let notes = replace(&model, &out, || {}).unwrap();
    let kept = ["calibration.json", "genie_config.json.old", "lmhead.bin.old", "notes.txt", "session"];
    let mut expected: Vec<_> = TWO.iter().chain(&kept).map(ToString::to_string).collect();
    expected.sort();
    assert_eq!(names(&out), expected);
    assert_eq!(std::fs::read_to_string(out.join("session/deep/f")).unwrap(), "saved");
    assert_eq!(std::fs::read_to_string(out.join("lmhead.bin.old")).unwrap(), "mine, too");
    assert_eq!(std::fs::read(out.join("genie_config.json.old")).unwrap(), edited);
    Manifest::read(&out).unwrap().verify_files(&out).unwrap();
    let folder = out.display();
    assert_eq!(
        notes,
        [
            format!("kept in `{folder}`: `calibration.json`, `notes.txt`, `session/`"),
            "`genie_config.json` was edited: it is kept as `genie_config.json.old`".into(),
            "`lmhead.bin` is no file of the earlier bundle: it is kept as `lmhead.bin.old`".into(),
            "`calibration.json` was measured with the earlier graphs: measure again".into(),
        ]
    );
    // Once more, with the same graphs: nothing was edited since, and the calibration still holds.
    let notes = replace(&model, &out, || {}).unwrap();
    assert_eq!(names(&out), expected);
    assert_eq!(notes.len(), 1, "{notes:?}");
    // An edit again does not overwrite the edit that was kept.
    edit(&out, CONFIG_FILE, |config| config["dialog"]["sampler"]["temp"] = json!(0.2));
    replace(&model, &out, || {}).unwrap();
    assert_eq!(std::fs::read(out.join("genie_config.json.old")).unwrap(), edited);
    assert!(out.join("genie_config.json.old.2").is_file());
    assert_eq!(names(dir.path()), ["bundle", "model"]);
}

#[test]
fn bundles_of_other_versions_are_replaced() {
    let Place { dir, model, out } = place();
    compile(&model, &out, |_| {}).unwrap();
    edit(&out, "manifest.json", |m| m["version"] = json!(99));
    let error = Manifest::read(&out).unwrap_err().to_string();
    assert!(error.ends_with("manifest.json` has version 99, this build reads versions up to 1"), "{error}");
    replace(&model, &out, || {}).unwrap();
    assert_eq!(names(&out), TWO);
    // One that lists its files in another way: what is in it might be anything.
    edit(&out, "manifest.json", |m| *m = json!({ "format": m["format"], "version": 9, "content": {} }));
    let notes = replace(&model, &out, || {}).unwrap();
    let kept: Vec<_> = names(&out).into_iter().filter(|name| name.ends_with(".old")).collect();
    assert_eq!(kept, ["decoder.bin.old", "genie_config.json.old", "lmhead.bin.old", "tokenizer.json.old"]);
    assert_eq!(notes.len(), 4, "{notes:?}");
    assert_eq!(names(dir.path()), ["bundle", "model"]);
}

#[test]
fn what_comes_meanwhile_is_not_lost() {
    let Place { dir, model, out } = place();
    // A directory that was free at the start.
    let error = replace(&model, &out, || {
        std::fs::create_dir(&out).unwrap();
        std::fs::write(out.join("thesis.tex"), "irreplaceable").unwrap();
    })
    .unwrap_err();
    assert!(error.to_string().ends_with("not a bundle: it holds `thesis.tex`"), "{error}");
    assert_eq!(names(&out), ["thesis.tex"]);
    // A bundle that another process replaces, or removes, or writes into.
    std::fs::remove_dir_all(&out).unwrap();
    replace(&model, &out, || drop(compile(&model, &out, |_| {}).unwrap())).unwrap();
    assert_eq!(names(&out), TWO);
    replace(&model, &out, || std::fs::remove_dir_all(&out).unwrap()).unwrap();
    assert_eq!(names(&out), TWO);
    replace(&model, &out, || std::fs::write(out.join("late.txt"), "mine").unwrap()).unwrap();
    assert!(out.join("late.txt").is_file());
    // Without force the second one is refused when it publishes (section 3: three compiles to one folder at once).
    std::fs::remove_dir_all(&out).unwrap();
    let mut meanwhile = || drop(compile(&model, &out, |_| {}).unwrap());
    let options = CompileOptions { ars: vec![1], cls: vec![16], ..CompileOptions::new(&model, &out) };
    let error = compile_with(&options, &mut FakeTarget::default(), &mut Notes(Vec::new(), &mut meanwhile)).unwrap_err();
    assert!(error.to_string().ends_with("already holds a bundle"), "{error}");
    assert_eq!(names(&out), ONE);
    assert_eq!(names(dir.path()), ["bundle", "model"]);
}

#[test]
fn a_failure_leaves_the_earlier_bundle() {
    let Place { dir, model, out } = place();
    let before = compile(&model, &out, |_| {}).unwrap();
    let mut target = FakeTarget { saves_left: Some(Cell::new(2)), ..FakeTarget::default() };
    let options = CompileOptions { splits: Splits::LutDecoderLmhead, force: true, ..CompileOptions::new(&model, &out) };
    let error = compile_with(&options, &mut target, &mut Silent).unwrap_err();
    assert!(error.to_string().starts_with("cannot write `"), "{error}");
    assert_eq!(target.saved.borrow().len(), 2, "two of three splits were written before the failure");
    assert_eq!(Manifest::read(&out).unwrap(), before);
    assert_eq!(names(dir.path()), ["bundle", "model"]);
}

/// Row 3: a `.b.replaced` that a killed compilation had left blocked every later one. Row 17: leftovers stayed.
#[test]
fn leftovers_of_earlier_releases_block_nothing_and_go() {
    let Place { dir, model, out } = place();
    compile(&model, &out, |_| {}).unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at(".bundle.partial-2147483632")).unwrap();
    std::fs::write(at(".bundle.partial-2147483632").join("model.bin.12.part"), "half").unwrap();
    compile(&model, &at(".bundle.replaced"), |_| {}).unwrap();
    std::fs::remove_file(at(".bundle.replaced").join("model.bin")).unwrap();
    replace(&model, &out, || {}).unwrap();
    assert_eq!(names(dir.path()), ["bundle", "model"]);
    // What someone else's files are in stays: the release that moved it would have deleted them.
    compile(&model, &at(".bundle.replaced"), |_| {}).unwrap();
    std::fs::write(at(".bundle.replaced").join("notes.txt"), "mine").unwrap();
    replace(&model, &out, || {}).unwrap();
    assert_eq!(names(dir.path()), [".bundle.replaced", "bundle", "model"]);
    assert!(at(".bundle.replaced").join("notes.txt").is_file());
}

/// A hidden name of a process that has ended.
fn hidden_of_the_dead(out: &Path, number: u32) -> PathBuf {
    let maker = file_io::Maker::this().to_string();
    let (_, rest) = maker.split_once('-').unwrap();
    let name = out.file_name().unwrap().to_str().unwrap();
    out.with_file_name(format!(".{name}.exchange.{}-{rest}.{number}", 0x7fff_fff0_u32))
}

/// Killed between the exchange and moving over what had come meanwhile, the next compilation deleted it with the old bundle.
#[test]
fn what_came_before_a_kill_is_not_swept() {
    let Place { dir, model, out } = place();
    compile(&model, &out, |_| {}).unwrap();
    let old = |number: u32| {
        let hidden = hidden_of_the_dead(&out, number);
        compile(&model, &hidden, |_| {}).unwrap();
        std::fs::create_dir(hidden.join("session")).unwrap();
        hidden
    };
    // All in it is the bundle's own, or was carried over.
    let hidden = old(0);
    std::fs::create_dir(out.join("session")).unwrap();
    std::fs::write(out.join("session/a"), "carried").unwrap();
    std::fs::hard_link(out.join("session/a"), hidden.join("session/a")).unwrap();
    replace(&model, &out, || {}).unwrap();
    assert_eq!(names(dir.path()), ["bundle", "model"]);
    // A file that came late, one deep in a folder, a file of the bundle that was edited late, a folder without a manifest.
    let damages: [fn(&Path); 4] = [
        |hidden| std::fs::write(hidden.join("late.txt"), "mine").unwrap(),
        |hidden| std::fs::write(hidden.join("session/late"), "mine").unwrap(),
        |hidden| edit(hidden, CONFIG_FILE, |config| config["dialog"]["sampler"]["temp"] = json!(0.3)),
        |hidden| std::fs::remove_file(hidden.join("manifest.json")).unwrap(),
    ];
    for (number, damage) in (1..).zip(damages) {
        let hidden = old(number);
        damage(&hidden);
        let before = names(&hidden);
        replace(&model, &out, || {}).unwrap();
        assert_eq!(names(dir.path()), ["bundle", "bundle.kept", "model"], "{number}");
        assert_eq!(names(&dir.path().join("bundle.kept")), before, "{number}");
        std::fs::remove_dir_all(dir.path().join("bundle.kept")).unwrap();
    }
}
