//! Names of cache tensors in these graphs: `past_`, `present_` and `updated_past_`, kind, slot and layer.

use genie_types::KvKind;

/// One of the two requests that a graph serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// Takes a chunk of its prompt.
    Prefill,
    /// Takes one token.
    Decode,
}

impl Slot {
    /// Its word in names.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// A cache tensor by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PdName {
    /// `past_{kind}[_{slot}]_{layer}`: rows before this step. No slot in a graph for a decode row alone.
    Past {
        /// Keys or values.
        kind: KvKind,
        /// Whose.
        slot: Option<Slot>,
        /// Counted over the whole model.
        layer: usize,
    },
    /// `present_{kind}_{layer}`: the new rows of both requests.
    Present {
        /// Keys or values.
        kind: KvKind,
        /// Counted over the whole model.
        layer: usize,
    },
    /// `updated_past_{kind}[_{slot}]_{layer}`: the past with the new rows written into it.
    Updated {
        /// Keys or values.
        kind: KvKind,
        /// Whose.
        slot: Option<Slot>,
        /// Counted over the whole model.
        layer: usize,
    },
}

impl PdName {
    /// `None` for other names.
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(rest) = name.strip_prefix("updated_past_") {
            let (kind, slot, layer) = parts(rest)?;
            return Some(Self::Updated { kind, slot, layer });
        }
        if let Some(rest) = name.strip_prefix("past_") {
            let (kind, slot, layer) = parts(rest)?;
            return Some(Self::Past { kind, slot, layer });
        }
        match parts(name.strip_prefix("present_")?)? {
            (kind, None, layer) => Some(Self::Present { kind, layer }),
            _ => None,
        }
    }
}

/// `{kind}[_{slot}]_{layer}`.
fn parts(text: &str) -> Option<(KvKind, Option<Slot>, usize)> {
    let (kind, rest) = match text.strip_prefix("key_") {
        Some(rest) => (KvKind::Key, rest),
        None => (KvKind::Value, text.strip_prefix("value_")?),
    };
    let of = |slot: Slot| Some((rest.strip_prefix(slot.word())?.strip_prefix('_')?, slot));
    let (digits, slot) = match of(Slot::Prefill).or_else(|| of(Slot::Decode)) {
        Some((digits, slot)) => (digits, Some(slot)),
        None => (rest, None),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    Some((kind, slot, digits.parse().ok().filter(|_| is_number)?))
}

impl core::fmt::Display for PdName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (start, kind, slot, layer) = match *self {
            Self::Past { kind, slot, layer } => ("past", kind, slot, layer),
            Self::Present { kind, layer } => ("present", kind, None, layer),
            Self::Updated { kind, slot, layer } => ("updated_past", kind, slot, layer),
        };
        write!(f, "{start}_{}", kind.name())?;
        if let Some(slot) = slot {
            write!(f, "_{}", slot.word())?;
        }
        write!(f, "_{layer}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_they_are_written() {
        for kind in [KvKind::Key, KvKind::Value] {
            for layer in [0, 7, 31] {
                for slot in [None, Some(Slot::Prefill), Some(Slot::Decode)] {
                    for name in [PdName::Past { kind, slot, layer }, PdName::Updated { kind, slot, layer }] {
                        assert_eq!(PdName::parse(&name.to_string()), Some(name));
                    }
                }
                let name = PdName::Present { kind, layer };
                assert_eq!(PdName::parse(&name.to_string()), Some(name));
            }
        }
        let written = PdName::Past { kind: KvKind::Key, slot: Some(Slot::Decode), layer: 3 };
        assert_eq!(written.to_string(), "past_key_decode_3");
        for other in [
            "past_key_0_in",
            "past_key_",
            "past_key_x",
            "present_key_prefill_0",
            "past_query_0",
            "key_0",
            "past_key_+1",
        ] {
            assert_eq!(PdName::parse(other), None, "{other}");
        }
    }
}
