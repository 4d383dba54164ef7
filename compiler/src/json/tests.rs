//! What is no strict JSON, and values of another type than expected.

use super::*;
use serde_json::json;

const FILE: &str = "config.json";

fn message(text: &[u8]) -> String {
    parse(FILE.as_ref(), text).map_or_else(|error| error.to_string(), |value| value.to_string())
}

#[test]
fn text_that_is_no_strict_json_is_refused_with_the_place() {
    let cases: [(&[u8], &str); 9] = [
        (b"", "it is empty"),
        (b" \n\t", "it is empty"),
        (b"\xef\xbb\xbf{}", "it begins with a byte order mark"),
        (b"{\"a\": \"\xff\"}", "it is not text in UTF-8 from byte 7 on"),
        (b"{\"a\": 1,\n", "it ends in the middle, at line 2"),
        (b"{\"a\": NaN}", "expected value at line 1 column 7"),
        (b"{\"a\": 1}}", "trailing characters at line 1 column 9"),
        // Section 3: the last value won.
        (b"{\"a\": 1, \"b\": 2, \"a\": 1}", "key `a` comes twice at line 1 column 24"),
        (b"{\"o\": [{\"a\": 1,\n \"a\": 2}]}", "key `a` comes twice at line 2 column 8"),
    ];
    for (text, expected) in cases {
        assert_eq!(message(text), format!("`config.json` cannot be read as JSON: {expected}"));
    }
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    assert!(message(&deep).contains("recursion limit"), "no stack overflow");
    let good = r#"{"a":[1,-2,3.5,true,null,"x",{"b":1}],"b":{"a":18446744073709551615}}"#;
    assert_eq!(message(good.as_bytes()), good);
}

#[test]
fn values_are_read_by_type() {
    let value =
        json!({ "n": 7, "x": 0.5, "t": "text", "f": true, "l": ["a", "b"], "i": [1, -1], "o": { "k": 1 }, "z": null });
    let object = Object::document(FILE.as_ref(), &value).unwrap();
    assert_eq!(object.count("n", 1..=7).unwrap(), Some(7));
    assert_eq!(object.number("n", 0.0..=9.0, "").unwrap(), Some(7.0));
    assert_eq!(object.text("t").unwrap(), Some("text"));
    assert_eq!(object.flag("f").unwrap(), Some(true));
    assert_eq!(object.texts("l").unwrap(), Some(vec!["a", "b"]));
    assert_eq!(object.one_or_many("n", -1..=9).unwrap(), Some(vec![7]));
    assert_eq!(object.one_or_many("i", -1..=9).unwrap(), Some(vec![1, -1]));
    assert_eq!((object.count("z", 0..=9).unwrap(), object.flag("none").unwrap()), (None, None));
    assert!(object.is_null("z") && !object.is_null("none"));
    let inner = object.object("o").unwrap().unwrap();
    assert_eq!(object.unread(), [("x", &json!(0.5))]);
    assert_eq!(inner.unread(), [("k", &json!(1))]);

    let said = |result: Result<()>| result.unwrap_err().to_string();
    let cases = [
        (
            said(object.count("t", 1..=9).map(drop)),
            "bad `t` in `config.json`: found \"text\", expected a whole number from 1 to 9",
        ),
        (
            said(object.count("n", 1..=6).map(drop)),
            "bad `n` in `config.json`: found 7, expected a whole number from 1 to 6",
        ),
        (
            said(object.count("x", 0..=6).map(drop)),
            "bad `x` in `config.json`: found 0.5, expected a whole number from 0 to 6",
        ),
        (said(object.flag("n").map(drop)), "bad `n` in `config.json`: found 7, expected true or false"),
        (said(object.texts("i").map(drop)), "bad `i` in `config.json`: found [1,-1], expected a list of strings"),
        (said(inner.text("k").map(drop)), "bad `o.k` in `config.json`: found 1, expected a string"),
        (
            said(inner.needed_count("kk", 1..=2).map(drop)),
            "`config.json` has no `o.kk`: expected a whole number from 1 to 2",
        ),
        (
            said(object.one_or_many("i", 0..=9).map(drop)),
            "bad `i` in `config.json`: found [1,-1], expected a whole number from 0 to 9, or a list of them",
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn what_a_message_shows_is_short_and_without_control_characters() {
    assert_eq!(shown_key("a\u{1b}[31m\nb"), "a\\u{1b}[31m\\u{a}b");
    assert_eq!(shown(&json!("x\u{9b}y")), "\"x\\u{9b}y\"");
    let long = shown(&json!(vec![1; 1000]));
    assert!(long.ends_with("...") && long.len() < 70, "{long}");
}
