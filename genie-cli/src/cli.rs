//! The flags of every command, as clap reads them.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use qnn_api::PerfPolicy;

/// Generate text from compiled, fixed-shape graphs: on a Hexagon NPU, or right here.
#[derive(Parser)]
#[command(name = "genie", version, propagate_version = true)]
pub struct Cli {
    #[command(flatten)]
    pub talk: Verbosity,
    #[command(subcommand)]
    pub command: Command,
}

/// How much is said on stderr.
#[derive(Args, Clone, Copy)]
pub struct Verbosity {
    /// Say nothing but errors.
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more; twice for everything that the libraries log.
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

#[derive(Subcommand)]
pub enum Command {
    /// Prompt in, text out.
    Run(RunArgs),
    /// Make a bundle of compiled graphs from a Hugging Face model folder.
    Compile(CompileArgs),
    /// Show the graphs, variants, splits, tensors and sizes of a bundle or a context binary.
    Inspect(InspectArgs),
    /// Show which graphs would run for a number of tokens, under each policy.
    Plan(PlanArgs),
    /// Measure a bundle: prefill and decode rates, or with `--calibrate` the times that `--policy cost` plans by.
    Bench(BenchArgs),
    /// Prove a bundle: generate with the cache and with full recomputation, and compare.
    Verify(VerifyArgs),
    /// Measure how well a bundle foretells a text: nats a token and perplexity.
    Perplexity(PerplexityArgs),
    /// Say what will go wrong with a bundle on a device, before anything is loaded there.
    Doctor(DoctorArgs),
}

/// Which QNN library executes the graphs.
#[derive(Args, Clone)]
pub struct BackendArgs {
    /// `host` for the embedded backend, `htp` for Qualcomm's libQnnHtp.so wherever it is found, or the path of a QNN library.
    /// A config's own backend type is not looked at.
    #[arg(long, default_value = "host", value_name = "host|htp|PATH")]
    pub backend: String,
    /// The backend's library itself, instead of the one that `--backend` finds.
    #[arg(long, value_name = "PATH")]
    pub backend_lib: Option<PathBuf>,
    /// The system library that reads context binaries, when it is not beside the backend.
    #[arg(long, value_name = "PATH")]
    pub system_lib: Option<PathBuf>,
}

/// What an HTP backend is told about its chip.
#[derive(Args, Clone, Default)]
pub struct ChipArgs {
    /// The chip to run on or to emulate, by name or by Qualcomm's number [default: the extension config's, else the
    /// library's choice].
    #[arg(long, value_name = "SOC")]
    pub soc: Option<String>,
    /// How fast the chip runs: a performance policy, or `none` to leave its clocks alone [default: the extension config's,
    /// else burst].
    #[arg(long, value_name = "POLICY", value_parser = perf_names())]
    pub perf: Option<String>,
}

/// What `--perf` calls no vote for the clocks.
pub const NO_VOTE: &str = "none";

fn perf_names() -> clap::builder::PossibleValuesParser {
    PerfPolicy::ALL.iter().map(|policy| policy.name()).chain([NO_VOTE]).collect::<Vec<_>>().into()
}

/// How much of a graph's time the backend tells.
#[derive(Clone, Copy, ValueEnum)]
pub enum GraphProfileArg {
    /// Times of whole executions.
    Basic,
    /// Times of nodes as well.
    Detailed,
}

/// The order in which graphs are picked.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PolicyArg {
    /// What the real Genie does, and on where it gives up although the context has room.
    #[value(alias = "serve")]
    Lenient,
    /// Exactly what the real Genie does: the same graphs, and status 4 where it gives up.
    Genie,
    /// One variant for the whole input, re-picked at a context promotion only.
    FixedVariant,
    /// Cheapest by a table of step costs.
    Cost,
}

#[derive(Args)]
pub struct RunArgs {
    /// The prompt.
    #[arg(long, short, conflicts_with_all = ["prompt_file", "prompt_tokens"])]
    pub prompt: Option<String>,
    /// Read the prompt from a file, or from stdin with `-`.
    #[arg(long, short = 'f', value_name = "FILE", conflicts_with = "prompt_tokens")]
    pub prompt_file: Option<PathBuf>,
    /// Feed token ids instead of text; BOS is put before them, as Genie's token query does.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub prompt_tokens: Option<Vec<u32>>,
    /// Most tokens to generate [default: the config's, else 200 for the demo, else until the context is full].
    #[arg(long, short = 'n', value_name = "TOKENS")]
    pub max_tokens: Option<u32>,
    /// The bundle's `genie_config.json`, or its folder; without it the built-in demo model runs.
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// End with one JSON line of tokens, text, stop reason, executed graphs and KPIs; no text is streamed.
    #[arg(long)]
    pub json: bool,
    /// Print time to first token and token rates when done.
    #[arg(long)]
    pub stats: bool,
    /// Write times and rates of loading and of the query to a new file, in the JSON of Genie's profiles.
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Add what the backend tells about the time of each graph, under `graphs`; slows it down.
    #[arg(long, value_enum, value_name = "LEVEL", requires = "profile")]
    pub graph_profile: Option<GraphProfileArg>,
    #[command(flatten)]
    pub sampler: SamplerArgs,
    #[command(flatten)]
    pub backend: BackendArgs,
    #[command(flatten)]
    pub chip: ChipArgs,
    /// Planner policy.
    #[arg(long, value_enum, default_value = "lenient")]
    pub policy: PolicyArg,
    #[command(flatten)]
    pub threads: ThreadArgs,
    #[command(flatten)]
    pub saved: SavedArgs,
}

/// Threads of the embedded backend.
#[derive(Args, Default, Clone)]
pub struct ThreadArgs {
    /// Threads of the embedded backend [default: all cores, or those of `--pin`].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Keep the embedded backend's threads on these cores, the first one on the first and so on; `config` takes those of
    /// the config's `cpu-mask`.
    #[arg(long, value_name = "CORE,CORE|config")]
    pub pin: Option<PinArg>,
}

/// Where threads are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinArg {
    /// On these cores.
    Cores(Vec<usize>),
    /// On those of the config's mask.
    Config,
}

impl FromStr for PinArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "config" {
            return Ok(Self::Config);
        }
        let core = |one: &str| one.trim().parse().map_err(|_| format!("expected a core's number, found `{one}`"));
        text.split(',').map(core).collect::<Result<_, _>>().map(Self::Cores)
    }
}

/// What is kept between runs, and how the cache lies.
#[derive(Args, Default, Clone)]
pub struct SavedArgs {
    /// Save the dialog into this folder when done, as Genie does and once more in a checked file.
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
    /// Go on with a dialog that this program or Genie has saved.
    #[arg(long, value_name = "DIR")]
    pub restore: Option<PathBuf>,
    /// The prompt is the whole conversation: go back to what it shares with the restored one.
    #[arg(long)]
    pub rewind: bool,
    /// Keep the caches of prompts in this folder, and begin with the longest known beginning.
    #[arg(long, value_name = "DIR")]
    pub prefix_cache: Option<PathBuf>,
    /// Most that the prefix cache may hold, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub prefix_cache_mib: u64,
    /// Shortest beginning that is worth keeping, in tokens.
    #[arg(long, value_name = "TOKENS", default_value_t = 128)]
    pub prefix_min: usize,
    /// How cache rows lie and move [default: what the bundle asks for].
    #[arg(long, value_name = "smart-mask|shift-concat|pointer-shift|native-kv")]
    pub kv_mode: Option<String>,
}

/// Sampler settings that override the config's.
#[derive(Args, Default, Clone)]
pub struct SamplerArgs {
    /// Temperature; 0 takes the most likely token.
    #[arg(long)]
    pub temp: Option<f32>,
    /// Keep the K most likely tokens; 0 keeps all.
    #[arg(long, value_name = "K")]
    pub top_k: Option<u32>,
    /// Keep the most likely tokens up to this probability; 1 keeps all.
    #[arg(long, value_name = "P")]
    pub top_p: Option<f32>,
    /// Seed of the random draws; -1 for a new one each time.
    #[arg(long, allow_negative_numbers = true)]
    pub seed: Option<i32>,
    /// Always the most likely token.
    #[arg(long)]
    pub greedy: bool,
    /// Divide the logits of recent tokens by this; 1 is off.
    #[arg(long, value_name = "R")]
    pub repetition_penalty: Option<f32>,
    /// How many recent tokens are penalised.
    #[arg(long, value_name = "N")]
    pub penalize_last_n: Option<u32>,
}

/// How the decoder is cut into context binaries.
#[derive(Clone, Copy, ValueEnum)]
pub enum SplitsArg {
    /// The decoder and the LM head, in one binary; with `--target`, uncut if the limit of 2 GiB a file allows it, else in
    /// as few as it does.
    Auto,
    /// Uncut: each graph holds everything.
    Mono,
    /// The decoder, then the LM head.
    DecoderLmhead,
    /// The embedding table, the decoder, the LM head.
    LutDecoderLmhead,
}

/// Type of weights and activations.
#[derive(Clone, Copy, ValueEnum)]
pub enum PrecisionArg {
    /// float32.
    F32,
    /// float16, with float32 sums.
    F16,
}

/// How the weights of linear layers are stored.
#[derive(Clone, Copy, ValueEnum)]
pub enum WeightsArg {
    /// In the type of the activations.
    Float,
    /// int8 with one scale for each output channel.
    W8,
    /// 4 bits with one scale for each output channel.
    W4,
    /// int8 in blocks of 32 inputs, as GGUF's Q8_0; embedded backend only.
    #[value(name = "q8_0")]
    Q8,
    /// 4 bits in blocks of 32 inputs, as GGUF's Q4_0, embeddings as q8_0; embedded backend only.
    #[value(name = "q4_0")]
    Q4,
}

/// Compiling for a Hexagon chip with Qualcomm's `libQnnHtp.so`.
#[derive(Args)]
pub struct TargetArgs {
    /// Compile for this chip instead of this machine: sm8550, sm8650, sm8750, sm8850, x-elite and others. Needs
    /// `libQnnHtp.so`: what `cargo xtask qnn-runtime` fetched, or `--backend-lib`.
    #[arg(long, value_name = "CHIP")]
    pub target: Option<String>,
    /// How fast the bundle asks the chip to run: a performance policy.
    #[arg(long, value_name = "POLICY", default_value = "burst")]
    pub perf: String,
    /// One copy of the weights for all graphs of a file. Devices load such files, the x86 emulator does not.
    #[arg(long, requires = "target")]
    pub share_weights: bool,
}

#[derive(Args)]
pub struct CompileArgs {
    /// Folder with config.json, safetensors and tokenizer.json; or a GGUF file.
    pub model: PathBuf,
    /// The bundle's folder.
    #[arg(long, short, value_name = "BUNDLE")]
    pub output: PathBuf,
    /// Input widths, in tokens.
    #[arg(long, value_delimiter = ',', default_value = "1,32,128", value_name = "N,N")]
    pub ar: Vec<u32>,
    /// Context lengths, in tokens.
    #[arg(long, value_delimiter = ',', default_value = "512,2048", value_name = "N,N")]
    pub cl: Vec<u32>,
    /// Where the model is cut.
    #[arg(long, value_enum, default_value = "auto")]
    pub splits: SplitsArg,
    /// Decoder layers in one split [default: all, or as many as the file limit allows].
    #[arg(long, value_name = "LAYERS")]
    pub layers_per_split: Option<usize>,
    /// Type of activations, and of weights that `--weights` does not quantise.
    #[arg(long, value_enum, default_value = "f16")]
    pub precision: PrecisionArg,
    /// How the weights of linear layers are stored.
    #[arg(long, value_enum, default_value = "float")]
    pub weights: WeightsArg,
    #[command(flatten)]
    pub target: TargetArgs,
    /// Replace an existing bundle.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub backend: BackendArgs,
}

#[derive(Args)]
pub struct InspectArgs {
    /// A context binary, a bundle's folder, or its genie_config.json.
    pub path: PathBuf,
    /// One JSON document.
    #[arg(long)]
    pub json: bool,
    /// List every tensor, not only the counts.
    #[arg(long)]
    pub tensors: bool,
    #[command(flatten)]
    pub backend: BackendArgs,
}

#[derive(Args)]
pub struct PlanArgs {
    /// Input widths, in tokens.
    #[arg(long, value_delimiter = ',', default_value = "1,32,128", value_name = "N,N")]
    pub ar: Vec<u32>,
    /// Context lengths, in tokens.
    #[arg(long, value_delimiter = ',', default_value = "512,2048", value_name = "N,N")]
    pub cl: Vec<u32>,
    /// Take the variants from a bundle instead.
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["ar", "cl"])]
    pub config: Option<PathBuf>,
    /// Numbers of new tokens to plan for.
    #[arg(required = true, value_name = "TOKENS")]
    pub tokens: Vec<usize>,
    /// Tokens already in the cache.
    #[arg(long, default_value_t = 0)]
    pub n_past: usize,
    /// Only this policy.
    #[arg(long, value_enum)]
    pub policy: Option<PolicyArg>,
    /// One JSON line a plan.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub backend: BackendArgs,
}

#[derive(Args)]
pub struct BenchArgs {
    /// The bundle's `genie_config.json`, or its folder; without it the built-in demo model is measured.
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Measure each variant's step and the changes between them, and write `calibration.json` into the bundle.
    #[arg(long)]
    pub calibrate: bool,
    /// Prompt lengths to prefill, in tokens.
    #[arg(long, value_delimiter = ',', default_value = "128,512", value_name = "N,N")]
    pub pp: Vec<usize>,
    /// Numbers of tokens to decode, one by one.
    #[arg(long, value_delimiter = ',', default_value = "64", value_name = "N,N")]
    pub tg: Vec<usize>,
    /// Tokens in the cache before decoding begins; every `--tg` is measured at each of them.
    #[arg(long, value_delimiter = ',', default_value = "0", value_name = "N,N")]
    pub fill: Vec<usize>,
    /// Runs of each; one more before them is not counted.
    #[arg(long, default_value_t = 5)]
    pub reps: usize,
    /// Measure memory bandwidth and arithmetic peaks as well, on as many threads; then rates are told as shares of them.
    #[arg(long)]
    pub limits: bool,
    /// Tell where the time of each test goes, op by op; each is run again for it.
    #[arg(long)]
    pub profile: bool,
    /// Write the last step of each test as a Chrome trace: ops in graphs in the step.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Draw tokens a second against prompt length and context fill, as an SVG.
    #[cfg(feature = "plot")]
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Planner policy.
    #[arg(long, value_enum, default_value = "lenient")]
    pub policy: PolicyArg,
    #[command(flatten)]
    pub threads: ThreadArgs,
    /// One JSON line a measure.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub backend: BackendArgs,
}

#[derive(Args)]
pub struct VerifyArgs {
    /// The bundle's folder or its genie_config.json.
    pub bundle: PathBuf,
    /// Tokens to generate for each prompt length.
    #[arg(long, short = 'n', default_value_t = 200)]
    pub tokens: usize,
    /// Prompt lengths [default: 1, AR-1, AR, AR+1, 2*AR+3 and the longest that leaves room, AR being the largest].
    #[arg(long, value_delimiter = ',')]
    pub lengths: Option<Vec<usize>>,
    /// Largest allowed difference of logits, relative to the largest logit.
    #[arg(long)]
    pub tolerance: Option<f32>,
    /// One JSON line a prompt length.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub backend: BackendArgs,
    #[command(flatten)]
    pub chip: ChipArgs,
    /// Planner policy.
    #[arg(long, value_enum, default_value = "lenient")]
    pub policy: PolicyArg,
}

#[derive(Args)]
pub struct PerplexityArgs {
    /// The text, or `-` for stdin.
    pub file: PathBuf,
    /// The bundle's `genie_config.json`, or its folder; without it the built-in demo model is measured.
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Tokens of a window; each begins afresh [default: the context length].
    #[arg(long, value_name = "TOKENS")]
    pub window: Option<usize>,
    /// Measure only so many windows from the start of the text [default: all].
    #[arg(long, value_name = "WINDOWS")]
    pub max_windows: Option<usize>,
    /// One JSON document.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub backend: BackendArgs,
    #[command(flatten)]
    pub chip: ChipArgs,
    /// Planner policy.
    #[arg(long, value_enum, default_value = "lenient")]
    pub policy: PolicyArg,
    #[command(flatten)]
    pub threads: ThreadArgs,
}

#[derive(Args)]
pub struct DoctorArgs {
    /// A bundle's folder, its genie_config.json, or a context binary; without it, this machine's libraries only.
    pub bundle: Option<PathBuf>,
    /// The device that is to run it: a chip's name or Qualcomm's number [default: this machine, if it is one].
    #[arg(long, value_name = "sm8650|x-elite|57|..")]
    pub soc: Option<String>,
    /// Look for QNN's libraries in this folder first.
    #[arg(long, value_name = "DIR")]
    pub libs: Option<PathBuf>,
    /// The Genie API that is to read the config [default: that of the libraries' release].
    #[arg(long, value_name = "1.21")]
    pub genie_api: Option<String>,
    /// One JSON document.
    #[arg(long)]
    pub json: bool,
    /// End with 1 on warnings, too.
    #[arg(long)]
    pub strict: bool,
    /// Do not compare the content of files with the manifest's hashes.
    #[arg(long)]
    pub quick: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn flags_are_consistent() {
        super::Cli::command().debug_assert();
    }
}
