//! Measures how large a model's keys and values become: what the scales of a cache of 8 bits (`KvCacheType::U8`) are made of.
//!
//! The model is compiled with a cache of floats into a folder beside the bundle, runs a text on the embedded backend, and is removed.
//!
//! Needs feature `compile`.

use std::path::Path;
use std::time::Duration;

use compiler::{Amount, CompileError, CompileOptions, GraphKinds, KvPeaks, Progress, Splits, Stage};
use engine::TokenModel;
use file_io::NewFolder;
use genie_types::TokenId;

use crate::model::Bundle;
use crate::{Error, Options, PolicyChoice, open_backend};

/// The text where the caller has none: several kinds, so that no layer stays quiet.
const TEXT: &str = "Once upon a time there was a king who had three daughters, and the youngest of them was so fair that the sun itself, \
    which has seen so much, wondered whenever it shone in her face.\n\n\
    1. Measure the water (250 ml). 2. Heat it to 96 \u{b0}C; 3. wait for 4 minutes.\n\n\
    fn main() {\n    let total: u64 = (1..=10).map(|n| n * n).sum();\n    println!(\"{total}\");\n}\n\n\
    Q: What is the capital of France?\nA: Paris. It lies on the Seine, and about 2,100,000 people live there.\n\n\
    {\"name\": \"Ada\", \"born\": 1815, \"tags\": [\"mathematics\", \"engines\"], \"alive\": false}\n\n\
    Le vent se l\u{e8}ve, il faut tenter de vivre! Der Weg ist das Ziel. \u{4f60}\u{597d}\u{ff0c}\u{4e16}\u{754c}\u{3002}\n\n\
    However, the committee did not agree; in its report of 12 March it asked for more data, better tests and an independent review.";

/// Tokens of the longest context that is used.
const LONGEST: u32 = 512;
/// Tokens of a step.
const WIDEST: u32 = 32;

/// The largest keys and values of each layer while the model that `options` compiles reads `text`, its first 511 tokens. `None`: some
/// lines that are built in.
///
/// # Errors
/// What [`CompileOptions::check`] refuses; those of compiling, opening and running the model.
pub fn kv_peaks(options: &CompileOptions, text: Option<&str>, progress: &mut dyn Progress) -> Result<KvPeaks, Error> {
    match options.check() {
        Err(CompileError::NoKvPeaks) => {}
        checked => checked?,
    }
    let folder = NewFolder::temporary(existing_above(&options.out_dir), "kv-peaks")?;
    let context = options.cls.iter().copied().max().unwrap_or(1).min(LONGEST);
    let floats = CompileOptions {
        out_dir: folder.path().join("bundle"),
        ars: vec![(context / 2).clamp(1, WIDEST)],
        cls: vec![context],
        splits: Splits::Mono,
        layers_per_split: None,
        one_file: false,
        kinds: GraphKinds::default(),
        lora: Vec::new(),
        htp: None,
        ..options.clone()
    };
    // The calls of the caller's backend are for the bundle; this one runs here.
    let open = Options { policy: PolicyChoice::Auto, lets_weights_go: true, ..Options::new() };
    compiler::compile(&floats, &open_backend(&open)?, &mut WithoutNotes(progress))?;
    let bundle = Bundle::read(&floats.out_dir)?;
    let bos = bundle.config().context().bos;
    let mut model = bundle.open(&open)?;
    let mut tokens: Vec<TokenId> = bos.into_iter().chain(model.tokenizer()?.encode(text.unwrap_or(TEXT))?).collect();
    // One is left to be computed; a cache keeps all before it.
    tokens.truncate(context.saturating_sub(1).max(1) as usize);
    let engine = model.engine_mut();
    engine.process(&tokens)?;
    let peaks = engine::kv_peaks(&engine.snapshot()?.image);
    Ok(KvPeaks::new(peaks)?)
}

/// The nearest folder above a bundle that exists.
fn existing_above(bundle: &Path) -> &Path {
    let above = bundle.ancestors().skip(1).find(|folder| folder.is_dir());
    above.unwrap_or(Path::new("."))
}

/// Says what the compiler does, and leaves the notes to the bundle's own compilation.
struct WithoutNotes<'p>(&'p mut dyn Progress);

impl Progress for WithoutNotes<'_> {
    fn begin(&mut self, stage: &Stage, total: Amount) {
        self.0.begin(stage, total);
    }

    fn advanced(&mut self, bytes: u64) {
        self.0.advanced(bytes);
    }

    fn item(&mut self, name: &str, bytes: u64) {
        self.0.item(name, bytes);
    }

    fn working(&mut self, name: &str) {
        self.0.working(name);
    }

    fn timed(&mut self, graph: &str, took: Duration) {
        self.0.timed(graph, took);
    }

    fn end(&mut self, stage: &Stage) {
        self.0.end(stage);
    }

    fn note(&mut self, _text: &str) {}

    fn cancelled(&self) -> bool {
        self.0.cancelled()
    }
}
