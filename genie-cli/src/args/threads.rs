//! `--threads`, `--pin`: the threads of the embedded backend.

use std::str::FromStr;

use open_genie::{MAX_THREADS, Options, Pin};

/// Threads of the embedded backend.
#[derive(clap::Args, Default, Clone)]
#[command(next_help_heading = "Backend")]
pub struct ThreadArgs {
    /// Threads of the embedded backend [default: one per core, or per core of `--pin`].
    #[arg(long, value_name = "N", value_parser = count)]
    pub threads: Option<usize>,
    /// Pin the embedded backend's threads to these cores, one each in this order; `config` takes the cores of the config's
    /// `cpu-mask` [default: not pinned].
    #[arg(long, value_name = "CORE,CORE|config")]
    pub pin: Option<PinArg>,
}

/// A number of threads that the embedded backend takes.
pub fn count(text: &str) -> Result<usize, String> {
    let within = |n: &usize| (1..=MAX_THREADS).contains(n);
    text.parse().ok().filter(within).ok_or_else(|| format!("expected a number from 1 to {MAX_THREADS}"))
}

/// The cores that threads are pinned to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinArg {
    /// These cores.
    Cores(Vec<usize>),
    /// The cores of the config's mask.
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

impl ThreadArgs {
    /// Sets them in options.
    pub fn apply(&self, options: Options) -> Options {
        let options = match self.threads {
            Some(n) => options.threads(n),
            None => options,
        };
        options.pin(match &self.pin {
            None => Pin::No,
            Some(PinArg::Cores(cores)) => Pin::Cores(cores.clone()),
            Some(PinArg::Config) => Pin::OfConfig,
        })
    }
}
