//! A bundle's config as this crate and the engine use it: [`genie_bundle::GenieConfig`] with a sampler and an engine's
//! options made of it.

use std::path::Path;

use engine::PairConfig;
use engine::{
    CodeNumbers, CodeTable, DumpOptions, EmbeddingLut, EngineConfig, Eviction, GroupOptions, LoraAdapter, LoraConfig,
    LoraGroup, LutDtype,
};
pub use genie_bundle::config::{
    BackendSettings, BatchingSettings, ConfigError, ContextSettings, EngineRole, GrammarSettings, HarmonySettings,
    KindBlocks, Problem, Target,
};
use genie_bundle::config::{
    EmbeddingSettings, LongContextKind, LongContextSettings, MultiStreamSettings, TableDtype, TableNumbers,
};
use genie_bundle::manifest::PdUpdate;
use genie_bundle::{GenieConfig, config};
use genie_types::TokenId;

use crate::sampler::{SamplerSettings, SettingsError, TokenPenalty};

/// Prefix of the cache group that the engine's own `longcontext` is for.
const DEFAULT_GROUP: &str = "past_";
/// What graphs may take at a time with `enable-graph-switching`: the number that libGenie sets, whatever the chip has.
const SWITCHED_MB: u64 = 1024;

/// A dialog config that has passed every check.
#[derive(Clone, Debug)]
pub struct DialogConfig {
    genie: GenieConfig,
    sampler: SamplerSettings,
    context: ContextSettings,
    engine: EngineConfig,
}

impl DialogConfig {
    /// Reads and checks a config file, and that the files it names are there.
    ///
    /// # Errors
    /// Unreadable, not JSON, not valid, not supported, or files missing; see [`ConfigError`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::new(GenieConfig::from_file(path)?)
    }

    /// Checks a config that is in memory. Relative paths in it start at `base`; files are not looked at.
    ///
    /// # Errors
    /// Not JSON, not valid or not supported.
    pub fn from_json(text: &str, base: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::new(GenieConfig::from_json(text, base)?)
    }

    /// Wraps a config that was read.
    ///
    /// # Errors
    /// Sampler settings that no sampler can work with.
    pub fn new(genie: GenieConfig) -> Result<Self, ConfigError> {
        let sampler = sampler(genie.sampler()).map_err(|e| {
            let at = if e.key.ends_with("penalty") { "token-penalty/" } else { "" };
            let message = format!("expected {}, found {}", e.expected, e.value);
            let problem = Problem::new(format!("/dialog/sampler/{at}{}", e.key), message);
            ConfigError::Invalid { origin: genie.origin().clone(), problems: vec![problem] }
        })?;
        let engine = engine(&genie);
        Ok(Self { context: genie.context().clone(), genie, sampler, engine })
    }

    /// The same config with the other engine of two (`secondary`, `draft`) as its only one; `None` if there is one.
    #[must_use]
    pub fn of_second_engine(&self) -> Option<Self> {
        let genie = self.genie.of_second_engine()?;
        let mut engine = engine(&genie);
        engine.context_size = self.engine.context_size;
        Some(Self { genie, engine, ..self.clone() })
    }

    /// The file that says which id of a draft model is which of the target's, if there is one.
    pub fn draft_token_map(&self) -> Option<&Path> {
        self.genie.draft_token_map()
    }

    /// What the engine is to the dialog.
    pub fn role(&self) -> EngineRole {
        self.genie.engine().role
    }

    /// What the blocks of the dialog kinds say.
    pub fn kind_blocks(&self) -> &KindBlocks {
        self.genie.kind_blocks()
    }

    /// The dialog's kind: Genie's `type`.
    pub fn kind(&self) -> &str {
        self.genie.kind()
    }

    /// The config's folder, where relative paths start.
    pub fn base(&self) -> &Path {
        self.genie.base()
    }

    /// How requests share steps where many are served, if the config says it.
    pub fn batching(&self) -> Option<&BatchingSettings> {
        self.genie.engine().batching.as_ref()
    }

    /// Special tokens and the context's size.
    pub fn context(&self) -> &ContextSettings {
        &self.context
    }

    /// The same with another context size than the config's.
    #[must_use]
    pub fn with_context_size(mut self, size: usize) -> Self {
        self.context.size = size;
        self.engine.context_size = Some(size);
        self
    }

    /// How tokens are drawn.
    pub fn sampler(&self) -> &SamplerSettings {
        &self.sampler
    }

    /// The name of the function that chooses tokens, for sampler type `custom`.
    pub fn sampler_callback(&self) -> Option<&str> {
        let block = self.genie.sampler();
        block.callback_name.as_deref().filter(|_| block.kind.as_deref() == Some("custom"))
    }

    /// The Hugging Face `tokenizer.json`, absolute if the base was.
    pub fn tokenizer(&self) -> &Path {
        self.genie.tokenizer()
    }

    /// What the engine is to be opened with; clone it to change what the config does not contain (policy, cache mode).
    pub fn engine(&self) -> &EngineConfig {
        &self.engine
    }

    /// What the QNN library is to be opened with.
    pub fn backend(&self) -> &BackendSettings {
        self.genie.backend()
    }

    /// The grammar of replies, if there is one.
    pub fn grammar(&self) -> Option<&GrammarSettings> {
        self.genie.grammar()
    }

    /// The streams of a `multistream` dialog.
    pub fn multistream(&self) -> Option<MultiStreamSettings> {
        self.genie.multistream()
    }

    /// Texts that end a turn; none is empty.
    pub fn stop_sequences(&self) -> &[String] {
        self.genie.stop_sequences()
    }

    /// Most tokens to generate in a turn, if limited.
    pub fn max_num_tokens(&self) -> Option<usize> {
        self.genie.max_num_tokens()
    }

    /// The response format of replies that are messages.
    pub fn harmony(&self) -> Option<HarmonySettings> {
        self.genie.harmony()
    }

    /// Keys that are valid but do nothing, or something else than the writer may expect.
    pub fn warnings(&self) -> &[Problem] {
        self.genie.warnings()
    }

    /// Keys that act on other backends, but not on this one.
    pub fn warnings_on(&self, target: Target) -> &[Problem] {
        self.genie.warnings_on(target)
    }
}

fn sampler(block: &config::SamplerSettings) -> Result<SamplerSettings, SettingsError> {
    // A seed of -1 asks for a random one; other negative seeds are taken bit for bit, as C does.
    let seed = block.seed.filter(|seed| *seed != -1).map(i32::cast_unsigned);
    let mut s = SamplerSettings::default().with_seed(seed).with_greedy(block.greedy);
    if let Some(temp) = block.temp {
        s = s.with_temp(temp)?;
    }
    if let Some(k) = block.top_k {
        s = s.with_top_k(k);
    }
    if let Some(p) = block.top_p {
        s = s.with_top_p(p)?;
    }
    if let Some(p) = &block.token_penalty {
        let off = TokenPenalty::default();
        s = s.with_penalty(TokenPenalty {
            last_n: p.penalize_last_n.unwrap_or(off.last_n),
            repetition: p.repetition_penalty.unwrap_or(off.repetition),
            presence: p.presence_penalty.unwrap_or(off.presence),
            frequency: p.frequency_penalty.unwrap_or(off.frequency),
        })?;
        if p.repetition_penalty.is_none() {
            s = s.with_repetition_absent();
        }
    }
    Ok(s)
}

fn engine(genie: &GenieConfig) -> EngineConfig {
    let (from, context) = (genie.engine(), genie.context());
    let mut config = EngineConfig::new(&from.ctx_bins);
    config.context_size = Some(context.size);
    config.n_threads = from.n_threads;
    config.rope = from.rope("").cloned();
    let ropes = from.positions.iter().filter(|p| !p.prefix.is_empty());
    config.prefixed_ropes = ropes.filter_map(|p| Some((p.prefix.clone(), p.rope.clone()?))).collect();
    config.positions = from.positions.first().map(|p| p.kind);
    // Genie's rule: the pad token, else the first EOS. Padded rows are masked, so any id does.
    config.pad_token = context.pad.or(context.eos.first().copied()).unwrap_or(TokenId(0));
    let group = |g: &config::CacheGroupSettings| GroupOptions {
        prefix: g.prefix.clone(),
        mask: g.attention_mask_tensor_name.clone(),
        index: g.cache_index_tensor_name.clone(),
    };
    config.cache_groups = from.cache_groups.iter().map(group).collect();
    let of_engine = from.long_context.iter().map(|long| (DEFAULT_GROUP, long));
    let of_groups = from.cache_groups.iter().filter_map(|g| Some((g.prefix.as_str(), g.long_context.as_ref()?)));
    for (prefix, long) in of_engine.chain(of_groups) {
        config.long_context.push((prefix.to_owned(), eviction(long)));
        if let LongContextKind::KeyDiff { anchor_alpha, scoring_network, .. } = &long.kind {
            config.anchor_alpha = *anchor_alpha;
            config.scoring_network.clone_from(scoring_network);
        }
    }
    config.select_graphs = (!from.select_graphs.is_empty()).then(|| from.select_graphs.clone());
    config.embedding = from.embedding.as_ref().map(embedding);
    config.lora = lora(&from.lora);
    config.use_mmap = genie.backend().use_mmap;
    config.mmap_budget_mb = genie.backend().mmap_budget_mb;
    config.spill_fill_bytes = genie.backend().spill_fill_bytes;
    config.batch_size = genie.backend().batch_size;
    config.memory_limit_mb = if genie.backend().graph_switching { SWITCHED_MB } else { 0 };
    config.data_alignment = genie.backend().data_alignment;
    config.retention_order = genie.backend().retention_order.clone();
    config.dump = genie.debug().map(dump);
    config.pd = from.pd_fusion.as_ref().map(|pd| PairConfig {
        enable: pd.enable,
        total_len: pd.total_len,
        prefill_len: pd.prefill_len,
        in_place: pd.in_place,
        last_row_unused: pd.kv_update != Some(PdUpdate::Op),
    });
    config
}

fn dump(debug: &config::DebugSettings) -> DumpOptions {
    DumpOptions {
        folder: debug.path.clone(),
        tensors: debug.dump_tensors,
        specs: debug.dump_specs,
        outputs: debug.dump_outputs,
        first: debug.dump_start.unwrap_or(0),
        last: debug.dump_end.unwrap_or(DumpOptions::LAST),
    }
}

fn lora(from: &config::LoraSettings) -> LoraConfig {
    let adapter = |a: &config::LoraAdapterSettings| LoraAdapter {
        name: a.name.clone(),
        alphas: a.alphas.clone(),
        bin_sections: a.bin_sections.clone(),
    };
    let group = |g: &config::LoraGroupSettings| LoraGroup {
        name: g.name.clone(),
        members: g.members.clone(),
        quant_bin_sections: g.quant_bin_sections.clone(),
    };
    LoraConfig {
        adapters: from.adapters.iter().map(adapter).collect(),
        groups: from.groups.iter().map(group).collect(),
        alphas: from.alpha_tensor.iter().cloned().collect(),
    }
}

fn eviction(long: &LongContextSettings) -> Eviction {
    let sinks = long.reserved_tokens;
    match long.kind {
        LongContextKind::SlidingWindow { window_size } => Eviction::Window { size: window_size, sinks },
        LongContextKind::KeyDiff { update_frequency, .. } => {
            Eviction::KeyDiff { sinks, update_every: update_frequency }
        }
    }
}

fn embedding(table: &EmbeddingSettings) -> EmbeddingLut {
    let dtype = match table.dtype.clone() {
        TableDtype::Float32 => LutDtype::Float32,
        TableDtype::Native => LutDtype::Native,
        TableDtype::Fixed { dtype, scale, offset } => LutDtype::Fixed { dtype, scale, offset },
        TableDtype::Codes { bits, signed, scale, offset } => {
            LutDtype::Codes(CodeTable { bits, signed, scale: numbers(scale), offset: numbers(offset) })
        }
    };
    EmbeddingLut { path: table.path.clone(), size: table.size, dtype }
}

fn numbers<T>(from: TableNumbers<T>) -> CodeNumbers<T> {
    match from {
        TableNumbers::One(number) => CodeNumbers::One(number),
        TableNumbers::File(path) => CodeNumbers::File(path),
    }
}

#[cfg(test)]
mod tests;
