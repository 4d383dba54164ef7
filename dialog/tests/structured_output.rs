//! Structured output from a model that says anything at random, at temperature 1: 200 schemas and 200 regular expressions of
//! growing size, made by a seeded generator. Every reply ends, parses and conforms.

use dialog::config::ContextSettings;
use dialog::{Dialog, Grammar, GrammarKind, SamplerSettings, SentenceCode, StopReason};
use rand_mt::Mt64;
use serde_json::{Map, Value, json};

use crate::common::{Fake, context, tokenizer};

const N: usize = 200;
/// Tokens for a reply; all end far before.
const CONTEXT: usize = 1 << 16;

/// All tokens that are allowed are equally likely: the model's wish, a control token, never is.
fn anything(seed: u32) -> Dialog {
    let (model, _) = Fake::new(CONTEXT, |_| 256);
    let sampler = SamplerSettings::default().with_seed(Some(seed)).with_top_p(1.0).unwrap().with_temp(1.0).unwrap();
    Dialog::from_parts(ContextSettings { size: CONTEXT, ..context() }, sampler, tokenizer(), model)
}

/// A reply, which must end by itself.
fn reply(kind: GrammarKind, text: &str, seed: u32) -> String {
    let mut dialog = anything(seed);
    let grammar = Grammar::new(kind, text).unwrap_or_else(|e| panic!("{text}: {e}"));
    dialog.set_grammar(Some(&grammar)).unwrap();
    let reply = dialog.query("x", SentenceCode::Complete, |_| {}).unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!(reply.stop, StopReason::Eos, "{text}: {}", reply.text);
    reply.text
}

struct Maker(Mt64);

impl Maker {
    fn below(&mut self, n: usize) -> usize {
        (self.0.next_u64() % n as u64) as usize
    }

    fn name(&mut self) -> String {
        let letters = ["a", "key", "größe", "x_1", "long name", "\"q\"", "日"];
        format!("{}{}", letters[self.below(letters.len())], self.below(100))
    }

    fn scalar(&mut self) -> Value {
        match self.below(5) {
            0 => json!(null),
            1 => json!(self.below(2) == 0),
            2 => json!(self.below(1000) as i64 - 500),
            3 => json!(self.name()),
            _ => json!([self.below(10), self.name()]),
        }
    }

    fn schema(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 7 } else { 14 }) {
            0 => json!({"type": "boolean"}),
            1 => json!({"type": "null"}),
            2 => {
                let least = self.below(200) as i64 - 100;
                json!({"type": "integer", "minimum": least, "maximum": least + self.below(500) as i64})
            }
            3 => {
                let least = self.below(9);
                json!({"type": "string", "minLength": least, "maxLength": least + self.below(9)})
            }
            4 => {
                let pattern = ["^[A-Z]{3}-[0-9]{2}$", "^(on|off)$", "^a+b?c{2,4}$"][self.below(3)];
                json!({"type": "string", "pattern": pattern})
            }
            5 => json!({"enum": (0..=self.below(4)).map(|_| self.scalar()).collect::<Vec<_>>()}),
            6 => json!({"const": self.scalar()}),
            7 => {
                let least = self.below(3);
                json!({"type": "array", "items": self.schema(depth - 1), "minItems": least, "maxItems": least + self.below(4)})
            }
            8 => {
                let both = [self.schema(depth - 1), self.schema(depth - 1)];
                json!({ "anyOf": both })
            }
            _ => {
                let properties: Map<String, Value> =
                    (0..=self.below(7)).map(|_| (self.name(), self.schema(depth - 1))).collect();
                let required: Vec<&String> = properties.keys().filter(|name| name.len() % 2 == 0).collect();
                json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
            }
        }
    }

    fn regex(&mut self, depth: usize) -> String {
        let mut out = String::new();
        for _ in 0..=self.below(2 + depth) {
            let piece = match self.below(if depth == 0 { 6 } else { 9 }) {
                0 => "[a-f]".to_owned(),
                1 => r"\d".to_owned(),
                2 => ["x", "yz", r"\.", "é", "/", "日本"][self.below(6)].to_owned(),
                3 => "[^,;]".to_owned(),
                4 => r"\w".to_owned(),
                5 => r"[0-9A-F\-_]".to_owned(),
                _ => format!("({}|{})", self.regex(depth - 1), self.regex(depth - 1)),
            };
            let times = ["", "", "?", "{2}", "{1,3}", "{0,4}", "{1,5}?"][self.below(7)];
            // A quantifier takes one character or a group.
            let one = piece.starts_with(['[', '(', '\\']) || piece.chars().count() == 1;
            out.push_str(&if one || times.is_empty() {
                format!("{piece}{times}")
            } else {
                format!("(?:{piece}){times}")
            });
        }
        out
    }
}

#[test]
fn every_reply_under_a_schema_is_a_document_that_conforms() {
    let mut maker = Maker(Mt64::new(17));
    let mut longest = 0;
    for n in 0..N {
        let schema = maker.schema(1 + n * 4 / N);
        let text = reply(GrammarKind::JsonSchema, &schema.to_string(), n as u32);
        let document: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{schema}: {e}: {text}"));
        let validator = jsonschema::validator_for(&schema).unwrap();
        assert!(validator.is_valid(&document), "{schema}: {text}");
        longest = longest.max(text.len());
    }
    assert!(longest > 150, "the largest document has {longest} bytes");
}

#[test]
fn every_reply_under_a_regular_expression_matches_it() {
    let mut maker = Maker(Mt64::new(23));
    for n in 0..N {
        let pattern = maker.regex(n * 3 / N);
        let text = reply(GrammarKind::Regex, &pattern, n as u32);
        let whole = regex::RegexBuilder::new(&format!("^(?s:{pattern})$")).size_limit(1 << 28).build().unwrap();
        assert!(whole.is_match(&text), "{pattern}: {text:?}");
    }
}

#[test]
fn a_document_of_any_size_is_never_cut_short_by_the_grammar() {
    // Everything that JSON may be, nested as deep as chance has it, up to the limit: what came so far is the beginning of one.
    let mut dialog = anything(3);
    dialog.set_grammar(Some(&Grammar::new(GrammarKind::JsonSchema, "{}").unwrap())).unwrap();
    dialog.control().set_max_num_tokens(Some(2000));
    let reply = dialog.query("x", SentenceCode::Complete, |_| {}).unwrap();
    match serde_json::from_str::<Value>(&reply.text) {
        Ok(_) => assert_eq!(reply.stop, StopReason::Eos),
        // A number may be too large for the reader.
        Err(e) => assert!(e.is_eof() || e.to_string().contains("out of range"), "{e}: {}", reply.text),
    }
}
