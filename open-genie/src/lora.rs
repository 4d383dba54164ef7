//! LoRA adapters of a session: which are applied, and how strong.

use std::str::FromStr;

use engine::{LoraModel, LoraSwitch};

use crate::{Error, Model, Session};

/// The engine that a session has.
const ROLE: &str = "primary";

/// An adapter to apply: `NAME`, or `NAME:STRENGTH`.
#[derive(Clone, Debug, PartialEq)]
pub struct Lora {
    /// Its name in the bundle.
    pub name: String,
    /// Its strength; `None` for the one set before, 1 at first.
    pub strength: Option<f32>,
}

impl Lora {
    /// An adapter with the strength that it has.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), strength: None }
    }

    /// The same with another strength.
    #[must_use]
    pub fn with_strength(self, strength: f32) -> Self {
        Self { strength: Some(strength), ..self }
    }
}

impl FromStr for Lora {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::BadLora { text: text.into() };
        let (name, strength) = match text.rsplit_once(':') {
            None => (text, None),
            Some((name, number)) => {
                let strength = number.trim().parse::<f32>().ok().filter(|strength| strength.is_finite());
                (name, Some(strength.ok_or_else(bad)?))
            }
        };
        if name.is_empty() { Err(bad()) } else { Ok(Self { name: name.into(), strength }) }
    }
}

impl Model {
    /// As [`Session::apply_lora`], for measurements: [`perplexity`](Self::perplexity) and [`verify`](Self::verify) are then those of the model
    /// with these adapters.
    ///
    /// # Errors
    /// As [`Session::apply_lora`].
    pub fn apply_lora(&mut self, adapters: &[Lora]) -> Result<LoraSwitch, Error> {
        self.engine_mut().apply_lora(&wanted(adapters)).map_err(|error| Error::Dialog(error.into()))
    }
}

/// Names and strengths as the engine takes them.
fn wanted(adapters: &[Lora]) -> Vec<(&str, Option<f32>)> {
    adapters.iter().map(|lora| (lora.name.as_str(), lora.strength)).collect()
}

impl Session {
    /// Applies these adapters and no others from the next token on; an empty list is the model without adapters. Nothing is compiled,
    /// and the conversation stays: tokens processed so far keep what the adapters before made of them ([`LoraSwitch::n_kept`]),
    /// until [`reset`](Self::reset).
    ///
    /// ```no_run
    /// use open_genie::{Lora, Options, Session};
    ///
    /// let mut session = Session::open("bundle", &Options::new())?;
    /// session.apply_lora(&[Lora::new("poet")])?;
    /// let poem = session.generate("The sea").into_reply()?;
    /// session.reset()?;
    /// session.apply_lora(&[Lora::new("lawyer").with_strength(0.5)])?;
    /// # Ok::<(), open_genie::Error>(())
    /// ```
    ///
    /// # Errors
    /// Names that the bundle does not have, strengths that are no numbers, adapters that cannot be applied at once.
    pub fn apply_lora(&mut self, adapters: &[Lora]) -> Result<LoraSwitch, Error> {
        self.dialog_mut().apply_loras(ROLE, &wanted(adapters)).map_err(Error::Dialog)
    }

    /// Sets a strength by the name of the graphs' input, as Genie's configs name it. It acts while an adapter that has it is
    /// applied, also one that is applied later.
    ///
    /// # Errors
    /// No graph has that input; a strength that is no number.
    pub fn set_lora_strength(&mut self, alpha: &str, strength: f32) -> Result<(), Error> {
        self.dialog_mut().set_lora_strength(ROLE, alpha, strength).map_err(Error::Dialog)
    }

    /// The names of the bundle's adapters.
    pub fn lora_names(&self) -> Vec<String> {
        self.bundle().config().engine().lora.adapters.iter().map(|adapter| adapter.name.clone()).collect()
    }

    /// The adapters that tokens are processed with now, with their strengths, as saved sessions keep them; empty for none.
    pub fn lora_label(&mut self) -> String {
        self.dialog_mut().model().lora_label()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_strengths_are_read() {
        assert_eq!("a".parse::<Lora>().unwrap(), Lora::new("a"));
        assert_eq!("a:0.5".parse::<Lora>().unwrap(), Lora::new("a").with_strength(0.5));
        assert_eq!("a:b:-2".parse::<Lora>().unwrap(), Lora::new("a:b").with_strength(-2.0));
        for bad in ["", ":1", "a:", "a:x", "a:nan", "a:inf"] {
            let error = bad.parse::<Lora>().unwrap_err().to_string();
            assert_eq!(
                error,
                format!("`{bad}` is no LoRA adapter: expected `NAME` or `NAME:STRENGTH`, a finite number")
            );
        }
    }
}
