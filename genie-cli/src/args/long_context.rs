//! `--long-context`, `--reserved-tokens`, `--context-size`: what a full context drops.

use open_genie::{LongContext, Options};

use super::number;

/// Long context.
#[derive(clap::Args, Default, Clone)]
#[command(next_help_heading = "Context")]
pub struct LongContextArgs {
    /// What a full context drops [default: what the config's `longcontext` says]. `window:N`: each token sees the last N;
    /// `shift`: a quarter of the context (`shift:N`: N tokens) goes, the rest moves up, without end; `keydiff`: the rows
    /// whose keys resemble the others, ranked every 32 steps (`keydiff:N`: every N); `none`: nothing, it ends.
    #[arg(long, value_name = "window:N|shift|keydiff|none")]
    pub long_context: Option<LongContext>,
    /// Tokens at the beginning that `--long-context` never drops [default: 0].
    #[arg(long, value_name = "TOKENS", value_parser = number::count, requires = "long_context")]
    pub reserved_tokens: Option<usize>,
    #[command(flatten)]
    pub size: ContextSizeArg,
}

/// `--context-size`.
#[derive(clap::Args, Default, Clone)]
#[command(next_help_heading = "Context")]
pub struct ContextSizeArg {
    /// Most tokens of the dialog [default: the config's; for a window and `keydiff` the positions that the model was
    /// trained for, if more]. Beyond the compiled context with long context only.
    #[arg(long, visible_alias = "ctx-size", value_name = "TOKENS", value_parser = number::at_least_one)]
    pub context_size: Option<usize>,
}

impl ContextSizeArg {
    /// Sets what the flag says.
    pub fn apply(&self, options: Options) -> Options {
        match self.context_size {
            Some(n) => options.context_size(n),
            None => options,
        }
    }
}

impl LongContextArgs {
    /// The context that a checkpoint is compiled for, if the flags say: beyond it goes long context only.
    pub fn compiled_context(&self) -> Option<usize> {
        self.size.context_size.filter(|_| self.long_context.is_none())
    }

    /// Sets what the flags say.
    pub fn apply(&self, mut options: Options) -> Options {
        if let Some(rule) = self.long_context {
            options = options.long_context(rule);
        }
        if let Some(n) = self.reserved_tokens {
            options = options.reserved_tokens(n);
        }
        self.size.apply(options)
    }
}
