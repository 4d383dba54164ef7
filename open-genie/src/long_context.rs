//! What a full context drops, as an option beside the config's `longcontext`.

use std::fmt;
use std::str::FromStr;

use dialog::DialogConfig;
use engine::{ContextShift, EngineConfig, Eviction};

use crate::Error;

/// Prefix of the cache group that is meant; groups with other prefixes keep the config's rules.
const DEFAULT_GROUP: &str = "past_";
/// Steps between two scorings where none are given.
const UPDATE_EVERY: usize = 32;

/// What a full context drops. Reads `none`, `window:N`, `shift`, `shift:N`, `keydiff` and `keydiff:N` from text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LongContext {
    /// What the config's `longcontext` says.
    #[default]
    OfConfig,
    /// Nothing: a full context ends the dialog.
    None,
    /// Each token sees the last `size` tokens, itself included, and the reserved ones; positions count on up to the context
    /// size. Under policy `genie` it is libGenie's ring of slots.
    Window {
        /// Tokens seen; at least 1.
        size: usize,
    },
    /// The oldest tokens behind the reserved ones go, the others move up to their positions: a dialog without end.
    Shift {
        /// Tokens that go at once; `None` for a quarter of the context.
        n_drop: Option<usize>,
    },
    /// The rows whose keys resemble the others most go, in each head; positions count on up to the context size.
    KeyDiff {
        /// Steps between two scorings; at least 1.
        update_every: usize,
    },
}

impl LongContext {
    /// Whether positions go on beyond what the graphs see.
    fn counts_on(self) -> bool {
        matches!(self, Self::Window { .. } | Self::KeyDiff { .. })
    }

    /// Puts it into the engine's settings in place of the config's rule for the default group.
    pub(crate) fn apply(self, reserved: usize, config: &mut EngineConfig) {
        let rule = match self {
            Self::OfConfig => return,
            Self::None | Self::Shift { .. } => None,
            Self::Window { size } => Some(Eviction::Window { size, sinks: reserved }),
            Self::KeyDiff { update_every } => Some(Eviction::KeyDiff { sinks: reserved, update_every }),
        };
        config.long_context.retain(|(prefix, _)| prefix != DEFAULT_GROUP);
        config.long_context.extend(rule.map(|rule| (DEFAULT_GROUP.to_owned(), rule)));
        if !config.long_context.iter().any(|(_, rule)| matches!(rule, Eviction::KeyDiff { .. })) {
            config.scoring_network = None;
        }
        if let Self::Shift { n_drop } = self {
            config.context_shift = Some(ContextShift { sinks: reserved, n_drop });
        }
    }

    /// The context size of a dialog: the one asked for; else the config's, and where positions count on, as many as the
    /// model was trained for.
    pub(crate) fn context_size(
        self,
        asked: Option<usize>,
        config: &DialogConfig,
        trained: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        let more = || self.counts_on().then(trained).flatten().filter(|trained| *trained > config.context().size);
        asked.or_else(more)
    }
}

impl FromStr for LongContext {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let unknown = || Error::UnknownLongContext { text: text.into() };
        let (kind, number) = match text.split_once(':') {
            Some((kind, number)) => (kind, Some(number)),
            None => (text, None),
        };
        let number = match number {
            Some(number) => Some(number.parse().ok().filter(|n| *n > 0).ok_or_else(unknown)?),
            None => None,
        };
        match (kind, number) {
            ("none", None) => Ok(Self::None),
            ("window", Some(size)) => Ok(Self::Window { size }),
            ("shift", n_drop) => Ok(Self::Shift { n_drop }),
            ("keydiff", every) => Ok(Self::KeyDiff { update_every: every.unwrap_or(UPDATE_EVERY) }),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for LongContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfConfig => f.write_str("the config's"),
            Self::None => f.write_str("none"),
            Self::Window { size } => write!(f, "window:{size}"),
            Self::Shift { n_drop: None } => f.write_str("shift"),
            Self::Shift { n_drop: Some(n) } => write!(f, "shift:{n}"),
            Self::KeyDiff { update_every } => write!(f, "keydiff:{update_every}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_back() {
        for text in ["none", "window:1024", "shift", "shift:200", "keydiff:32"] {
            assert_eq!(text.parse::<LongContext>().unwrap().to_string(), text);
        }
        assert_eq!("keydiff".parse::<LongContext>().unwrap(), LongContext::KeyDiff { update_every: 32 });
        for text in ["", "window", "window:0", "window:x", "none:3", "ring", "shift:-1", "keydiff:"] {
            let error = text.parse::<LongContext>().unwrap_err().to_string();
            assert_eq!(
                error,
                format!(
                    "unknown long context `{text}`: expected `window:N`, `shift`, `shift:N`, `keydiff`, `keydiff:N` or `none`"
                )
            );
        }
    }

    #[test]
    fn the_default_groups_rule_is_replaced_and_others_stay() {
        let swa = ("swa_".to_owned(), Eviction::Window { size: 9, sinks: 0 });
        let of_config = || EngineConfig {
            long_context: vec![("past_".into(), Eviction::Ring { sinks: 1 }), swa.clone()],
            ..EngineConfig::new(["model.bin"])
        };
        let applied = |long: LongContext| {
            let mut config = of_config();
            long.apply(4, &mut config);
            (config.long_context, config.context_shift)
        };
        assert_eq!(applied(LongContext::OfConfig), (of_config().long_context, None));
        assert_eq!(applied(LongContext::None), (vec![swa.clone()], None));
        let window = ("past_".to_owned(), Eviction::Window { size: 64, sinks: 4 });
        assert_eq!(applied(LongContext::Window { size: 64 }), (vec![swa.clone(), window], None));
        let shift = Some(ContextShift { sinks: 4, n_drop: Some(7) });
        assert_eq!(applied(LongContext::Shift { n_drop: Some(7) }), (vec![swa.clone()], shift));
    }
}
