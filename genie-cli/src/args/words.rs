//! `[MODEL] [PROMPT]`: what stands on the command line without a flag.

use anyhow::Result;

use super::BundleArgs;
use crate::failure::UserError;

/// MODEL and PROMPT, each if it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words<'a> {
    pub model: Option<&'a str>,
    pub prompt: Option<&'a str>,
}

impl<'a> Words<'a> {
    /// The first is the model unless a flag names one.
    pub fn of(words: &'a [String], bundle: &BundleArgs) -> Result<Self> {
        match (words, bundle.is_given()) {
            ([], _) => Ok(Self { model: None, prompt: None }),
            ([prompt], true) => Ok(Self { model: None, prompt: Some(prompt) }),
            ([model], false) => Ok(Self { model: Some(model), prompt: None }),
            ([model, prompt], false) => Ok(Self { model: Some(model), prompt: Some(prompt) }),
            _ => Err(UserError::error(
                format!(
                    "{} words after the flags, expected a prompt: `--model` or `--config` names the model",
                    words.len()
                ),
                "put the prompt into quotes",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_is_the_model_unless_a_flag_names_it() {
        let flag = BundleArgs { named: Some("x.gguf".into()), ..BundleArgs::default() };
        let none = BundleArgs::default();
        let of = |words: &[&str], bundle| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            Words::of(&words, bundle).map(|w| (w.model.map(str::to_owned), w.prompt.map(str::to_owned))).ok()
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of(&[], &none), Some((None, None)));
        assert_eq!(of(&["m"], &none), Some((some("m"), None)));
        assert_eq!(of(&["m", "Hi"], &none), Some((some("m"), some("Hi"))));
        assert_eq!(of(&["Hi"], &flag), Some((None, some("Hi"))));
        assert_eq!(of(&["m", "Hi"], &flag), None);
    }
}
