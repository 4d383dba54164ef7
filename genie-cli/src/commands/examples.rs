//! Examples at the end of each command's help.

use clap::Command;

/// Three for each command.
const EXAMPLES: &[(&str, [&str; 3])] = &[
    (
        "run",
        [
            "genie run -p \"ROMEO:\" -n 50",
            "genie run model.gguf \"Once upon a time\" --temp 0.8 --min-p 0.05 --stats",
            "echo \"To be\" | genie run bundle --json",
        ],
    ),
    (
        "chat",
        [
            "genie chat",
            "genie chat model.gguf --system \"Answer briefly.\"",
            "genie chat bundle --restore conversation",
        ],
    ),
    ("list", ["genie list", "genie list --json", "genie list | less"]),
    ("rm", ["genie rm model", "genie rm MODEL_DIR", "genie rm model --json"]),
    ("cache", ["genie cache", "genie cache --prune", "genie cache --json"]),
    (
        "compile",
        [
            "genie compile model.gguf -o bundle",
            "genie compile MODEL_DIR -o bundle --ar 1,32,128 --cl 512,2048",
            "genie compile MODEL_DIR -o bundle --soc sm8650 --weights w8",
        ],
    ),
    ("inspect", ["genie inspect bundle", "genie inspect bundle --tensors", "genie inspect bundle --json"]),
    ("plan", ["genie plan 50", "genie plan 50 200 4000 -c bundle", "genie plan 300 --json"]),
    (
        "bench",
        ["genie bench bundle", "genie bench bundle --pp 128,512 --tg 64 --fill 0,1024", "genie bench bundle -o md"],
    ),
    (
        "verify",
        ["genie verify bundle", "genie verify bundle -n 20 --lengths 1,33", "genie verify bundle --naive --json"],
    ),
    (
        "explain",
        [
            "genie explain",
            "genie explain -c bundle -p \"The quick brown fox\" -o report",
            "genie explain --only memory,operations --json",
        ],
    ),
    (
        "perplexity",
        [
            "genie perplexity bundle book.txt",
            "genie perplexity model.gguf book.txt --chunks 20",
            "genie perplexity bundle book.txt --window 512 --json",
        ],
    ),
    (
        "tokenize",
        [
            "genie tokenize bundle \"Hello world\"",
            "genie tokenize -m bundle -f book.txt --ids --show-count",
            "genie tokenize bundle --decode 1,15043",
        ],
    ),
    (
        "embed",
        [
            "genie embed -c encoder \"a text\"",
            "genie embed -c encoder -f text.txt --per-token",
            "genie embed -c encoder \"a text\" --json",
        ],
    ),
    (
        "make-prefix",
        [
            "genie make-prefix -c bundle \"a text\"",
            "genie make-prefix -c bundle --tokens 1,2,3",
            "genie make-prefix -c bundle \"a text\" --json",
        ],
    ),
    (
        "config",
        ["genie config check genie_config.json", "genie config check genie_config.json --json", "genie config --help"],
    ),
    ("doctor", ["genie doctor bundle", "genie doctor bundle --soc sm8650", "genie doctor bundle --json"]),
    ("serve", ["genie serve", "genie serve model.gguf --port 8081 --slots 4", "genie serve bundle --api-key secret"]),
    #[cfg(feature = "train")]
    (
        "train",
        [
            "genie train fox.txt -o fox --held-out 0",
            "genie train book.txt -o model --family llama --vocab 1024 --layers 4 --width 128 --context 128 --epochs 3",
            "genie train book.txt -o model --resume",
        ],
    ),
    (
        "deploy",
        [
            "genie deploy --to ssh:root@board:/opt/genie bundle",
            "genie deploy --to adb:1A2B3C4D:/data/local/tmp/genie bundle --genie genie-android",
            "genie deploy --to ssh:board:genie bundle --no-run --json",
        ],
    ),
    ("runtime", ["genie runtime fetch", "genie runtime fetch --target aarch64", "genie runtime find"]),
    (
        "completions",
        [
            "genie completions bash > ~/.local/share/bash-completion/completions/genie",
            "genie completions zsh > ~/.zfunc/_genie",
            "genie completions fish > ~/.config/fish/completions/genie.fish",
        ],
    ),
    ("man", ["genie man | man -l -", "genie man run | man -l -", "genie man -o ~/.local/share/man/man1"]),
];

/// Puts them into the help.
pub fn add_to(command: Command) -> Command {
    EXAMPLES.iter().fold(command, |command, (name, lines)| {
        if command.find_subcommand(name).is_none() {
            return command;
        }
        command.mut_subcommand(name, |sub| sub.after_help(format!("Examples:\n  {}", lines.join("\n  "))))
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;
    use crate::cli::Cli;

    /// The words of a line, without what a shell does with pipes and files.
    fn words(line: &str) -> Vec<String> {
        let line = line.split_once("| genie").map_or(line.to_owned(), |(_, rest)| format!("genie{rest}"));
        let line = line.split(['>', '|']).next().unwrap_or_default();
        let mut words = Vec::new();
        for (i, part) in line.split('"').enumerate() {
            match i % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        words
    }

    #[test]
    fn every_command_has_three_that_parse() {
        for command in Cli::command().get_subcommands() {
            assert!(EXAMPLES.iter().any(|(name, _)| *name == command.get_name()), "`{}` has none", command.get_name());
        }
        for line in EXAMPLES.iter().flat_map(|(_, lines)| lines) {
            let parsed = Cli::command().try_get_matches_from(words(line));
            if let Err(error) = parsed {
                assert_eq!(error.kind(), ErrorKind::DisplayHelp, "{line}: {error}");
            }
        }
    }
}
