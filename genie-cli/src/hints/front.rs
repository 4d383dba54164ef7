//! Words the hints of `open-genie`.

use open_genie::Hint;

use super::backend;

/// The hint of an error of `open-genie`; its own words where no flag is concerned.
pub fn words(hint: &Hint) -> String {
    match hint {
        Hint::GiveBundle => "give a bundle's folder or its `genie_config.json`; `genie compile` makes a bundle".into(),
        Hint::ChooseBackend => {
            "use `--backend host` for this machine's CPU, `--backend htp` for Qualcomm's `libQnnHtp.so`".into()
        }
        Hint::EmbeddedBackendOnly => "remove `--pin`, or use `--backend host`".into(),
        Hint::CoresToPin(may) => {
            let first = may.first().copied().unwrap_or_default();
            format!("{hint}, for example `--pin {first}`, or remove `--pin`")
        }
        Hint::DoNotPin => "remove `--pin`".into(),
        Hint::ChoosePerfPolicy => format!("{hint}; `--perf` overrides it"),
        Hint::CastNoVote => "remove `--perf`; it works with HTP backends only".into(),
        Hint::LongerText => "use a file with text, and `--max-windows` of at least 1".into(),
        Hint::Backend(hint) => backend::words(hint),
        other => other.to_string(),
    }
}
