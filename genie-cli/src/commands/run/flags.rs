//! The flags of `genie run`.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::args::number;
use crate::args::{
    BackendArgs, BundleArgs, ChatArgs, EmbeddingFile, GrammarArgs, ImageArgs, LongContextArgs, LoraArgs, PolicyArg,
    SamplerArgs, SocArgs, SpeculationArgs, StopArgs, ThreadArgs,
};

/// Flags of `genie run`.
#[derive(clap::Args)]
pub struct Args {
    /// The model, as for `--model`, then the prompt. One word is the model, or the prompt where a flag names the model. Without a
    /// prompt stdin is read where it is a pipe or a file; at a terminal a chat begins.
    #[arg(value_names = ["MODEL", "PROMPT"], num_args = 0..=2)]
    pub words: Vec<String>,
    /// The prompt.
    #[arg(long, short, allow_hyphen_values = true, conflicts_with_all = ["prompt_file", "prompt_tokens"])]
    pub prompt: Option<String>,
    /// Read the prompt from a file, or from stdin with `-`.
    #[arg(long, short = 'f', alias = "prompt_file", value_name = "FILE", conflicts_with = "prompt_tokens")]
    pub prompt_file: Option<PathBuf>,
    /// Process `\n`, `\t`, `\x41`, `\u{e9}` and the like in the prompt.
    #[arg(long, short = 'e', conflicts_with_all = ["prompt_tokens", "embedding_file"])]
    pub escape: bool,
    /// Keep control tokens that are written in the prompt, such as `<|eot_id|>`, as text: for text that others wrote.
    #[arg(long, conflicts_with_all = ["prompt_tokens", "embedding_file", "prompts"])]
    pub no_parse_special: bool,
    /// Token ids instead of text; the BOS token is put before them, as in Genie's token queries.
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = number::count_u32)]
    pub prompt_tokens: Option<Vec<u32>>,
    /// Token ids from a file, or from stdin with `-`: parted by commas, spaces or lines.
    #[arg(long, alias = "tokens_file", value_name = "FILE", conflicts_with_all = ["prompt", "prompt_file", "prompt_tokens", "prompts", "embedding_file", "escape", "no_parse_special"])]
    pub tokens_file: Option<PathBuf>,
    /// Several prompts at once, one in each line of a file (`-` for stdin). Each line of the output is led by its prompt's number,
    /// `1| `.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "prompt_file", "prompt_tokens", "streams", "save", "restore"])]
    pub prompts: Option<PathBuf>,
    /// Rows of embeddings instead of text, for models that take them: a raw file of little-endian numbers. TYPE is `float32`
    /// (default), `native` (the type of the graphs' input), `ufixed8`, `ufixed16`, `sfixed8` or `sfixed16`.
    #[arg(long, alias = "embedding_file", value_name = "FILE[,TYPE[,SCALE,OFFSET]]", conflicts_with_all = ["prompt", "prompt_file", "prompt_tokens"])]
    pub embedding_file: Option<EmbeddingFile>,
    #[command(flatten)]
    pub stops: StopArgs,
    /// Give the prompt as it is, also where the bundle has a chat template.
    #[arg(long, conflicts_with_all = ["chat_template", "system"])]
    pub raw: bool,
    #[command(flatten)]
    pub chat: ChatArgs,
    /// Generate N replies at once, which begin with the prompt's likeliest first tokens. Each line is led by its reply's number,
    /// `1| `; a dialog that is saved goes on with the first [default: those of the config's `multistream`].
    #[arg(long, value_name = "N", value_parser = number::at_least_one)]
    pub streams: Option<usize>,
    /// A first token that is less likely begins no reply.
    #[arg(long, value_name = "P", value_parser = number::probability, requires = "streams")]
    pub p_threshold: Option<f64>,
    #[command(flatten)]
    pub bundle: BundleArgs,
    /// Print one JSON line at the end instead of streaming text: tokens, text, stop reason, executed graphs and KPIs.
    #[arg(long)]
    pub json: bool,
    /// Print time to first token (ms) and token rates (tokens/s) to stderr at the end.
    #[arg(long)]
    pub stats: bool,
    /// Write the times and rates of loading and of the query to a new file, in the JSON format of Genie's profiles.
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Include the backend's per-graph timings under `graphs`. Adds overhead.
    #[arg(long, value_enum, value_name = "LEVEL", requires = "profile")]
    pub graph_profile: Option<GraphProfileArg>,
    /// Note how likely each token was, and the N most likely ones, in the record of `--json`.
    #[arg(long, value_name = "N", value_parser = number::count, requires = "json")]
    pub logprobs: Option<usize>,
    #[command(flatten)]
    pub grammar: GrammarArgs,
    #[command(flatten)]
    pub sampler: SamplerArgs,
    #[command(flatten)]
    pub images: ImageArgs,
    #[command(flatten)]
    pub backend: BackendArgs,
    #[command(flatten)]
    pub soc: SocArgs,
    /// Planner policy.
    #[arg(long, value_enum, default_value_t)]
    pub policy: PolicyArg,
    #[command(flatten)]
    pub long_context: LongContextArgs,
    #[command(flatten)]
    pub lora: LoraArgs,
    #[command(flatten)]
    pub speculation: SpeculationArgs,
    #[command(flatten)]
    pub threads: ThreadArgs,
    #[command(flatten)]
    pub saved: SavedArgs,
}

impl Args {
    /// Whether a flag asks for something that a chat has not.
    pub fn states_more(&self) -> bool {
        let saved = &self.saved;
        saved.save.is_some()
            || saved.rewind
            || saved.prefix_cache.is_some()
            || saved.kv_mode.is_some()
            || saved.dynamic_load
            || self.profile.is_some()
            || self.stats
            || self.escape
            || self.no_parse_special
    }

    /// Whether a flag gives the prompt.
    pub fn states_prompt(&self) -> bool {
        self.prompt.is_some()
            || self.prompt_file.is_some()
            || self.prompt_tokens.is_some()
            || self.tokens_file.is_some()
            || self.prompts.is_some()
            || self.embedding_file.is_some()
    }
}

/// How detailed the backend's timings are.
#[derive(Clone, Copy, ValueEnum)]
pub enum GraphProfileArg {
    /// One time per graph execution.
    Basic,
    /// Times of nodes as well.
    Detailed,
}

/// What is kept between runs, and the layout of the cache.
#[derive(clap::Args, Default, Clone)]
#[command(next_help_heading = "Sessions and caches")]
pub struct SavedArgs {
    /// Save the dialog into this folder at the end: Genie's files, and a snapshot with checksums.
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
    /// Continue a dialog that this program or Genie saved.
    #[arg(long, short, value_name = "DIR")]
    pub restore: Option<PathBuf>,
    /// Treat the prompt as the whole conversation: rewind to the prefix that it shares with the restored dialog.
    #[arg(long, short = 'w', requires = "restore")]
    pub rewind: bool,
    /// Keep the caches of prompts in this folder, and start from the longest stored prefix of the prompt.
    #[arg(long, value_name = "DIR")]
    pub prefix_cache: Option<PathBuf>,
    /// Size limit of the prefix cache, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = number::mebibytes, requires = "prefix_cache")]
    pub prefix_cache_mib: u64,
    /// Shortest prefix to store, in tokens.
    #[arg(long, alias = "prefix-min", value_name = "TOKENS", default_value_t = 128, value_parser = number::count, requires = "prefix_cache")]
    pub prefix_min_tokens: usize,
    /// Layout of the KV cache [default: the bundle's].
    #[arg(long, value_name = "smart-mask|shift-concat|pointer-shift|native-kv")]
    pub kv_mode: Option<String>,
    /// Load each context binary when one of its graphs is to run, and free it when another's is.
    #[arg(long)]
    pub dynamic_load: bool,
}
