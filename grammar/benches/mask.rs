//! Time of a mask for one token, over a made-up vocabulary of 128,000 tokens. Ids: `language/what`.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use genie_types::TokenId;
use grammar::{Constraint, Grammar, GrammarKind, Vocabulary};
use rand_mt::Mt64;

const N_VOCAB: usize = 128_000;

/// All bytes, then words of letters with and without a space before them, digits, and pieces of JSON.
fn vocabulary() -> Vocabulary {
    let mut random = Mt64::new(1);
    let mut below = |n: u64| random.next_u64() % n;
    let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    tokens
        .extend(["\":", "\",", "\": \"", "},", "{\"", "[[", "]]", "\n\n", "    "].map(|text| text.as_bytes().to_vec()));
    tokens.extend((0..1000).map(|n: u32| format!("{n:03}").into_bytes()));
    while tokens.len() < N_VOCAB {
        let mut word = if below(2) == 0 { vec![b' '] } else { Vec::new() };
        word.extend((0..2 + below(8)).map(|_| b'a' + below(26) as u8));
        tokens.push(word);
    }
    Vocabulary::from_bytes(tokens).expect("tokens have bytes")
}

fn masks(criterion: &mut Criterion) {
    let vocabulary = vocabulary();
    let logits = vec![0.0; N_VOCAB];
    let schema = r#"{"type":"object","properties":{"name":{"type":"string"},"tags":{"type":"array","items":{"type":"string"}},
        "age":{"type":"integer"}},"required":["name","age"],"additionalProperties":false}"#;
    let json = "root ::= value\nvalue ::= object | \"[\" (value (\",\" value)*)? \"]\" | string | [0-9]+\n\
                object ::= \"{\" (string \":\" value (\",\" string \":\" value)*)? \"}\"\nstring ::= \"\\\"\" [^\"\\\\]* \"\\\"\"";
    let cases = [
        ("json-schema/key", GrammarKind::JsonSchema, schema, "{\"na"),
        ("json-schema/string", GrammarKind::JsonSchema, schema, "{\"name\": \"some"),
        ("json-schema/number", GrammarKind::JsonSchema, schema, "{\"name\": \"some\", \"age\": 1"),
        ("regex/letters", GrammarKind::Regex, "[a-z ]{1,400}", "some"),
        ("regex/digits", GrammarKind::Regex, "[0-9]{3}-[0-9]{4}", "12"),
        ("ebnf/choice", GrammarKind::Ebnf, "root ::= \"yes \" (\"sir\" | \"madam\") \"!\"", "yes "),
        ("ebnf/recursive-string", GrammarKind::Ebnf, json, "{\"a\":[\"some"),
        ("ebnf/recursive-value", GrammarKind::Ebnf, json, "{\"a\":[1,"),
    ];
    for (name, kind, text, so_far) in cases {
        let grammar = Grammar::new(kind, text).expect("a grammar");
        let mut constraint = Constraint::new(&grammar, &vocabulary).expect("it can be followed");
        for byte in so_far.bytes() {
            constraint.accept(TokenId(byte.into()), false).expect("it belongs to the grammar");
        }
        let last = *constraint.tokens().last().expect("a text so far");
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| {
                // What a step does: takes a token, and looks what may follow.
                constraint.forget(1);
                constraint.accept(last, false).expect("it belongs to the grammar");
                constraint.allow(black_box(&logits), &[]).map(|_| ())
            });
        });
    }
}

criterion_group!(benches, masks);
criterion_main!(benches);
