//! What is written for rules, and what is said of malformed ones.

use super::*;

#[test]
fn grammars_are_written_as_one_regular_expression_where_they_can() {
    let cases = [
        (
            "root ::= \"yes \" (\"sir\" | \"madam\") \"!\"",
            "start: R0\nG0: \"sir\" | \"madam\"\nR0: \"yes \" G0 \"!\"\n",
        ),
        ("root ::= [^a-y]{2}", "start: R0\nR0: /[\\x{0}-\\x{60}\\x{7a}-\\x{10ffff}]/{2,2}\n"),
        (
            "# c\nroot ::= a\n | \"c\" # t\na ::= \"\\n\\\"\"+",
            "start: R0\nR0: R1 | \"c\"\nG0: \"\\u000a\\\"\"\nR1: G0+\n",
        ),
        ("root ::= \"ab\" root | \"b\"", "start: r0\nr0: \"a\" \"b\" r0 | \"b\"\n"),
        ("root ::= \"a\"\nunused ::= root", "start: R0\nR0: \"a\"\n"),
    ];
    for (text, expected) in cases {
        assert_eq!(to_lark(text).unwrap(), expected, "{text}");
    }
}

#[test]
fn what_is_malformed_has_a_place_and_says_what_was_expected() {
    let cases = [
        ("root ::= foo", 1, 10, "the rule `foo` is not defined"),
        ("start ::= \"a\"", 1, 1, "the rule `root` is not defined; it is where texts begin"),
        ("root ::= \"a\" |", 1, 15, "expected an element, found the end; `\"\"` is the empty text"),
        ("root ::= (\"a\" | \"b\"", 1, 20, "expected `)`, found the end"),
        ("root ::= \"a\"{3,2}", 1, 16, "expected at least 3, the lower bound, found 2"),
        ("root ::= \"a\n\"", 1, 10, "expected `\"` at the end of this literal"),
        ("root ::= \"a\"\nb = \"c\"", 2, 1, "the rule `b` is not defined"),
        ("root ::= [z-a]", 1, 11, "expected a range that ascends, found `z-a`"),
        ("root ::= \"a\" )", 1, 14, "expected an element or a rule, found `)`"),
        ("root ::= \"\\q\"", 1, 11, "unknown escape `\\q`"),
        ("root ::= \"a\"\nroot ::= \"b\"", 2, 1, "the rule `root` is defined twice"),
        ("root ::= (= \"a\")", 1, 10, "looking ahead with `(=` is not supported"),
        ("root ::= \"a\"{x}", 1, 14, "expected a number, found `x`"),
        ("", 1, 1, "the rule `root` is not defined; it is where texts begin"),
    ];
    for (text, line, column, message) in cases {
        match to_lark(text) {
            Err(GrammarError::Malformed { line: l, column: c, message: m, .. }) if text.contains("b = ") => {
                // The name is taken for an element of the rule before it; the `=` is not one.
                assert_eq!((l, c, m.as_str()), (line, 3, "expected an element, found `=`"), "{message}");
            }
            Err(GrammarError::Malformed { line: l, column: c, message: m, .. }) => {
                assert_eq!((l, c, m.as_str()), (line, column, message), "{text}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn a_grammar_without_an_end_is_refused() {
    for text in ["root ::= \"a\" root", "root ::= a\na ::= b\nb ::= \"x\" a | a"] {
        assert!(matches!(to_lark(text), Err(GrammarError::Unusable { .. })), "{text}");
    }
    assert!(to_lark("root ::= \"a\" root | \"\"").is_ok());
}

#[test]
fn deep_groups_are_refused_before_the_stack_ends() {
    let deep = format!("root ::= {}\"a\"{}", "(".repeat(100_000), ")".repeat(100_000));
    assert!(matches!(to_lark(&deep), Err(GrammarError::Malformed { column: 210, .. })));
}

#[test]
fn many_operators_are_refused_before_the_stack_ends() {
    assert!(to_lark("root ::= [a]+?{2}*").is_ok());
    for operators in ["+".repeat(5), "?".repeat(100_000), "{2}".repeat(100_000)] {
        let found = to_lark(&format!("root ::= [a]{operators}"));
        assert!(matches!(found, Err(GrammarError::Malformed { line: 1, .. })), "{found:?}");
    }
}

#[test]
fn groups_of_rules_that_name_each_other_are_bounded_in_all() {
    let rules = |n: usize| {
        let rule = |i: usize| format!("r{i} ::= {}r{}{}\n", "(".repeat(200), i - 1, " [a])".repeat(200));
        (1..=n).map(rule).fold(String::from("r0 ::= [b]\n"), |all, rule| all + &rule) + &format!("root ::= r{n}\n")
    };
    assert!(to_lark(&rules(100)).is_ok());
    assert!(matches!(to_lark(&rules(600)), Err(GrammarError::Unusable { .. })));
}
