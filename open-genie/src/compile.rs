//! Compiles a model and proves the bundle before it is put in its place: what can fail at the first run fails here.
//!
//! Needs feature `compile` (`demo` has it): a program that runs bundles needs no compiler.

use std::path::Path;
use std::sync::Arc;

use compiler::{Amount, CompileError, CompileOptions, Progress, Silent, Stage};
use dialog::Tokenizer;
use engine::{FeatureModel, SeqId, SeqTokens, TokenModel};
use genie_bundle::Manifest;
use genie_types::TokenId;
use qnn_api::Backend;

use crate::model::Bundle;
use crate::{Error, Options, PolicyChoice, backend};

/// What the steps take, as often as they are wide.
const LINE: &str = "Once upon a time there was a king.";

/// A bundle that was compiled, and how far it was tried.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Compiled {
    /// What the bundle holds.
    pub manifest: Manifest,
    /// What was tried.
    pub proof: Proof,
}

/// What was tried with a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Proof {
    /// Widths of the steps that were run, in tokens. Empty: the graphs are for another machine.
    pub steps: Vec<usize>,
}

/// Compiles with `backend`, then proves the bundle: its hashes, its config and its tokenizer, read as a session will, a line
/// of text there and back, and one step of one token and one of the next wider width, opened with `open`, whose logits must be
/// finite. Graphs for a SoC are not run.
///
/// # Errors
/// [`Error::Compile`]; a bundle that is not proved leaves nothing behind, and neither does a cancelled compilation.
pub fn compile(
    options: &CompileOptions,
    backend: &Arc<Backend>,
    open: &Options,
    progress: &mut dyn Progress,
) -> Result<Compiled, Error> {
    if options.htp.is_none() {
        // Memory that is not there: the proof would say so after the whole compilation.
        backend::shared_memory(open, backend)?;
    }
    let mut proof = Proof::default();
    let manifest = compiler::compile_and_prove(options, backend, progress, &mut |folder, progress| {
        proof = prove_watched(folder, open, progress)?;
        Ok(())
    })?;
    Ok(Compiled { manifest, proof })
}

/// Tries a bundle as [`compile`] does.
///
/// # Errors
/// The first thing that fails.
pub fn prove(folder: &Path, open: &Options) -> Result<Proof, Error> {
    prove_watched(folder, open, &mut Silent)
}

/// As [`prove`], in two stages: [`Stage::Compare`], whose bytes are reported a megabyte at a time, and [`Stage::Try`], of a few steps.
/// It ends where `progress` is cancelled, within the comparison or before the next step.
///
/// # Errors
/// The first thing that fails; [`CompileError::Cancelled`].
pub fn prove_watched(folder: &Path, open: &Options, progress: &mut dyn Progress) -> Result<Proof, Error> {
    let manifest = Manifest::read(folder)?;
    compare(&manifest, folder, progress)?;
    let bundle = Bundle::read(folder)?;
    let rows = bundle.config().context().n_vocab;
    let tokenizer = Tokenizer::from_file(bundle.config().tokenizer())?;
    // What is odd about it the compiler has said.
    tokenizer.prove(rows)?;
    if manifest.options.target.is_some() {
        return Ok(Proof::default());
    }
    let line = tokenizer.encode(LINE)?;
    // How the caller plans and what it keeps is no part of the proof.
    let policy = PolicyChoice::Auto;
    // Compiling takes little memory whatever the size of the model, and so does the proof.
    let open = Options { prefix_cache: None, graph_profile: None, policy, lets_weights_go: true, ..open.clone() };
    let fused = manifest.options.kinds.pd.as_ref();
    let mut proof = Proof::default();
    if fused.is_some() {
        prove_fused(&bundle, &open, (&line, rows), &mut proof, progress)?;
    }
    if fused.is_some_and(|pd| pd.only) {
        return Ok(proof);
    }
    let mut model = bundle.open(&open)?;
    let widths = model.engine().layout().variants.iter().map(|v| v.ar().get()).filter(|&ar| ar > 1);
    // An emulated chip takes seconds for a wide step.
    let ours = backend::is_embedded(model.backend().library());
    let wide = widths.min().filter(|_| ours).unwrap_or(0).min(model.engine().context_size());
    let widths: Vec<usize> = [1, wide].into_iter().filter(|&width| width > 0).collect();
    progress.begin(&Stage::Try, Amount { items: widths.len() as u64, bytes: 0 });
    for width in widths {
        let step = begin_step(width, progress)?;
        let engine = model.engine_mut();
        engine.reset()?;
        let tokens: Vec<TokenId> = line.iter().copied().cycle().take(width).collect();
        let features_in = engine.layout().features_in;
        match features_in {
            None => check_logits(engine.process(&tokens)?, width, rows)?,
            // A head that drafts takes hidden states as well.
            Some(n) => {
                let mut checked = Ok(());
                let input = SeqTokens { seq: SeqId(0), tokens: &tokens };
                engine.process_features(&[input], &vec![0.0; n * width], &mut |_, logits, _| {
                    checked = check_logits(logits, width, rows);
                })?;
                checked?;
            }
        }
        proof.steps.push(width);
        progress.item(&step, 0);
    }
    progress.end(&Stage::Try);
    Ok(proof)
}

/// Compares the files of a bundle with their hashes.
fn compare(manifest: &Manifest, folder: &Path, progress: &mut dyn Progress) -> Result<(), Error> {
    let bytes = manifest.files.iter().map(|file| file.bytes).sum();
    progress.begin(&Stage::Compare, Amount { items: manifest.files.len() as u64, bytes });
    for file in &manifest.files {
        file.verify(folder, |n| {
            progress.advanced(n);
            go_on(progress)
        })?;
        progress.item(&file.path, file.bytes);
    }
    progress.end(&Stage::Compare);
    Ok(())
}

/// Says which step comes, unless the compilation is cancelled; returns what it is called.
fn begin_step(width: usize, progress: &mut dyn Progress) -> Result<String, Error> {
    go_on(progress)?;
    let step = if width == 1 { "a step of 1 token".to_owned() } else { format!("a step of {width} tokens") };
    progress.working(&step);
    Ok(step)
}

fn go_on(progress: &dyn Progress) -> Result<(), Error> {
    if progress.cancelled() { Err(CompileError::Cancelled.into()) } else { Ok(()) }
}

/// One step of a decode row alone, and one of a chunk of two tokens in the narrowest graph.
fn prove_fused(
    bundle: &Bundle,
    open: &Options,
    (line, rows): (&[TokenId], usize),
    proof: &mut Proof,
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    let mut model = bundle.clone().open_pair(open)?;
    progress.begin(&Stage::Try, Amount { items: 2, bytes: 0 });
    for width in [1, 2] {
        let step = begin_step(width, progress)?;
        let runner = model.runner_mut();
        runner.reset()?;
        let tokens: Vec<TokenId> = line.iter().copied().cycle().take(width).collect();
        check_logits(runner.process(&tokens)?, width, rows)?;
        proof.steps.push(width);
        progress.item(&step, 0);
    }
    progress.end(&Stage::Try);
    Ok(())
}

fn check_logits(logits: &[f32], width: usize, rows: usize) -> Result<(), Error> {
    if logits.len() != rows {
        return Err(Error::LogitsWidth { found: logits.len(), expected: rows });
    }
    match logits.iter().position(|logit| !logit.is_finite()) {
        Some(index) => Err(Error::LogitsNotFinite { width, index, value: logits[index] }),
        None => Ok(()),
    }
}
