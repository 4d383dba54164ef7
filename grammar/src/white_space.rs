//! White space between the parts of a JSON document: how much of it a model may write.
//!
//! A model that does not know what comes next writes white space without limit where any amount is allowed, and the reply ends as half a
//! document. So little is allowed unless more is asked for.

/// What may stand between two parts of a JSON document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhiteSpace {
    /// Nothing.
    None,
    /// A space, or a line feed with up to 20 spaces or tabs behind it.
    #[default]
    Short,
    /// Any number of spaces, tabs and line feeds, as in libGenie.
    Any,
}

impl WhiteSpace {
    /// The names, as in flags.
    pub const NAMES: [(&'static str, Self); 3] = [("none", Self::None), ("short", Self::Short), ("any", Self::Any)];

    /// The regular expression, if there may be any.
    pub(crate) fn pattern(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Short => Some(r" |\n[ \t]{0,20}"),
            Self::Any => Some(r"[ \n\t]+"),
        }
    }
}

impl std::str::FromStr for WhiteSpace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, kind)| *kind).ok_or_else(|| "expected `none`, `short` or `any`".into())
    }
}
