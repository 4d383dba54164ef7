//! What to do about a flag that does not exist: the flag that was misspelt, or what does here what it does elsewhere.

use clap::error::{ContextKind, ContextValue};

/// Flags of llama.cpp, ollama and genie-t2t-run, with what does the same here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("--n-predict", "use `--max-tokens`"),
    ("--predict", "use `--max-tokens`"),
    ("--num-predict", "use `--max-tokens`"),
    ("--temperature", "use `--temp`"),
    ("--repeat-penalty", "use `--repetition-penalty`"),
    ("--repeat-last-n", "use `--penalize-last-n`"),
    ("--file", "use `--prompt-file`"),
    ("--tokens_file", "use `--prompt-tokens IDS`"),
    ("--tokens-file", "use `--prompt-tokens IDS`"),
    ("--batch-size", "the step width is fixed when a bundle is compiled: `genie compile --ar`"),
    ("--stop", "set `stop-sequence` in `genie_config.json`"),
    ("--reverse-prompt", "set `stop-sequence` in `genie_config.json`"),
    ("--jinja", "chat templates are always Jinja: `--chat-template FILE|NAME` chooses one"),
    ("--embedding_table", "set `embedding` in `genie_config.json`"),
    ("--n-gpu-layers", "the backend follows from the bundle, `--backend` overrides it"),
    ("--gpu-layers", "the backend follows from the bundle, `--backend` overrides it"),
    ("--seq-length", "the context length is fixed when a bundle is compiled: `genie compile --cl`"),
    ("--log", "use `-v`, `-vv` or `-vvv`"),
    ("--prompt-cache", "use `--prefix-cache`, or `--save` and `--restore`"),
];

/// Leaves a suggestion only where the flag is near, and says what another program's flag is here.
pub fn advise(error: &mut clap::Error) {
    let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidArg).cloned() else { return };
    if !found.starts_with("--") {
        return;
    }
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

/// A slip of the fingers, for a word of that length. An underscore is a dash.
fn is_near(found: &str, flag: &str) -> bool {
    let (found, flag) = (found.trim_start_matches('-').replace('_', "-"), flag.trim_start_matches('-'));
    strsim::damerau_levenshtein(&found, flag) <= (found.len() / 3).clamp(1, 3)
}

#[cfg(test)]
mod tests {
    use super::is_near;

    #[test]
    fn near_is_a_slip_of_the_fingers() {
        let near =
            [("--promt", "--prompt"), ("--max_tokens", "--max-tokens"), ("--tmep", "--temp"), ("--jsn", "--json")];
        let far = [
            ("--stop", "--top-p"),
            ("--system", "--system-lib"),
            ("--json-schema", "--json"),
            ("--priority", "--prompt"),
        ];
        assert!(near.iter().all(|(found, flag)| is_near(found, flag)));
        assert!(far.iter().all(|(found, flag)| !is_near(found, flag)));
    }
}
