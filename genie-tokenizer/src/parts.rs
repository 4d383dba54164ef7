//! Normalizers, pre-tokenizers, decoders and post-processors: which there are, with which keys and values.
//!
//! The library takes any key and most values, and finds out later, with a text in its hands. Here each key is looked at
//! first: the value that a part divides by, copies a million times or expects to be a character.

use serde_json::{Map, Value};

use crate::document::{cut, shown};
use crate::error::Fault;
use crate::{charsmap, limits};

/// A chain of parts, and what its sequences call their list.
#[derive(Clone, Copy)]
pub(crate) struct Chain {
    /// The key of the document.
    pub(crate) name: &'static str,
    list: &'static str,
    kinds: &'static [Kind],
}

/// A part by its `type`.
struct Kind(&'static str, &'static [Key]);

/// A key, what it may be, and whether it must be there.
struct Key(&'static str, Is, Need);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Must,
    May,
}
use Need::{May, Must};

#[derive(Clone, Copy)]
enum Is {
    Bool,
    /// A short text.
    Text,
    /// A text that takes the place of what the pattern finds.
    Replacement,
    /// One character.
    Char,
    /// A whole number of at least that.
    Count(u64),
    /// `{"String": text}` or `{"Regex": pattern}`.
    Pattern,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A precompiled character map.
    Charsmap,
    /// What the library alone looks at.
    Any,
}
use Is::{Any, Bool, Char, Charsmap, Count, OneOf, Pattern, Replacement, Text};

const BEHAVIOR: Is = OneOf(&["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]);
const BYTE_LEVEL: Kind = Kind(
    "ByteLevel",
    &[Key("add_prefix_space", Bool, Must), Key("trim_offsets", Bool, Must), Key("use_regex", Bool, May)],
);
const METASPACE: Kind = Kind(
    "Metaspace",
    &[
        Key("replacement", Char, Must),
        Key("add_prefix_space", Bool, May),
        Key("prepend_scheme", OneOf(&["always", "never", "first"]), May),
        Key("split", Bool, May),
        Key("str_rep", Text, May),
    ],
);
const REPLACE: Kind = Kind("Replace", &[Key("pattern", Pattern, Must), Key("content", Replacement, Must)]);

/// What text goes through first.
pub(crate) const NORMALIZER: Chain = Chain {
    name: "normalizer",
    list: "normalizers",
    kinds: &[
        Kind(
            "BertNormalizer",
            &[
                Key("clean_text", Bool, Must),
                Key("handle_chinese_chars", Bool, Must),
                Key("strip_accents", Bool, May),
                Key("lowercase", Bool, Must),
            ],
        ),
        Kind("Strip", &[Key("strip_left", Bool, Must), Key("strip_right", Bool, Must)]),
        Kind("StripAccents", &[]),
        Kind("NFC", &[]),
        Kind("NFD", &[]),
        Kind("NFKC", &[]),
        Kind("NFKD", &[]),
        Kind("Lowercase", &[]),
        Kind("Nmt", &[]),
        Kind("ByteLevel", &[]),
        Kind("Precompiled", &[Key("precompiled_charsmap", Charsmap, Must)]),
        REPLACE,
        Kind("Prepend", &[Key("prepend", Replacement, Must)]),
    ],
};

/// What cuts text into words.
pub(crate) const PRE_TOKENIZER: Chain = Chain {
    name: "pre_tokenizer",
    list: "pretokenizers",
    kinds: &[
        Kind("BertPreTokenizer", &[]),
        Kind("Whitespace", &[]),
        Kind("WhitespaceSplit", &[]),
        Kind("UnicodeScripts", &[]),
        BYTE_LEVEL,
        METASPACE,
        Kind("CharDelimiterSplit", &[Key("delimiter", Char, Must)]),
        Kind("Split", &[Key("pattern", Pattern, Must), Key("behavior", BEHAVIOR, Must), Key("invert", Bool, Must)]),
        Kind("Punctuation", &[Key("behavior", BEHAVIOR, May)]),
        Kind("Digits", &[Key("individual_digits", Bool, Must)]),
        Kind("FixedLength", &[Key("length", Count(1), May)]),
    ],
};

/// What makes text of entries.
pub(crate) const DECODER: Chain = Chain {
    name: "decoder",
    list: "decoders",
    kinds: &[
        BYTE_LEVEL,
        METASPACE,
        REPLACE,
        Kind("BPEDecoder", &[Key("suffix", Text, Must)]),
        Kind("WordPiece", &[Key("prefix", Text, Must), Key("cleanup", Bool, Must)]),
        Kind(
            "CTC",
            &[Key("pad_token", Text, Must), Key("word_delimiter_token", Text, Must), Key("cleanup", Bool, Must)],
        ),
        Kind("Fuse", &[]),
        Kind("ByteFallback", &[]),
        Kind("Strip", &[Key("content", Char, Must), Key("start", Count(0), Must), Key("stop", Count(0), Must)]),
    ],
};

/// What adds special tokens: checked, since libGenie reads it, and not used.
pub(crate) const POST_PROCESSOR: Chain = Chain {
    name: "post_processor",
    list: "processors",
    kinds: &[
        BYTE_LEVEL,
        Kind("BertProcessing", &[Key("sep", Any, Must), Key("cls", Any, Must)]),
        Kind(
            "RobertaProcessing",
            &[
                Key("sep", Any, Must),
                Key("cls", Any, Must),
                Key("trim_offsets", Bool, Must),
                Key("add_prefix_space", Bool, Must),
            ],
        ),
        Kind(
            "TemplateProcessing",
            &[Key("single", Any, Must), Key("pair", Any, Must), Key("special_tokens", Any, Must)],
        ),
    ],
};

/// A pattern and where it stands.
pub(crate) struct Found {
    /// Where in the document.
    pub(crate) at: String,
    /// The regular expression.
    pub(crate) regex: String,
}

/// What a chain was found to be.
#[derive(Default)]
pub(crate) struct Summary {
    /// Its regular expressions.
    pub(crate) patterns: Vec<Found>,
    /// Names of its parts, in order.
    pub(crate) kinds: Vec<String>,
}

/// Checks a chain before the library sees it.
pub(crate) fn check(chain: Chain, value: &Value) -> Result<Summary, Fault> {
    let mut walk = Walk { chain, n_parts: 0, growth: 1, summary: Summary::default() };
    walk.part(value, format!("/{}", chain.name), 0)?;
    Ok(walk.summary)
}

struct Walk {
    chain: Chain,
    n_parts: usize,
    /// Bytes that one byte may become.
    growth: usize,
    summary: Summary,
}

impl Walk {
    fn part(&mut self, value: &Value, at: String, depth: usize) -> Result<(), Fault> {
        let chain = self.chain;
        let Some(map) = value.as_object() else {
            return Err(Fault::value(at, shown(value), format!("a {}", chain.name)));
        };
        self.n_parts += 1;
        if self.n_parts > limits::PARTS {
            let expected = format!("at most {}", limits::PARTS);
            return Err(Fault::value(format!("/{}", chain.name), "more parts than that", expected));
        }
        let Some(kind) = map.get("type").and_then(Value::as_str) else {
            let found = map.get("type").map_or("no `type`".into(), shown);
            return Err(Fault::value(at, found, format!("the `type` of a {}", chain.name)));
        };
        if kind == "Sequence" {
            return self.sequence(map, &at, depth);
        }
        let Some(Kind(name, keys)) = chain.kinds.iter().find(|known| known.0 == kind) else {
            let known: Vec<&str> = chain.kinds.iter().map(|k| k.0).collect();
            let expected = format!("Sequence, {}", known.join(", "));
            return Err(Fault::value(format!("{at}/type"), cut(kind), expected));
        };
        self.summary.kinds.push((*name).to_owned());
        if let Some(unknown) = map.keys().find(|key| *key != "type" && !keys.iter().any(|k| k.0 == *key)) {
            let known: Vec<&str> = keys.iter().map(|k| k.0).collect();
            let expected = if known.is_empty() { "no keys".into() } else { known.join(", ") };
            return Err(Fault::value(format!("{at}/{}", cut(unknown)), "a key that is not known", expected));
        }
        for Key(key, is, need) in *keys {
            match map.get(*key) {
                None | Some(Value::Null) if *need == May => {}
                None => return Err(Fault::value(&at, format!("no `{key}`"), is.words())),
                Some(value) => self.value(map, value, *is, format!("{at}/{key}"))?,
            }
        }
        Ok(())
    }

    fn sequence(&mut self, map: &Map<String, Value>, at: &str, depth: usize) -> Result<(), Fault> {
        let list = self.chain.list;
        if depth >= limits::DEPTH {
            let expected = format!("at most {} levels", limits::DEPTH);
            return Err(Fault::value(format!("/{}", self.chain.name), "sequences in sequences", expected));
        }
        let Some(parts) = map.get(list).and_then(Value::as_array) else {
            let found = map.get(list).map_or_else(|| format!("no `{list}`"), shown);
            return Err(Fault::value(at, found, format!("a list `{list}`")));
        };
        if let Some(unknown) = map.keys().find(|key| *key != "type" && *key != list) {
            return Err(Fault::value(format!("{at}/{}", cut(unknown)), "a key that is not known", list));
        }
        parts.iter().enumerate().try_for_each(|(i, part)| self.part(part, format!("{at}/{list}/{i}"), depth + 1))
    }

    fn value(&mut self, part: &Map<String, Value>, value: &Value, is: Is, at: String) -> Result<(), Fault> {
        let text = value.as_str();
        let fits = match is {
            Any => true,
            Bool => value.is_boolean(),
            Text => text.is_some_and(|t| t.len() <= limits::TEXT),
            Replacement => match text.filter(|t| t.len() <= limits::TEXT) {
                Some(text) => return self.grows(part, text, &at),
                None => false,
            },
            Char => text.is_some_and(|t| t.chars().count() == 1),
            Count(least) => value.as_u64().is_some_and(|n| n >= least && n <= limits::IDS),
            OneOf(words) => text.is_some_and(|t| words.contains(&t)),
            Pattern => return self.pattern(value, at),
            Charsmap => match text {
                Some(encoded) => {
                    let longest = charsmap::check(encoded, &at)?;
                    return self.multiply(longest, &at);
                }
                None => false,
            },
        };
        if fits { Ok(()) } else { Err(Fault::value(at, shown(value), is.words())) }
    }

    fn pattern(&mut self, value: &Value, at: String) -> Result<(), Fault> {
        let bad = |found: String| Fault::value(&at, found, Pattern.words());
        let map = value.as_object().filter(|map| map.len() == 1).ok_or_else(|| bad(shown(value)))?;
        let (kind, text) = map.iter().next().ok_or_else(|| bad(shown(value)))?;
        let text = text.as_str().ok_or_else(|| bad(shown(value)))?;
        if text.len() > limits::PATTERN {
            return Err(bad(format!("a pattern of {} bytes", text.len())));
        }
        match kind.as_str() {
            "Regex" => self.summary.patterns.push(Found { at: format!("{at}/Regex"), regex: text.to_owned() }),
            "String" => {}
            _ => return Err(bad(shown(value))),
        }
        Ok(())
    }

    /// How many bytes the part makes of one: replacing a text of p bytes by one of c, or a match of unknown length, which may
    /// be nothing.
    fn grows(&mut self, part: &Map<String, Value>, content: &str, at: &str) -> Result<(), Fault> {
        let found = part.get("pattern").and_then(|p| p.get("String")).and_then(Value::as_str);
        let factor = match found.map(str::len) {
            Some(0) | None => 1 + content.len(),
            Some(length) => content.len().div_ceil(length).max(1),
        };
        self.multiply(factor, at)
    }

    fn multiply(&mut self, factor: usize, at: &str) -> Result<(), Fault> {
        self.growth = self.growth.saturating_mul(factor);
        if self.growth > limits::GROWTH {
            let found = "replacements that make text grow without end".to_owned();
            return Err(Fault::value(at, found, format!("at most {} bytes for each byte of text", limits::GROWTH)));
        }
        Ok(())
    }
}

impl Is {
    fn words(self) -> String {
        match self {
            Bool => "true or false".into(),
            Text | Replacement => format!("a text of at most {} bytes", limits::TEXT),
            Char => "one character".into(),
            Count(least) => format!("a whole number, {least} to {}", limits::IDS),
            Pattern => format!(r#"{{"String": text}} or {{"Regex": pattern}} of at most {} bytes"#, limits::PATTERN),
            OneOf(words) => format!("one of {}", words.join(", ")),
            Charsmap => "a character map in base64".into(),
            Any => "a value".into(),
        }
    }
}
