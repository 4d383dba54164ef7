//! Flags that llama.cpp and genie-t2t-run write with one dash and several letters. Clap would read each letter as a flag, so
//! `-ngl 99` would be `-n` with a bad number.

use std::ffi::{OsStr, OsString};

/// What is meant: a flag of ours, or one that [`unknown_flag`](crate::unknown_flag) has advice on.
const SPELLINGS: [(&str, &str); 16] = [
    ("-sys", "--system"),
    ("-tok", "--tokens-file"),
    ("-np", "--parallel"),
    ("-ngl", "--n-gpu-layers"),
    ("-fa", "--flash-attn"),
    ("-cnv", "--conversation"),
    ("-no-cnv", "--no-conversation"),
    ("-st", "--single-turn"),
    ("-hf", "--hf-repo"),
    ("-hfr", "--hf-repo"),
    ("-md", "--model-draft"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-ub", "--batch-size"),
    ("-tb", "--threads-batch"),
    ("-pg", "--prompt-and-generation"),
];

/// Flags whose value may be any text.
const TEXTS: [&str; 6] = ["-p", "--prompt", "--system", "--system-prompt", "--stop", "--reverse-prompt"];

/// The arguments with long flags in the place of those.
pub fn long_forms(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut found: Vec<OsString> = Vec::new();
    let mut ended = false;
    for arg in args {
        ended |= arg == OsStr::new("--");
        let is_value = found.last().is_some_and(|last| TEXTS.iter().any(|flag| last == flag));
        let long = SPELLINGS.iter().find(|(short, _)| !ended && !is_value && arg == *short);
        found.push(long.map_or(arg, |(_, long)| long.into()));
    }
    found
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{SPELLINGS, long_forms};
    use crate::cli::Cli;
    use crate::unknown_flag;

    #[test]
    fn texts_stay_as_they_are() {
        let of = |words: &str| long_forms(words.split(' ').map(Into::into)).join(" ".as_ref()).into_string().unwrap();
        assert_eq!(of("genie run -sys -sys -p -tok -tok f"), "genie run --system -sys -p -tok --tokens-file f");
        assert_eq!(of("genie run m -- -ngl"), "genie run m -- -ngl");
        assert_eq!(of("genie run -n 4"), "genie run -n 4");
    }

    /// Each is a flag somewhere, or gets an advice that is no guess.
    #[test]
    fn each_leads_somewhere() {
        for (short, long) in SPELLINGS {
            let name = long.trim_start_matches('-');
            let commands = Cli::command();
            let is_ours = commands.get_subcommands().any(|command| {
                command
                    .get_arguments()
                    .any(|arg| arg.get_long_and_visible_aliases().is_some_and(|all| all.contains(&name)))
            });
            let mut error = Cli::command().try_get_matches_from(["genie", "run", long]).unwrap_err();
            unknown_flag::advise(&mut error);
            let said = error.render().to_string();
            assert!(is_ours || (said.contains("tip: ") && !said.contains("to pass")), "{short}: {said}");
        }
    }
}
