//! Which kind of speculation speeds a reply up: the names of `--spec`, and what each of them opens.
//!
//! A row of [`SPECULATIONS`] is a name with its form; a value of [`Speculation`] says which and with what settings. The kinds
//! themselves are in [`dialog::kinds`].

use std::path::PathBuf;
use std::str::FromStr;

use dialog::DialogKind;
use dialog::kinds::{Lookup, LookupSettings, Spd};

use crate::Error;

/// How replies are sped up. Greedy replies stay the same; sampled ones keep their distribution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Speculation {
    /// As the config's `type` says.
    #[default]
    OfConfig,
    /// Drafts are what followed the last tokens before, in the prompt or the replies. No other model.
    Lookup(LookupSettings),
    /// A smaller model with the same vocabulary proposes tokens.
    Draft {
        /// Its bundle: a folder or a config.
        bundle: PathBuf,
        /// Tokens of a draft.
        len: usize,
    },
}

/// A name of `--spec`.
#[derive(Clone, Copy, Debug)]
pub struct SpeculationRow {
    /// The part before the colon.
    pub name: &'static str,
    /// How it is written.
    pub form: &'static str,
    /// Reads the part behind the colon, if there is one; `None` if it is not of that form.
    read: fn(Option<&str>) -> Option<Speculation>,
}

/// Tokens of a draft of another model, where nothing is said.
const DRAFT_LEN: usize = 4;

/// The names of `--spec`.
pub const SPECULATIONS: &[SpeculationRow] = &[
    SpeculationRow { name: "lookup", form: "lookup", read: lookup },
    SpeculationRow { name: "draft", form: "draft:BUNDLE", read: draft },
];

fn lookup(rest: Option<&str>) -> Option<Speculation> {
    rest.is_none().then(|| Speculation::Lookup(LookupSettings::default()))
}

fn draft(rest: Option<&str>) -> Option<Speculation> {
    let bundle = PathBuf::from(rest.filter(|path| !path.is_empty())?);
    Some(Speculation::Draft { bundle, len: DRAFT_LEN })
}

impl Speculation {
    /// The same with drafts of another length; `OfConfig` has its own in the config.
    #[must_use]
    pub fn with_draft_len(mut self, n: usize) -> Self {
        match &mut self {
            Self::OfConfig => {}
            Self::Lookup(settings) => settings.draft_len = n,
            Self::Draft { len, .. } => *len = n,
        }
        self
    }

    /// The same with another longest n-gram, where n-grams are looked up.
    #[must_use]
    pub fn with_longest_ngram(mut self, n: usize) -> Self {
        if let Self::Lookup(settings) = &mut self {
            settings.longest = n;
        }
        self
    }

    /// The kind of dialog; `None` for the config's.
    pub(crate) fn kind(&self) -> Option<Box<dyn DialogKind>> {
        match self {
            Self::OfConfig => None,
            Self::Lookup(settings) => Some(Box::new(Lookup::new(*settings))),
            Self::Draft { len, .. } => Some(Box::new(Spd::new(*len))),
        }
    }
}

impl FromStr for Speculation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        let row = SPECULATIONS.iter().find(|row| row.name == name);
        row.and_then(|row| (row.read)(rest)).ok_or_else(|| {
            let forms: Vec<String> = SPECULATIONS.iter().map(|row| format!("`{}`", row.form)).collect();
            Error::UnknownSpeculation { text: text.into(), expected: forms.join(" or ") }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        assert_eq!("lookup".parse::<Speculation>().unwrap(), Speculation::Lookup(LookupSettings::default()));
        let draft = "draft:/a:b".parse::<Speculation>().unwrap().with_draft_len(7);
        assert_eq!(draft, Speculation::Draft { bundle: "/a:b".into(), len: 7 });
        for bad in ["draft", "draft:", "lookup:3", "", "drafts:x"] {
            let error = bad.parse::<Speculation>().unwrap_err().to_string();
            assert!(error.contains("`lookup` or `draft:BUNDLE`"), "{error}");
        }
    }
}
