//! Which kind of speculation speeds a reply up: the names of `--spec`, and what each of them opens.
//!
//! A row of [`SPECULATIONS`] is a name with its form; a value of [`Speculation`] says which and with what settings. The kinds
//! themselves are in [`dialog::kinds`].

use std::path::{Path, PathBuf};
use std::str::FromStr;

use dialog::DialogKind;
use dialog::kinds::{
    self, Basic, BranchMode, Branches, Eaglet, EagletSettings, Lade, LadeSettings, Lookup, LookupSettings, Script,
    Scripted, Spd, Ssd, SsdSettings,
};
use dialog::{DialogConfig, DialogError};
use genie_types::TokenId;

use crate::Error;

/// How replies are sped up. Greedy replies stay the same; sampled ones keep their distribution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Speculation {
    /// As the config's `type` says.
    #[default]
    OfConfig,
    /// Not at all, whatever the config's `type` says.
    Off,
    /// Drafts are what followed the last tokens before, in the prompt or the replies. No other model.
    Lookup(LookupSettings),
    /// A smaller model with the same vocabulary proposes tokens.
    Draft {
        /// Its bundle: a folder or a config.
        bundle: PathBuf,
        /// Tokens of a draft.
        len: usize,
    },
    /// A small model that works on this one's hidden states proposes trees of tokens.
    Eaglet {
        /// Its bundle: a folder or a config.
        bundle: PathBuf,
        /// Levels of a tree.
        len: usize,
    },
    /// The model looks ahead for itself; any model.
    Lade(LadeSettings),
    /// The model drafts by forecast tokens; a model that was trained for them.
    Ssd {
        /// Folder of its forecast prefix; `None` for [`FORECAST_PREFIX`] beside the bundle's config.
        prefix: Option<PathBuf>,
        /// Children of a node of the draft tree, level by level.
        branches: Vec<usize>,
    },
    /// Drafts are the tokens of a reply that is known beforehand, with errors put in: to measure what speculation gains.
    Script(Script),
}

/// Name of the folder in a bundle where a forecast prefix is looked for.
pub const FORECAST_PREFIX: &str = "forecast-prefix";

/// The tree of forecasts, where nothing is said.
const BRANCHES: [usize; 2] = [3, 2];

/// A name of `--spec`.
#[derive(Clone, Copy, Debug)]
pub struct SpeculationRow {
    /// The part before the colon.
    pub name: &'static str,
    /// How it is written.
    pub form: &'static str,
    /// What its parts have to be, where the form does not say it.
    rule: &'static str,
    /// Reads the part behind the colon, if there is one; `None` if it is not of that form.
    read: fn(Option<&str>) -> Option<Speculation>,
}

/// Tokens of a draft of another model, where nothing is said.
const DRAFT_LEN: usize = 4;

/// The names of `--spec`.
pub const SPECULATIONS: &[SpeculationRow] = &[
    SpeculationRow { name: "lookup", form: "lookup", rule: "", read: lookup },
    SpeculationRow { name: "draft", form: "draft:BUNDLE", rule: "", read: draft },
    SpeculationRow { name: "eaglet", form: "eaglet:BUNDLE", rule: "", read: eaglet },
    SpeculationRow {
        name: "lade",
        form: "lade[:WINDOW,NGRAM,GUESSES]",
        rule: ", three whole numbers, WINDOW of at least 1 and NGRAM of at least 2",
        read: lade,
    },
    SpeculationRow { name: "ssd", form: "ssd[:PREFIX_FOLDER]", rule: "", read: ssd },
];

fn lade(rest: Option<&str>) -> Option<Speculation> {
    let Some(rest) = rest else { return Some(Speculation::Lade(LadeSettings::default())) };
    let numbers: Vec<usize> = rest.split(',').map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let [window, ngram, gcap] = numbers[..] else { return None };
    (window > 0 && ngram > 1)
        .then(|| Speculation::Lade(LadeSettings { window, ngram, gcap, ..LadeSettings::default() }))
}

fn ssd(rest: Option<&str>) -> Option<Speculation> {
    let prefix = rest.map(PathBuf::from);
    let is_empty = prefix.as_ref().is_some_and(|path| path.as_os_str().is_empty());
    (!is_empty).then(|| Speculation::Ssd { prefix, branches: BRANCHES.to_vec() })
}

fn lookup(rest: Option<&str>) -> Option<Speculation> {
    rest.is_none().then(|| Speculation::Lookup(LookupSettings::default()))
}

fn draft(rest: Option<&str>) -> Option<Speculation> {
    let bundle = PathBuf::from(rest.filter(|path| !path.is_empty())?);
    Some(Speculation::Draft { bundle, len: DRAFT_LEN })
}

fn eaglet(rest: Option<&str>) -> Option<Speculation> {
    let bundle = PathBuf::from(rest.filter(|path| !path.is_empty())?);
    Some(Speculation::Eaglet { bundle, len: EagletSettings::default().draft_len })
}

impl Speculation {
    /// The bundle of the draft model, if one is named.
    pub fn draft_bundle(&self) -> Option<&Path> {
        match self {
            Self::Draft { bundle, .. } | Self::Eaglet { bundle, .. } => Some(bundle),
            _ => None,
        }
    }

    /// The same with drafts of another length; `OfConfig` has its own in the config.
    #[must_use]
    pub fn with_draft_len(mut self, n: usize) -> Self {
        match &mut self {
            Self::OfConfig | Self::Off => {}
            Self::Lookup(settings) => settings.draft_len = n,
            Self::Script(script) => script.draft_len = n,
            Self::Draft { len, .. } | Self::Eaglet { len, .. } => *len = n,
            // A guess is an n-gram without its first token.
            Self::Lade(settings) => settings.ngram = n.saturating_add(1).max(2),
            // As many levels, each as broad as the last one there is.
            Self::Ssd { branches, .. } => branches.resize(n.max(1), branches.last().copied().unwrap_or(1)),
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

    /// The kind of dialog for a bundle's config, which may be the config's own.
    pub(crate) fn kind_or_own(
        &self,
        config: &DialogConfig,
        widest: Option<usize>,
    ) -> Result<Box<dyn DialogKind>, DialogError> {
        self.kind(config, widest)?.map_or_else(|| kinds::open(config), Ok)
    }

    /// The kind of dialog for a bundle's config; `None` for the config's own.
    /// `widest`: most tokens that the model gives logits for at once.
    pub(crate) fn kind(
        &self,
        config: &DialogConfig,
        widest: Option<usize>,
    ) -> Result<Option<Box<dyn DialogKind>>, DialogError> {
        Ok(match self {
            Self::OfConfig => None,
            Self::Off => Some(Box::new(Basic)),
            Self::Lookup(settings) => Some(Box::new(Lookup::new(*settings))),
            Self::Script(script) => Some(Box::new(Scripted::new(script.clone()))),
            Self::Draft { len, .. } => Some(Box::new(Spd::new(*len))),
            Self::Eaglet { len, .. } => {
                let settings = EagletSettings { draft_len: *len, ..EagletSettings::default() };
                let max_rows = widest.map_or(settings.max_rows, |widest| settings.max_rows.min(widest));
                Some(Box::new(Eaglet::new(EagletSettings { max_rows, ..settings })?))
            }
            Self::Lade(settings) => Some(Box::new(Lade::new(*settings))),
            Self::Ssd { prefix, branches } => {
                Some(Box::new(Ssd::new(ssd_settings(prefix.as_deref(), branches, config))?))
            }
        })
    }
}

/// Those of `--spec ssd` for a bundle's config.
pub(crate) fn ssd_settings(prefix: Option<&Path>, branches: &[usize], config: &DialogConfig) -> SsdSettings {
    SsdSettings {
        n_forecast: branches.len(),
        branches: Branches::new(branches.to_vec(), BranchMode::default()),
        first_forecast: TokenId(u32::try_from(config.context().n_vocab).unwrap_or(u32::MAX)),
        prefix: prefix.map_or_else(|| config.base().join(FORECAST_PREFIX), Path::to_owned),
        n_prefix: None,
    }
}

impl FromStr for Speculation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        let unknown = |expected: String| Error::UnknownSpeculation { text: text.into(), expected };
        let Some(row) = SPECULATIONS.iter().find(|row| row.name == name) else {
            let forms: Vec<String> = SPECULATIONS.iter().map(|row| format!("`{}`", row.form)).collect();
            return Err(unknown(forms.join(" or ")));
        };
        (row.read)(rest).ok_or_else(|| unknown(format!("`{}`{}", row.form, row.rule)))
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
        let eaglet = "eaglet:/e".parse::<Speculation>().unwrap().with_draft_len(2);
        assert_eq!(eaglet, Speculation::Eaglet { bundle: "/e".into(), len: 2 });
        assert_eq!(eaglet.draft_bundle(), Some(Path::new("/e")));
        let lade = "lade:5,4,3".parse::<Speculation>().unwrap();
        assert_eq!(lade, Speculation::Lade(LadeSettings { window: 5, ngram: 4, gcap: 3, ..LadeSettings::default() }));
        let ssd = "ssd:/p".parse::<Speculation>().unwrap().with_draft_len(3);
        assert_eq!(ssd, Speculation::Ssd { prefix: Some("/p".into()), branches: vec![3, 2, 2] });
        assert!(matches!("ssd".parse().unwrap(), Speculation::Ssd { prefix: None, .. }));
        let all = "`lookup` or `draft:BUNDLE` or `eaglet:BUNDLE` or";
        let lade = "expected `lade[:WINDOW,NGRAM,GUESSES]`, three whole numbers, WINDOW of at least 1";
        for (bad, expected) in [
            ("draft", "expected `draft:BUNDLE`"),
            ("draft:", "expected `draft:BUNDLE`"),
            ("lookup:3", "expected `lookup`"),
            ("", all),
            ("drafts:x", all),
            ("lade:1", lade),
            ("lade:0,3,3", lade),
            ("lade:1,1,1", lade),
            ("ssd:", "expected `ssd[:PREFIX_FOLDER]`"),
            ("eaglet", "expected `eaglet:BUNDLE`"),
            ("eaglet:", "expected `eaglet:BUNDLE`"),
        ] {
            let error = bad.parse::<Speculation>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
