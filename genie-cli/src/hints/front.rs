//! Words the hints of `open-genie`.

use open_genie::{Error, Hint};

use super::backend;

/// The hint of an error of `open-genie`; its own words where no flag is concerned.
pub fn of(error: &Error) -> Option<String> {
    Some(match (error, error.hint()?) {
        (Error::Window { .. }, hint) => format!("{hint} for `--window`"),
        (Error::PromptLength { .. }, hint) => format!("{hint}, the context size, for `--lengths`"),
        (_, hint) => words(&hint),
    })
}

fn words(hint: &Hint) -> String {
    match hint {
        Hint::GiveCheckpoint => "`--checkpoint DIR` names the model that the bundle was compiled from".into(),
        Hint::GiveBundle => "give a bundle's folder or its `genie_config.json`; `genie compile` makes a bundle".into(),
        Hint::CompileFirst(path) => {
            format!(
                "`genie run {0}` compiles and runs it; `genie compile {0} -o BUNDLE` makes a bundle of it",
                path.display()
            )
        }
        Hint::GiveModel(_) => {
            format!("{hint}; `genie list` shows the names; a prompt for the demo model is given by `--prompt`")
        }
        Hint::GiveFolder(folder) => format!("give the bundle's folder: `{}`", folder.display()),
        Hint::OpPackageProvider => "name it behind the file: `--op-package FILE:PROVIDER`".into(),
        Hint::OpPackageOnce => format!("{hint}: by `--op-package`, or by its folder's variable"),
        Hint::GiveOpPackage => "give the package's library with `--op-package FILE`, if you trust its code".into(),
        Hint::CompileFused => {
            "compile it with `--pd-total-lens 32,64`, or remove `pd_fusion.enable` from its `genie_config.json`".into()
        }
        Hint::CompilePlain => {
            "compile it without `--pd-only`; `run`, `chat`, `serve`, `bench`, `perplexity`, `verify`, `inspect` and \
             `plan` take fused graphs"
                .into()
        }
        Hint::BackendOfBundle => "omit `--backend`: it follows from the binaries".into(),
        Hint::NewerProgram => "the file was made by a newer `genie`: update this one".into(),
        Hint::CompileAgain => "compile the bundle again; `--soc` compiles for a device, without it for this CPU".into(),
        Hint::ChooseBackend => {
            "use `--backend host` for this machine's CPU, `--backend htp` for Qualcomm's `libQnnHtp.so`".into()
        }
        Hint::LeaveOutThreads => "remove `--threads`, or use `--backend host`".into(),
        Hint::LeaveOutSystemLibrary => {
            "remove `--system-lib`, or name the backend that uses it with `--backend`".into()
        }
        Hint::LeaveOutSoc => "remove `--soc`, or use `--backend htp`".into(),
        Hint::EmbeddedBackendOnly => "remove `--pin`, or use `--backend host`".into(),
        Hint::CoresToPin(may) => {
            let first = may.first().copied().unwrap_or_default();
            format!("{hint}, for example `--pin {first}`, or remove `--pin`")
        }
        Hint::DoNotPin => "remove `--pin`".into(),
        Hint::ChoosePerfPolicy => format!("{hint}; `--perf` overrides it"),
        Hint::OtherTemplate => "use another `--chat-template`; `genie run --raw` gives the prompt as it is".into(),
        Hint::PlainMemory => "remove `--shared-memory`: such memory is used where a Snapdragon has it".into(),
        Hint::CastNoVote => "remove `--perf`; it works with HTP backends only".into(),
        Hint::CopyBundleAgain => {
            "copy the bundle again, or compile it again; `genie doctor BUNDLE` names every file that differs".into()
        }
        Hint::GenerateTokens => "use `--tokens` of at least 1".into(),
        Hint::SmallerContext => "compile a bundle with a smaller context length: `genie compile --cl`".into(),
        Hint::GiveImageEncoder => "name its binary with `--image-encoder`, or use `--image-features`".into(),
        Hint::EmbeddingsBundle => "compile one whose graphs take them: `genie compile --inputs-embeds`".into(),
        Hint::NameImageToken => "name it with `--image-token`, as text or number".into(),
        Hint::LongerText => "use a file with text, and `--max-windows` of at least 1".into(),
        Hint::ShorterWindow { most, reserved: 0 } => {
            format!("use `--long-context window:{most}` or less, or a bundle with a longer context")
        }
        Hint::ShorterWindow { most, reserved } => format!(
            "use `--long-context window:{most}` or less beside the {reserved} reserved tokens, or a bundle with a longer context"
        ),
        Hint::ReserveFewer { most } => {
            format!("use `--reserved-tokens {most}` or less, or a bundle with a longer context")
        }
        Hint::ChooseLongContext => {
            "for example `--long-context window:1024`, `--long-context shift` or `--long-context keydiff`".into()
        }
        Hint::LongContextToReserve => "add `--long-context`, or remove `--reserved-tokens`".into(),
        Hint::BundleWithAdapters => {
            "`genie compile MODEL -o BUNDLE --lora ADAPTER` makes a bundle with adapters; one added by `--lora-merge` \
             needs no `--lora`"
                .into()
        }
        Hint::Backend(hint) => backend::words(hint),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_name_the_flags_to_use() {
        let window = Error::Window { window: 1, least: 2, limit: 512 };
        let cases = [
            (window, "choose 2 to 512 tokens for `--window`"),
            (
                Error::PromptLength { length: 0, limit: 512 },
                "choose 1 to 512 tokens, the context size, for `--lengths`",
            ),
            (Error::CoresUnknown, "remove `--pin`"),
            (
                Error::CoreUnavailable { whose: "`--pin`", core: 9, may: vec![2, 3] },
                "choose from cores 2-3, for example `--pin 2`, or remove `--pin`",
            ),
            (Error::NothingToPredict { tokens: 1 }, "use a file with text, and `--max-windows` of at least 1"),
        ];
        for (error, expected) in cases {
            assert_eq!(of(&error).as_deref(), Some(expected));
        }
    }
}
