//! Text from compiled language models, on an NPU or on this machine's CPU: open a bundle, generate, chat, save, restore.
//!
//! ```
//! use open_genie::{Options, Session, demo};
//!
//! let bundle = demo::bundle()?; // feature `demo`; or the path of a bundle that `genie compile` made
//! let mut session = Session::open(bundle, &Options::new().threads(2))?;
//! session.set_max_tokens(Some(8));
//! for token in session.generate("ROMEO:") {
//!     print!("{}", token?.text);
//! }
//! let reply = session.chat("JULIET:").into_reply()?;
//! eprintln!("\n{}: {:?} tokens/s", reply.stop, reply.kpis.generation_rate());
//! # assert_eq!((reply.tokens.len(), reply.stop.name()), (8, "max-num-tokens"));
//! # Ok::<(), open_genie::Error>(())
//! ```
//!
//! # What is in here
//!
//! | you want to | type |
//! |---|---|
//! | choose backend, SoC, clocks, threads, planner policy | [`Options`], [`BackendChoice`], [`Perf`], [`Pin`], [`PolicyChoice`], [`SharedMemoryChoice`] |
//! | load ops that graphs name and the backend does not have | [`Options::op_package`], [`OpPackage`]; docs/op-packages.md |
//! | look at a bundle before loading it | [`Bundle`] |
//! | generate text, chat, save and restore | [`Session`], [`Prompt`], [`Generation`], [`Token`], [`Template`] |
//! | chat in messages, as the bundle's chat template writes them | [`Conversation`], [`chat_template`] |
//! | apply LoRA adapters, switch them | [`Lora`], [`Session::apply_lora`] |
//! | stop a reply from another thread; or a verification, a measurement | [`StopHandle`]; [`StopFlag`] |
//! | work with tokens and logits; verify a bundle, measure perplexity | [`Model`], [`Verification`], [`Perplexity`] |
//! | speed replies up by drafts | [`Options::speculation`], [`Speculation`], [`LookupSettings`] |
//! | open a bundle on the graphs that its config chooses, plain or fused | [`Bundle::open_either`], [`Opened`], [`PairModel`] |
//! | serve many requests at once | [`serving`]: [`Model::into_serving`] |
//! | run several sequences in one step | [`Model::engine_mut`], [`SequenceModel`], [`SeqTokens`], [`SeqId`] |
//! | turn texts into vectors | [`Encoder`], [`TextEmbedding`] |
//! | compile a model and prove its bundle (feature `compile`) | `compile`, `prove`, `Compiled` |
//! | measure keys and values for a cache of 8 bits (feature `compile`) | `kv_peaks` |
//! | compare with graphs that have no cache (feature `demo`) | `Naive`, `Model::verify_with` |
//! | find a model by one word; compile a checkpoint once, into the cache (feature `compile`) | `models` |
//! | put images into a prompt | [`Session::encode_image`], [`Session::read_rows`], [`Session::add_rows`], [`place_images`] |
//! | plan by measured costs | [`CalibrationContext`] |
//! | know what went wrong and what may help | [`Error`], [`Hint`] |
//!
//! Numbered programs are in `examples/`. [`Model`] and [`Session`] are `Send`.
//!
//! # What it never does
//!
//! It prints nothing, parses no flags, and starts no thread but those of the embedded backend and of the cache, and one that
//! checks large weights once per file.

#![forbid(unsafe_code)]

mod backend;
mod binaries;
mod calibration;
#[cfg(feature = "compile")]
mod compile;
mod config_keys;
mod conversation;
#[cfg(feature = "demo")]
pub mod demo;
mod encoder;
mod error;
mod forecast_prefix;
mod image;
#[cfg(feature = "compile")]
mod kv_peaks;
mod long_context;
mod lora;
mod model;
#[cfg(feature = "compile")]
pub mod models;
#[cfg(feature = "demo")]
mod naive;
mod op_package;
mod opened;
mod options;
mod pair;
mod perplexity;
mod second_model;
mod served_drafts;
pub mod serving;
mod session;
mod speculation;
mod template;
mod threads;
mod tokenizer_check;
mod tokenizer_job;
mod verify;
mod weights;

pub use backend::{load_library, open_backend, register_op_packages};
pub use calibration::CalibrationContext;
pub use chat_template;
#[cfg(feature = "compile")]
pub use compile::{Compiled, Proof, compile, prove, prove_watched};
#[cfg(feature = "compile")]
pub use compiler;
pub use conversation::{Conversation, MESSAGES_FILE, read_messages, remove_messages, write_messages};
pub use dialog::kinds::{LookupSettings, Script};
pub use dialog::sampler;
pub use dialog::{
    DialogError, Grammar, GrammarError, GrammarKind, HarmonyMessage, QueryKpis, Reply, RestoreNote, RestoreReport,
    SamplerCallback, SamplerSettings, SaveFormat, SaveReport, SentenceCode, StopCallback, StopReason, StreamReply,
    WhiteSpace, check_json_schema,
};
pub use encoder::{Encoder, TextEmbedding};
pub use engine::{
    EmbeddingCallback, EmbeddingRows, Grid, LoraSwitch, LutDtype, PrefixCacheFault, SeqTokens, SequenceModel, StopFlag,
    TokenModel,
};
pub use error::{Error, Hint};
pub use forecast_prefix::MadePrefix;
pub use genie_types::TokenId;
pub use image::place_images;
#[cfg(feature = "compile")]
pub use kv_peaks::kv_peaks;
pub use kvmanager::SeqId;
pub use long_context::LongContext;
pub use lora::Lora;
pub use model::{Bundle, Model};
#[cfg(feature = "demo")]
pub use naive::{Naive, NaiveSource};
pub use op_package::OpPackage;
pub use opened::Opened;
pub use options::{BackendChoice, Options, Perf, Pin, PolicyChoice, PrefixCacheOptions, SharedMemoryChoice};
pub use pair::PairModel;
pub use perplexity::Perplexity;
pub use session::{Generation, Prompt, Session, StopHandle, Token};
pub use speculation::{FORECAST_PREFIX, SPECULATIONS, Speculation, SpeculationRow};
pub use template::Template;
pub use threads::{MAX_THREADS, Threads};
pub use verify::{Reference, Verification};
pub use weights::WeightFault;

/// The programs of the READMEs and of the tutorial compile as printed.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../README.md")]
#[doc = include_str!("../../docs/library.md")]
mod readmes {}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Model>();
    is_send::<Session>();
    is_send::<Generation<'_>>();
    is_send::<StopHandle>();
    is_send::<Encoder>();
};
