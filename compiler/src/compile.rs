//! From options to a published bundle, step by step.

use crate::bundle::{Staging, check_tokenizer, genie_config, htp_config};
use crate::eagle::check_hidden_states;
use crate::family::ModelSpec;
use crate::hashes::{hash_model, seal};
use crate::lora::{self, Adapter};
use crate::lower::pd::PdForm;
use crate::lower::{self, Format, LinearForm, RoundingLoss, Source, Split, SplitKind, Windows};
use crate::model::Model;
use crate::own_weights::OwnWeights;
use crate::progress::{Progress, Stage, go_on};
use crate::size::Plan;
use crate::target::{Target, TargetContext};
use crate::{
    AdapterSource, CacheUpdate, CompileError, CompileOptions, GraphKinds, KvCacheType, Result, Splits, Weights, finish,
    fs, own_weights, weight_files,
};
use genie_bundle::files::OPTIONAL_FILES;
use genie_bundle::manifest::{
    self, AdapterEntry, BUNDLE_FORMAT, BUNDLE_VERSION, GraphEntry, Manifest, Options, listed_files,
};
use genie_bundle::{CONFIG_FILE, HTP_CONFIG_FILE, MANIFEST_FILE, TOKENIZER_FILE};
use genie_types::Variant;
use std::path::Path;

/// Looks at a bundle that is complete but not yet in its place: its folder, for now. An error keeps it from getting there. It tells
/// how far it is in stages of its own, and ends early where the compilation is cancelled, with any error.
pub type Prove<'p> =
    dyn FnMut(&Path, &mut dyn Progress) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> + 'p;

/// Compiles with any target, without a proof.
#[cfg(test)]
pub(crate) fn compile_with<T: Target>(
    options: &CompileOptions,
    target: &mut T,
    progress: &mut dyn Progress,
) -> Result<Manifest> {
    compile_and_prove(options, target, progress, &mut |_, _| Ok(()))
}

/// Compiles with any target; [`crate::compile()`] is this with a QNN backend.
pub(crate) fn compile_and_prove<T: Target>(
    options: &CompileOptions,
    target: &mut T,
    progress: &mut dyn Progress,
    prove: &mut Prove<'_>,
) -> Result<Manifest> {
    // Everything that can be refused is refused before anything is written.
    options.check()?;
    let variants = options.variants()?;
    let (mut model, with_features);
    let options = match &options.eagle_of {
        Some(target) => {
            model = Model::open_eagle(&options.model_dir, target)?;
            // What it drafts from next is its own.
            let kinds = GraphKinds { hidden_states: true, ..options.kinds.clone() };
            with_features = CompileOptions { kinds, ..options.clone() };
            &with_features
        }
        None => {
            model = Model::open(&options.model_dir)?;
            options
        }
    };
    if options.kinds.hidden_states {
        check_hidden_states(&model.spec)?;
    }
    let adapters = lora::open_all(&options.lora, &model.spec)?;
    let mut adapter_entries = Vec::new();
    for adapter in &adapters {
        adapter_entries.push(entry_of(adapter, Some(adapter.alpha()), progress)?);
    }
    let mut merged = Vec::new();
    for dir in &options.lora_merge {
        let adapter = Adapter::open(&AdapterSource::new(dir).named("merged"), &model.spec)?;
        let name = directory_name(dir);
        merged.push(AdapterEntry { name, ..entry_of(&adapter, None, progress)? });
        model.checkpoint.overlay(Box::new(adapter));
    }
    let Model { spec, checkpoint, .. } = &model;
    let windows = Windows::of(spec, variants.iter().copied());
    if options.kinds.cache != CacheUpdate::Concat && matches!(windows, Windows::Group { .. }) {
        return Err(CompileError::ScatterWindows);
    }
    if options.kinds.kv_cache == KvCacheType::Q8_0 {
        lower::block_cache::check(spec)?;
    }
    check_keys_by_row(options, spec, &variants)?;
    let kv_peaks = options.kv_peaks.as_ref().filter(|_| options.kinds.kv_cache == KvCacheType::U8);
    kv_peaks.map_or(Ok(()), |peaks| peaks.check(spec.n_layers))?;
    let longest = variants.iter().map(|v| v.cl().get()).max().unwrap_or(0);
    if let Some(positions) = spec.learned_positions.filter(|&positions| longest > positions) {
        return Err(CompileError::BeyondPositions { context: longest, positions });
    }
    let pd_only = options.kinds.pd.as_ref().is_some_and(|pd| pd.only);
    let pd_graphs = pd_graphs(options, windows)?;
    lower::check_weights(spec, checkpoint, &mut |_| go_on(progress))?;
    model.check_has_tokenizer()?;
    for odd in check_tokenizer(&model.files, spec.vocab)? {
        progress.note(&odd.to_string());
    }
    model.notes.iter().for_each(|note| progress.note(note));
    note_oddities(options, spec, &variants, progress);
    let form = if options.htp.is_some() { LinearForm::Conv2d } else { LinearForm::FullyConnected };
    let OwnWeights { weights, keeps_eight_bits, keeps_floats, note } = match options.weights {
        Some(weights) => OwnWeights { weights, keeps_eight_bits: false, keeps_floats: false, note: None },
        None => own_weights::of(spec, checkpoint, options.htp.is_none() && target.is_embedded()),
    };
    note.iter().for_each(|note| progress.note(note));
    let format = Format { precision: options.precision, weights, keeps_eight_bits, keeps_floats, form };
    let mut cuts = (options.splits, options.layers_per_split);
    if let Some(htp) = &options.htp {
        let elems: u64 = adapters.iter().map(|adapter| adapter.n_elems_of_layer(spec)).sum();
        let adapter_bytes = elems * options.precision.dtype().size_bytes() as u64;
        let n_plain = if pd_only { 0 } else { variants.len() };
        let n_graphs = n_plain + if cuts.0 == Splits::Mono { pd_graphs.len() } else { 0 };
        cuts = Plan { spec, format, n_graphs, htp, adapter_bytes }.fit(cuts)?;
        if !pd_graphs.is_empty() && (pd_only || cuts.0 != Splits::Mono) {
            // They hold the whole model in a file of their own.
            let file = if pd_only { lower::file_names(&[Split::whole(spec)], false).remove(0) } else { PD_FILE.into() };
            Plan { spec, format, n_graphs: pd_graphs.len(), htp, adapter_bytes: 0 }.check_whole(file)?;
        }
    }
    let staging = Staging::begin(&options.out_dir, &options.model_dir, options.force)?;

    let source_hash = hash_model(&model, progress)?;
    let splits = if pd_only { Vec::new() } else { lower::cut(spec, cuts.0, cuts.1) };
    let mut binaries = lower::file_names(&splits, options.one_file);
    // Fused graphs share the weights of a file with all graphs; else they have one of their own.
    let n_plain_files = splits.len();
    if !pd_graphs.is_empty() {
        let is_one = binaries.iter().all(|file| *file == binaries[0]);
        binaries.push(match binaries.first() {
            None => lower::file_names(&[Split::whole(spec)], false).remove(0),
            Some(first) if is_one => first.clone(),
            Some(_) => PD_FILE.into(),
        });
    }
    let mut graphs = Vec::new();
    let mut loss = RoundingLoss::default();
    // A context stays open for the following splits of the same file.
    let mut open = None;
    for (i, (split, file)) in splits.iter().zip(&binaries).enumerate() {
        let number = SplitNumber { split: i + 1, n_splits: splits.len() };
        let kinds = &options.kinds;
        let variants = variants_of(split, &variants, kinds);
        let (loss, progress) = (&mut loss, &mut *progress);
        let source = Source { checkpoint, format, kinds, kv_peaks, adapters: &adapters, loss, progress, ahead: None };
        let context = open.take().map_or_else(|| target.context(staging.folder()), Ok)?;
        let path = staging.path(file);
        let save = (binaries.get(i + 1) != Some(file)).then_some(&*path);
        open = compile_split(spec, split, number, &variants, context, source, save)?;
        if let Some(htp) = &options.htp {
            htp.check_file(file, &staging.path(file))?;
        }
        graphs.extend(variants.iter().map(|&variant| GraphEntry {
            name: number.graph_name(variant),
            file: file.clone(),
            split: number.split,
            ar: variant.ar().get(),
            cl: variant.cl().get(),
        }));
    }

    if let Some(file) = binaries.get(n_plain_files) {
        let (loss, progress) = (&mut loss, &mut *progress);
        let source =
            Source { checkpoint, format, kinds: &options.kinds, kv_peaks, adapters: &[], loss, progress, ahead: None };
        let context = open.take().map_or_else(|| target.context(staging.folder()), Ok)?;
        compile_pd(spec, &pd_graphs, context, source, &staging.path(file))?;
        if let Some(htp) = &options.htp {
            htp.check_file(file, &staging.path(file))?;
        }
        graphs.extend(pd_graphs.iter().map(|(form, variant)| GraphEntry {
            name: form.name(),
            file: file.clone(),
            split: 1,
            ar: variant.ar().get(),
            cl: variant.cl().get(),
        }));
    }

    if let Some(relative) = loss.relative() {
        let percent = 100.0 * relative;
        // Layers in Q4_0 that an adapter was merged into are rounded to it again.
        let to = match (keeps_eight_bits, options.lora_merge.is_empty()) {
            (true, true) => Weights::Q8_0.to_string(),
            (true, false) => format!("{} and {}", Weights::Q4_0, Weights::Q8_0),
            (false, _) => weights.to_string(),
        };
        progress.note(&format!("rounding to {to} moved the weights by {percent:.2} % (root mean square)"));
    }

    binaries.dedup();
    let mut files = binaries.clone();
    let path = |name: &str| staging.path(name);
    files.extend(weight_files::write(spec, checkpoint, &options.kinds, options.precision, path, progress)?);
    for name in [TOKENIZER_FILE].iter().chain(&OPTIONAL_FILES) {
        if *name == TOKENIZER_FILE || model.files.has(name)? {
            model.files.copy(name, &staging.path(name))?;
            files.push(name.to_string());
        }
    }
    let ctx_size = variants.iter().map(|v| v.cl().get()).max().unwrap_or(0);
    let (htp, kinds) = (options.htp.is_some(), &options.kinds);
    let config = genie_config(spec, windows, ctx_size, &binaries, htp, &adapters, kinds);
    write_json(&staging.path(CONFIG_FILE), &config)?;
    files.push(CONFIG_FILE.into());
    if let Some(htp) = &options.htp {
        let names: Vec<String> = graphs.iter().map(|g| g.name.clone()).collect();
        write_json(&staging.path(HTP_CONFIG_FILE), &htp_config(htp, &names))?;
        files.push(HTP_CONFIG_FILE.into());
    }

    let manifest = Manifest {
        format: BUNDLE_FORMAT.into(),
        version: BUNDLE_VERSION,
        source: manifest::Source {
            family: spec.family.to_string(),
            name: directory_name(&options.model_dir),
            sha256: source_hash,
            positions: spec.max_positions,
            mixed_rotation: spec.has_mixed_rotation(),
            encoding: config.pointer("/dialog/engine/model/positional-encoding").cloned(),
            windows: windows.rules().collect(),
        },
        options: Options {
            ar: ascending(&options.ars),
            cl: ascending(&options.cls),
            splits: cuts.0,
            layers_per_split: cuts.1,
            one_file: options.one_file,
            precision: options.precision,
            weights,
            keeps_eight_bits,
            keeps_floats,
            target: options.htp.as_ref().map(crate::HtpOptions::target),
            shared_weights: options.htp.is_some_and(|htp| htp.share_weights),
            kinds: options.kinds.clone(),
            adapters: adapter_entries,
            merged,
            drafts_for: options.eagle_of.as_deref().map(directory_name),
        },
        backend: target.id(),
        files: seal(&staging, &files, progress)?,
        graphs,
    };
    write_json(&staging.path(MANIFEST_FILE), &manifest)?;
    go_on(progress)?;
    let proved = prove(staging.folder(), progress);
    go_on(progress)?;
    proved.map_err(|source| CompileError::NotProved { source })?;
    let listed = listed_files(staging.folder())?;
    for note in staging.publish()?.notes(&options.out_dir, &listed) {
        progress.note(&note);
    }
    Ok(manifest)
}

/// An adapter as the manifest has it.
fn entry_of(adapter: &Adapter, alpha: Option<String>, progress: &dyn Progress) -> Result<AdapterEntry> {
    let (name, sha256) = (adapter.name.clone(), adapter.hash(progress)?);
    Ok(AdapterEntry { name, sha256, rank: adapter.rank, targets: adapter.targets(), alpha })
}

/// A split's number, counted from 1, and the number of splits.
#[derive(Clone, Copy)]
struct SplitNumber {
    split: usize,
    n_splits: usize,
}

impl SplitNumber {
    fn graph_name(self, variant: Variant) -> String {
        // libGenie orders splits by name, as text.
        let width = self.n_splits.to_string().len();
        format!("{variant}_{:0width$}_of_{}", self.split, self.n_splits)
    }
}

/// The variants that a split has graphs for.
fn variants_of(split: &Split, variants: &[Variant], kinds: &GraphKinds) -> Vec<Variant> {
    let is_head = split.kind == SplitKind::Lmhead;
    let of_head = |ar: u32| !kinds.rows_only.contains(&ar) && (kinds.head.is_empty() || kinds.head.contains(&ar));
    // Every AR was given as a u32.
    let has = |variant: &&Variant| !is_head || u32::try_from(variant.ar().get()).is_ok_and(of_head);
    variants.iter().filter(has).copied().collect()
}

/// The context binary of a fused pair beside several others.
const PD_FILE: &str = "pd.bin";

/// The graphs of a fused pair: those for both requests, then the one for a decode row; for the longest context.
fn pd_graphs(options: &CompileOptions, windows: Windows) -> Result<Vec<(PdForm, Variant)>> {
    let Some(pd) = &options.kinds.pd else { return Ok(Vec::new()) };
    let context = options.cls.iter().copied().max().unwrap_or(0);
    if let Some((_, tokens)) = windows.rules().next() {
        return Err(CompileError::PdWindow { tokens, context: context as usize });
    }
    let pairs = ascending(&pd.total_lens).into_iter().map(PdForm::Pair);
    let all = pairs.chain([PdForm::Single]);
    all.map(|form| {
        let refused = |_| CompileError::ArTooWide { ar: form.rows() as usize, longest_cl: context as usize };
        Ok((form, Variant::new(form.rows(), context).map_err(refused)?))
    })
    .collect()
}

/// Adds the graphs of a fused pair to a context and writes it.
fn compile_pd<C: TargetContext>(
    spec: &ModelSpec,
    graphs: &[(PdForm, Variant)],
    mut context: C,
    mut source: Source<'_>,
    path: &Path,
) -> Result<()> {
    let update = source.kinds.pd.as_ref().map_or_else(Default::default, |pd| pd.update);
    let open = graphs.iter().map(|&(form, variant)| Ok((form, variant, context.compose(&form.name())?)));
    let open = open.collect::<Result<Vec<_>>>()?;
    let stage = Stage::Weights { split: 1, n_splits: 1 };
    let amount = lower::pd::amount(spec, &source);
    source.progress.begin(&stage, amount);
    let composed = lower::pd::lower(spec, open, update, &mut source)?;
    source.progress.end(&stage);
    let graphs = composed.into_iter().zip(graphs).map(|(graph, (form, _))| (form.name(), graph)).collect();
    finish::finalize(&mut context, graphs, &Stage::Finalize { split: 1, n_splits: 1 }, source.progress)?;
    finish::save(context, path, source.progress)
}

/// Adds a split's graphs to a context. `save`: where to write the context; without it, the context is returned, still open.
fn compile_split<C: TargetContext>(
    spec: &ModelSpec,
    split: &Split,
    number: SplitNumber,
    variants: &[Variant],
    mut context: C,
    mut source: Source<'_>,
    save: Option<&Path>,
) -> Result<Option<C>> {
    let open =
        variants.iter().map(|&v| Ok((v, context.compose(&number.graph_name(v))?))).collect::<Result<Vec<_>>>()?;

    let stage = Stage::Weights { split: number.split, n_splits: number.n_splits };
    let amount = lower::amount(spec, split, &source);
    source.progress.begin(&stage, amount);
    let composed = lower::lower(spec, split, open, &mut source)?;
    source.progress.end(&stage);

    let stage = Stage::Finalize { split: number.split, n_splits: number.n_splits };
    let graphs = composed.into_iter().zip(variants).map(|(graph, &v)| (number.graph_name(v), graph)).collect();
    finish::finalize(&mut context, graphs, &stage, source.progress)?;
    match save {
        Some(path) => finish::save(context, path, source.progress).map(|()| None),
        None => Ok(Some(context)),
    }
}

/// Refuses keys by row in graphs whose extents do not tell them from keys by column.
fn check_keys_by_row(options: &CompileOptions, spec: &ModelSpec, variants: &[Variant]) -> Result<()> {
    let tells = |variant: &Variant| {
        let (ar, cl) = (variant.ar().get(), variant.cl().get());
        let past = if options.kinds.cache == CacheUpdate::Concat { cl - ar } else { cl };
        ar != spec.head_dim || (past > 0 && past != spec.head_dim)
    };
    if options.kinds.kv_cache == KvCacheType::Rows && !variants.iter().any(tells) {
        return Err(CompileError::KeysByRowUntold { head_dim: spec.head_dim });
    }
    Ok(())
}

fn note_oddities(options: &CompileOptions, spec: &ModelSpec, variants: &[Variant], progress: &mut dyn Progress) {
    for &ar in &options.ars {
        for &cl in options.cls.iter().filter(|&&cl| cl < ar) {
            progress.note(&format!("left out AR-{ar} CL-{cl}: the AR is wider than the context"));
        }
    }
    if let Some(most) = options.layers_per_split.filter(|&most| most > spec.n_layers) {
        progress.note(&format!("the decoder is one split: {most} layers a split, and the model has {}", spec.n_layers));
    }
    let longest = variants.iter().map(|v| v.cl().get()).max().unwrap_or(0);
    if let Some(trained) = spec.max_positions.filter(|&trained| longest > trained) {
        progress.note(&format!("CL-{longest} is longer than the {trained} positions the model was trained for"));
    }
    match Windows::of(spec, variants.iter().copied()) {
        Windows::Unused => {}
        Windows::Everywhere { tokens } => progress.note(&format!("attention sees the last {tokens} tokens")),
        Windows::Group { tokens, .. } => {
            let n = (0..spec.n_layers).filter(|&layer| spec.is_local(layer)).count();
            progress.note(&format!(
                "{n} of {} layers see the last {tokens} tokens, in a cache of their own",
                spec.n_layers
            ));
        }
    }
    if options.kinds.kv_cache == KvCacheType::U8 && !options.lora.is_empty() {
        progress.note("the scales of the 8-bit cache are those of the model without its LoRA adapters: larger rows of an adapter are clipped");
    }
    if spec.tokens.eos.is_empty() {
        progress.note("the model has no end-of-sequence token: only limits and stop texts end a reply");
    }
}

fn write_json<V: serde::Serialize>(path: &Path, value: &V) -> Result<()> {
    let mut text =
        serde_json::to_string_pretty(value).map_err(|source| CompileError::Json { path: path.into(), source })?;
    text.push('\n');
    fs::write(path, text.as_bytes())
}

fn ascending(widths: &[u32]) -> Vec<u32> {
    let mut widths = widths.to_vec();
    widths.sort_unstable();
    widths.dedup();
    widths
}

/// Last part of a path, also of `.` and `..`.
pub(crate) fn directory_name(path: &Path) -> String {
    let full = path.canonicalize().unwrap_or_else(|_| path.into());
    full.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
