//! What to do about a flag or a command that does not exist: the one that was misspelt, or what does here what it does elsewhere.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue};

use crate::cli::Cli;

/// Commands of ollama, llama.cpp and others, with what does the same here.
const COMMANDS_ELSEWHERE: &[(&str, &str)] = &[
    ("pull", "models are files: download one, then `genie run FILE`"),
    ("ps", "use `genie list`, or `genie cache`"),
    ("quantize", "use `genie compile --weights`"),
    ("convert", "use `genie compile`"),
    ("generate", "use `genie run`"),
    ("detokenize", "use `genie tokenize`"),
    ("embedding", "use `genie embed`"),
    ("show", "use `genie inspect`"),
];

/// Flags of llama.cpp, ollama and genie-t2t-run, with what does the same here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("-s", "llama.cpp's is `--seed N`, genie-t2t-run's `--save DIR`"),
    ("-t", "llama.cpp's is `--threads N`; genie-t2t-run's table is `embedding` in `genie_config.json`"),
    ("--file", "use `--prompt-file`"),
    ("--batch-size", "the step width is fixed when a bundle is compiled: `genie compile --ar`"),
    ("--jinja", "chat templates are always Jinja: `--chat-template FILE|NAME` chooses one"),
    ("--embedding_table", "set `embedding` in `genie_config.json`"),
    ("--n-gpu-layers", "the backend follows from the bundle, `--backend` overrides it"),
    ("--gpu-layers", "the backend follows from the bundle, `--backend` overrides it"),
    ("--seq-length", "the context length is fixed when a bundle is compiled: `genie compile --cl`"),
    ("--log", "use `-v`, `-vv` or `-vvv`"),
    ("--ctx-shift", "use `--long-context` with a rule: see docs/long-context.md"),
    ("--context-shift", "use `--long-context` with a rule: see docs/long-context.md"),
    ("--sampler-seq", "use `--samplers` with names, such as `--samplers \"top_k;min_p;temperature\"`"),
    ("--priority", "set `perf_profile` in the backend's extension config, or use `--perf`"),
    ("--action", "a signal ends a reply: Ctrl-C"),
    ("--embedding_query_output_type", "use `genie embed`"),
    ("--lora-scaled", "use `--lora`"),
    ("--simple-io", "where stdout is no terminal, nothing but text is written"),
    ("--no-display-prompt", "the prompt is not repeated"),
    ("--interactive", "use `genie chat`"),
    ("--conversation", "use `genie chat`"),
    ("--no-conversation", "use `--raw`"),
    ("--flash-attn", "attention is compiled into the graphs"),
    ("--no-mmap", "set `use-mmap` in `genie_config.json`"),
    ("--hf-repo", "models are files: download the folder, and give its path"),
    ("--single-turn", "use `genie run`, which ends after one reply"),
    ("--model-draft", "use `--spec draft:BUNDLE`"),
    ("--cache-type-k", "the cache's type is fixed when a bundle is compiled: see docs/compile.md"),
    ("--cache-type-v", "the cache's type is fixed when a bundle is compiled: see docs/compile.md"),
    ("--threads-batch", "use `--threads`"),
    ("--prompt-and-generation", "use `--pp` and `--tg`"),
    ("--sleep", "a signal ends a reply: Ctrl-C"),
    ("--pid", "the program prints no process id: `$!` is a shell's"),
    ("--key", "a chat goes on in `genie chat`, or with `--save` and `--restore`"),
    ("--allow_engine_switch", "`genie serve --models` changes between models"),
    ("--engine_role", "roles stand in the config: `genie config check FILE`"),
    ("--add_example_sampler", "samplers of your own are given to the library: see docs/sampling.md"),
    ("--prompt-cache", "use `--prefix-cache`, or `--save` and `--restore`"),
];

/// Leaves a suggestion only where the flag is near, and says what another program's flag is here.
pub fn advise(error: &mut clap::Error) {
    if let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidSubcommand).cloned() {
        return advise_on_command(error, &found);
    }
    let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidArg).cloned() else { return };
    let name = found.split('=').next().unwrap_or(&found);
    if let Some((_, advice)) = ELSEWHERE.iter().find(|(flag, _)| *flag == name) {
        error.remove(ContextKind::SuggestedArg);
        // Clap's usage would be that of the flag it suggested.
        error.remove(ContextKind::Usage);
        // The advice to pass it as a value would come first.
        error.remove(ContextKind::Suggested);
        let advice = ContextValue::StyledStrs(vec![(*advice).to_owned().into()]);
        error.insert(ContextKind::Suggested, advice);
        return;
    }
    let far = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(near)) => !is_near(name, near),
        _ => false,
    };
    if far {
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::Usage);
    }
}

/// Clap misses letters that changed places.
fn advise_on_command(error: &mut clap::Error, found: &str) {
    // Commands of a command, such as those of `runtime`, are its own.
    let whole = matches!(error.get(ContextKind::Usage), Some(ContextValue::StyledStr(usage)) if usage.to_string().contains("genie [OPTIONS]"));
    let elsewhere = COMMANDS_ELSEWHERE.iter().find(|(command, _)| whole && *command == found);
    if let Some((_, advice)) = elsewhere {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![(*advice).to_owned().into()]));
    } else if whole && error.get(ContextKind::SuggestedSubcommand).is_none() {
        let commands = Cli::command();
        let near = commands.get_subcommands().map(clap::Command::get_name).filter(|name| is_near(found, name));
        if let Some(name) = near.min_by_key(|name| strsim::damerau_levenshtein(found, name)) {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![name.to_owned()]));
        }
    }
}

/// A slip of the fingers, for a word of that length. An underscore is a dash.
fn is_near(found: &str, flag: &str) -> bool {
    let (found, flag) = (found.trim_start_matches('-').replace('_', "-"), flag.trim_start_matches('-'));
    strsim::damerau_levenshtein(&found, flag) <= (found.len() / 3).clamp(1, 3)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{COMMANDS_ELSEWHERE, advise, is_near};
    use crate::cli::Cli;

    fn advice(command: &str) -> String {
        let mut error = Cli::command().try_get_matches_from(["genie", command]).unwrap_err();
        advise(&mut error);
        error.render().to_string()
    }

    #[test]
    fn commands_that_do_not_exist() {
        let mut error = Cli::command().try_get_matches_from(["genie", "runtime", "show"]).unwrap_err();
        advise(&mut error);
        assert!(!error.render().to_string().contains("inspect"), "{}", error.render());
        for (found, tip) in
            [("rnu", "'run'"), ("srve", "'serve'"), ("pull", "genie run FILE"), ("quantize", "--weights")]
        {
            assert!(advice(found).contains(tip), "{}", advice(found));
        }
        assert!(!advice("xyzzy").contains("tip"), "{}", advice("xyzzy"));
        let commands = Cli::command();
        let known = |name: &str| commands.get_subcommands().any(|command| command.get_name() == name);
        assert!(COMMANDS_ELSEWHERE.iter().all(|(name, _)| !known(name)));
    }

    #[test]
    fn near_is_a_slip_of_the_fingers() {
        let near =
            [("--promt", "--prompt"), ("--max_tokens", "--max-tokens"), ("--tmep", "--temp"), ("--jsn", "--json")];
        let far = [("--system", "--system-lib"), ("--json-schema", "--json"), ("--priority", "--prompt")];
        assert!(near.iter().all(|(found, flag)| is_near(found, flag)));
        assert!(far.iter().all(|(found, flag)| !is_near(found, flag)));
    }
}
