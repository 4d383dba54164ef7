//! `--soc`, `--perf`: the SoC that an HTP backend runs on, and its clocks.

use open_genie::{Options, Perf};
use qnn_api::PerfPolicy;

/// The SoC of an HTP backend, and how fast it runs.
#[derive(clap::Args, Clone, Default)]
#[command(next_help_heading = "Backend")]
pub struct SocArgs {
    /// SoC to run on or to emulate, by name or Qualcomm's number [default: the backend extension config's, else the
    /// library's choice].
    #[arg(long, value_name = "SOC")]
    pub soc: Option<String>,
    /// Performance policy of the SoC, or `none` to leave its clocks alone [default: the backend extension config's, else
    /// burst].
    #[arg(long, value_name = "POLICY", value_parser = perf_names())]
    pub perf: Option<String>,
}

/// The value of `--perf` that casts no vote for the clocks.
const NO_VOTE: &str = "none";

fn perf_names() -> clap::builder::PossibleValuesParser {
    PerfPolicy::ALL.iter().map(|policy| policy.name()).chain([NO_VOTE]).collect::<Vec<_>>().into()
}

impl SocArgs {
    /// Sets them in options.
    pub fn apply(&self, mut options: Options) -> Options {
        if let Some(name) = &self.soc {
            options = options.soc(name);
        }
        match self.perf.as_deref() {
            None => options,
            Some(NO_VOTE) => options.perf(Perf::LeaveAlone),
            Some(name) => options.perf(PerfPolicy::from_name(name).map_or(Perf::OfBundle, Perf::Policy)),
        }
    }
}
