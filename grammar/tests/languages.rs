//! Each language of grammars: which texts it takes, token by token, over a vocabulary of bytes and a few longer tokens.

use genie_types::TokenId;
use grammar::{Allowed, Constraint, Grammar, GrammarError, GrammarKind, Vocabulary};

const STOP: TokenId = TokenId(256);

/// All bytes, a control token, and tokens of several bytes.
fn vocabulary() -> Vocabulary {
    let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    tokens.push(Vec::new());
    tokens.extend(["yes", "ab", "\":", "tru", "}\n"].map(|text| text.as_bytes().to_vec()));
    Vocabulary::from_bytes(tokens).unwrap()
}

fn start(kind: GrammarKind, text: &str) -> Constraint {
    Constraint::new(&Grammar::new(kind, text).unwrap_or_else(|e| panic!("{text}: {e}")), &vocabulary())
        .unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The tokens that may come next.
fn allowed(constraint: &mut Constraint) -> Vec<u32> {
    match constraint.allow(&[0.0; 261], &[STOP]).unwrap() {
        Allowed::Row(row) => (0..).zip(row).filter(|(_, logit)| logit.is_finite()).map(|(id, _)| id).collect(),
        Allowed::Complete => panic!("there is a stop token"),
    }
}

/// Whether the bytes, one token each, are a whole text of the grammar.
fn takes(kind: GrammarKind, grammar: &str, text: &str) -> bool {
    let mut constraint = start(kind, grammar);
    for byte in text.bytes() {
        if !allowed(&mut constraint).contains(&u32::from(byte)) {
            return false;
        }
        constraint.accept(TokenId(byte.into()), false).unwrap();
    }
    allowed(&mut constraint).contains(&STOP.0)
}

#[test]
fn each_language_takes_its_texts_and_no_others() {
    use GrammarKind::{Ebnf, JsonSchema, Lark, Regex};
    // Kind, grammar, texts of it, other texts.
    type Case = (GrammarKind, &'static str, &'static [&'static str], &'static [&'static str]);
    let cases: [Case; 23] = [
        (
            Ebnf,
            "root ::= \"yes \" (\"sir\" | \"madam\") \"!\"",
            &["yes sir!", "yes madam!"],
            &["yes", "yes sir!!", "no"],
        ),
        (Ebnf, "root ::= \"a\" root | \"b\"\n", &["b", "aab"], &["", "a", "ba"]),
        (Ebnf, "root ::= (\"a\" | \"ab\") [b-c]", &["ab", "ac", "abb", "abc"], &["a", "abbb"]),
        // The same in a grammar that is not regular.
        (
            Ebnf,
            "root ::= (\"a\" | \"ab\") [b-c] r\nr ::= \"(\" r \")\" | \"\"",
            &["ab", "abb(())", "ac()"],
            &["abbb", "ab("],
        ),
        (Ebnf, "root ::= [a-d]* \"a\"", &["a", "bca", "aaa"], &["", "ab"]),
        (Ebnf, "root ::= x [a-d]* \"a\"\nx ::= \"(\" x \")\" | \"\"", &["a", "(())bca", "aaa"], &["", "ab", "(a"]),
        (Ebnf, "root ::= [^a-z]{2}", &["12", "\n\n", "é日"], &["a1", "1", "123"]),
        (Ebnf, "root ::= \"a\"* \"b\"+ \"c\"?", &["b", "aabbc"], &["", "ac", "bcc"]),
        (Ebnf, "root ::= \"é\" [à-ü] \"\\u00e9\" \"\\x41\"", &["ééé\u{41}", "éüéA"], &["éa", "éþéA"]),
        (Ebnf, "root ::= \"\" | \"a\"", &["", "a"], &["aa"]),
        (Ebnf, "root ::= \"a\"{2,} \"b\"{0,2} \"c\"{0} \"d\"{2}", &["aadd", "aaaabbdd"], &["add", "aabbbdd", "aacdd"]),
        (Ebnf, "root ::= .{3}", &["a\n日"], &["ab"]),
        (Ebnf, "root ::= (\"a\"{2}){2} | (\"b\"+)?", &["aaaa", "", "bb"], &["aa"]),
        (Regex, "[0-9]{3}-[a-z]{2,4}x", &["123-abx", "123-xxxxx"], &["12-abx", "123-x"]),
        (Regex, "^ab$", &["ab"], &["", "abb"]),
        (Regex, r"\d{2}\s\w\W", &["12 a-"], &["1a", "12 --", "\u{661}\u{662} a-"]),
        (Regex, "a*?b|(?P<x>c/d)", &["b", "aab", "c/d"], &["a"]),
        (Regex, ".{2}", &["a\n", "日b"], &["a", "abc"]),
        (Regex, "", &[""], &["a"]),
        (JsonSchema, r#"{"type":"integer"}"#, &["0", "-12"], &["01", "1.5", " 1", "1 "]),
        (
            JsonSchema,
            r#"{"type":"object","properties":{"a":{"type":"integer"},"b":{"enum":["x","y"]}},"required":["b"],"additionalProperties":false}"#,
            &[r#"{"b":"x"}"#, "{ \"a\" : 1,\n\t\"b\": \"y\" }"],
            &[r#"{"a":1}"#, r#"{"b":"z"}"#, "{\r\"b\":\"x\"}", r#"{"b":"x","c":1}"#],
        ),
        (JsonSchema, "true", &["null", "[1, {\"a\": true}]"], &["nul", "[1,]"]),
        (Lark, "start: \"a\" B\nB: /[0-9]+/", &["a1", "a12"], &["a", "1"]),
    ];
    for (kind, grammar, good, bad) in cases {
        for text in good {
            assert!(takes(kind, grammar, text), "{kind} {grammar:?} takes {text:?}");
        }
        for text in bad {
            assert!(!takes(kind, grammar, text), "{kind} {grammar:?} does not take {text:?}");
        }
    }
}

#[test]
fn tokens_match_by_their_bytes_and_control_tokens_never() {
    let mut constraint = start(GrammarKind::Regex, "yes|ab.*");
    assert_eq!(allowed(&mut constraint), [u32::from(b'a'), u32::from(b'y'), 257, 258]);
    constraint.accept(TokenId(258), false).unwrap();
    let free = allowed(&mut constraint);
    // Bytes that cannot begin a character are out, and the control token stands for the end.
    assert!(free.contains(&STOP.0) && free.contains(&257) && !free.contains(&0xff) && !free.contains(&0x80));
    constraint.accept(STOP, true).unwrap();
    assert!(constraint.has_ended());
    assert_eq!(allowed(&mut constraint), [STOP.0]);
}

#[test]
fn a_stop_token_with_text_of_its_own_does_not_match_by_it() {
    let grammar = Grammar::new(GrammarKind::Regex, "ab|yes").unwrap();
    let mut constraint = Constraint::new(&grammar, &vocabulary()).unwrap();
    let Allowed::Row(row) = constraint.allow(&[0.0; 261], &[TokenId(257)]).unwrap() else { panic!() };
    assert_eq!((row[257], row[258]), (f32::NEG_INFINITY, 0.0));
}

#[test]
fn without_a_stop_token_a_complete_text_says_so() {
    let mut constraint = start(GrammarKind::Regex, "ab");
    constraint.accept(TokenId(258), false).unwrap();
    assert_eq!(constraint.allow(&[0.0; 261], &[]).unwrap(), Allowed::Complete);
}

#[test]
fn what_was_taken_can_be_taken_back() {
    let mut constraint = start(GrammarKind::Ebnf, "root ::= \"yes \" (\"sir\" | \"madam\") \"!\"");
    let text: Vec<TokenId> = b"yes madam!".iter().map(|b| TokenId((*b).into())).collect();
    let masks: Vec<Vec<u32>> = text
        .iter()
        .map(|token| {
            let mask = allowed(&mut constraint);
            constraint.accept(*token, false).unwrap();
            mask
        })
        .collect();
    for n in 1..=text.len() {
        constraint.accept(STOP, true).unwrap();
        constraint.forget(n);
        let place = text.len() - n;
        assert_eq!((constraint.tokens(), constraint.has_ended()), (&text[..place], false));
        assert_eq!(allowed(&mut constraint), masks[place], "{n} back");
        text[place..].iter().for_each(|token| constraint.accept(*token, false).unwrap());
    }
    assert_eq!(constraint.n_valid(&text), 0);
    let progress = constraint.progress();
    constraint.restart();
    assert_eq!(constraint.n_valid(&text), text.len());
    assert_eq!(constraint.n_valid(&[text[0], text[0]]), 1);
    assert!(constraint.restore(&progress));
    assert_eq!((allowed(&mut constraint), constraint.tokens()), (vec![STOP.0], &text[..]));
    let mut other = start(GrammarKind::Regex, "yes madam!");
    assert!(!other.restore(&progress) && other.tokens().is_empty());
}

#[test]
fn what_no_token_can_say_is_an_error_that_names_it() {
    let tokens = ["a", "b", "abc"].map(|text| text.as_bytes().to_vec()).to_vec();
    let vocabulary = Vocabulary::from_bytes(tokens).unwrap();
    let made = |text: &str| Constraint::new(&Grammar::new(GrammarKind::Regex, text).unwrap(), &vocabulary);
    let error = made("zoo").unwrap_err();
    assert!(matches!(error, GrammarError::NoFirstToken { .. }));
    assert_eq!(
        error.to_string(),
        "no token of the vocabulary can begin what the regex grammar wants: it must be `zoo`"
    );
    let mut constraint = made("abd").unwrap();
    for _ in 0..2 {
        constraint.restart();
        constraint.accept(TokenId(0), false).unwrap();
        constraint.accept(TokenId(1), false).unwrap();
        for _ in 0..2 {
            let error = constraint.allow(&[0.0; 3], &[]).unwrap_err();
            let expected =
                "no token of the vocabulary continues what the regex grammar wants behind `ab`: it must be `d`";
            assert_eq!(error.to_string(), expected);
        }
    }
    assert!(constraint.accept(TokenId(0), false).is_err());
    assert_eq!(constraint.tokens().len(), 2);
    let error = Vocabulary::from_bytes(vec![Vec::new(); 3]).unwrap_err();
    assert!(matches!(error, GrammarError::Vocabulary { .. }), "{error}");
}

#[test]
fn faults_of_grammars_are_named_with_their_places() {
    use GrammarKind::{Ebnf, JsonSchema, Lark, Regex};
    let cases = [
        (JsonSchema, "{\"type\":\"obj", "the json-schema grammar is malformed at line 1, column 12: "),
        (JsonSchema, "{\"type\":\n 1 2}", "the json-schema grammar is malformed at line 2, column 4: "),
        (
            JsonSchema,
            "3",
            "the json-schema grammar cannot be used: expected an object or a truth value, found a number",
        ),
        (JsonSchema, "{\"type\":\"foo\"}", "the json-schema grammar cannot be used: "),
        (JsonSchema, "{\"not\":{\"type\":\"object\"}}", "the json-schema grammar cannot be used: "),
        (Regex, "a\\bc", "the regex grammar is malformed at line 1, column 2: word boundaries are not supported"),
        (Regex, "(?<=a)b", "the regex grammar is malformed at line 1, column 1: look-around"),
        (Ebnf, "root ::= foo", "the ebnf grammar is malformed at line 1, column 10: the rule `foo` is not defined"),
        (Lark, "start: \"a\"\nb: ]", "the lark grammar is malformed at line 2, column "),
        (Lark, "begin: \"a\"", "the lark grammar cannot be used: "),
        (Lark, "start: foo", "the lark grammar "),
    ];
    for (kind, text, expected) in cases {
        let error = Grammar::new(kind, text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    assert!(matches!("bnf".parse::<GrammarKind>(), Err(GrammarError::UnknownKind { .. })));
    assert!(matches!(Grammar::from_file(Regex, "/nonexistent"), Err(GrammarError::Read { .. })));
    assert!(matches!(Grammar::from_file(Regex, "/"), Err(GrammarError::Read { .. })));
}

#[test]
fn a_long_recursive_text_is_followed_to_its_end() {
    let mut constraint = start(GrammarKind::Ebnf, "root ::= \"a\" root | \"b\"");
    for _ in 0..5000 {
        constraint.accept(TokenId(b'a'.into()), false).unwrap();
    }
    assert!(allowed(&mut constraint).contains(&u32::from(b'b')));
    constraint.accept(TokenId(b'b'.into()), false).unwrap();
    assert_eq!(allowed(&mut constraint), [STOP.0]);
}

#[test]
fn rules_that_name_each_other_thousands_deep_are_followed() {
    // Recursive, so that they are rules; the last one goes back to the first.
    let n = 9000;
    let mut rules = String::from("root ::= r0\n");
    for i in 0..n {
        rules += &format!("r{i} ::= {} | \"a\" r{}\n", if i == 0 { "\"b\"" } else { "\"c\"" }, (i + 1) % n);
    }
    assert!(takes(GrammarKind::Ebnf, &rules, "aaac"));
    assert!(!takes(GrammarKind::Ebnf, &rules, "aaab"));
}
