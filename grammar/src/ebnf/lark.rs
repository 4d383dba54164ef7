//! Rules in llguidance's Lark.
//!
//! A lexer stands before llguidance's parser, and takes as much text for a terminal as it can: `("a" | "ab") [b-c]` with
//! literals as terminals would refuse `ab`. So a grammar without recursion becomes one terminal, a regular expression; in any
//! other each terminal is a single character, and no character is the beginning of another.

use std::fmt::Write;

use super::rules::is_regular;
use super::syntax::{Node, Rules};

/// How rules are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As terminals, which are parts of one regular expression.
    Terminals,
    /// As rules over characters.
    Rules,
}

struct Writer {
    form: Form,
    out: String,
    n_groups: usize,
}

pub(super) fn write(rules: &Rules) -> String {
    let form = if is_regular(rules) { Form::Terminals } else { Form::Rules };
    let mut writer = Writer { form, out: String::new(), n_groups: 0 };
    let used = used(rules);
    for (number, body) in rules.bodies.iter().enumerate().filter(|(number, _)| used[*number]) {
        let body = writer.alternatives(body);
        let name = writer.rule(number);
        let _ = writeln!(writer.out, "{name}: {body}");
    }
    format!("start: {}\n{}", writer.rule(rules.root), writer.out)
}

/// The rules that the start needs.
fn used(rules: &Rules) -> Vec<bool> {
    fn each(node: &Node, found: &mut impl FnMut(usize)) {
        match node {
            Node::Text(_) | Node::Class(_) => {}
            Node::Rule(number) => found(*number),
            Node::Sequence(all) | Node::Choice(all) => all.iter().for_each(|node| each(node, found)),
            Node::Repeat { of, .. } => each(of, found),
        }
    }
    let mut used = vec![false; rules.bodies.len()];
    let mut open = vec![rules.root];
    used[rules.root] = true;
    while let Some(number) = open.pop() {
        each(&rules.bodies[number], &mut |next| {
            if !std::mem::replace(&mut used[next], true) {
                open.push(next);
            }
        });
    }
    used
}

impl Writer {
    fn rule(&self, number: usize) -> String {
        match self.form {
            Form::Terminals => format!("R{number}"),
            Form::Rules => format!("r{number}"),
        }
    }

    fn alternatives(&mut self, node: &Node) -> String {
        match node {
            Node::Choice(all) => all.iter().map(|node| self.elements(node)).collect::<Vec<_>>().join(" | "),
            node => self.elements(node),
        }
    }

    fn elements(&mut self, node: &Node) -> String {
        match node {
            Node::Sequence(all) => all.iter().map(|node| self.element(node)).collect::<Vec<_>>().join(" "),
            node => self.element(node),
        }
    }

    /// One element without brackets: groups have names, since brackets may not be deep.
    fn element(&mut self, node: &Node) -> String {
        match node {
            Node::Text(text) if self.form == Form::Rules => {
                let characters: Vec<String> = text.chars().map(|c| quoted(c.encode_utf8(&mut [0; 4]))).collect();
                if characters.is_empty() { quoted("") } else { characters.join(" ") }
            }
            Node::Text(text) => quoted(text),
            Node::Class(ranges) => class(ranges),
            Node::Rule(number) => self.rule(*number),
            Node::Sequence(_) | Node::Choice(_) => {
                let body = self.alternatives(node);
                self.group(&body)
            }
            Node::Repeat { max: Some(0), .. } => quoted(""),
            Node::Repeat { of, min, max } => {
                let of = self.atom(of);
                match (min, max) {
                    (0, None) => format!("{of}*"),
                    (1, None) => format!("{of}+"),
                    (0, Some(1)) => format!("{of}?"),
                    (min, None) => format!("{of}{{{min},}}"),
                    (min, Some(max)) => format!("{of}{{{min},{max}}}"),
                }
            }
        }
    }

    /// One element that can be repeated.
    fn atom(&mut self, node: &Node) -> String {
        let element = self.element(node);
        match node {
            Node::Repeat { .. } | Node::Text(_) => self.group(&element),
            // Groups have names already.
            Node::Class(_) | Node::Rule(_) | Node::Sequence(_) | Node::Choice(_) => element,
        }
    }

    fn group(&mut self, body: &str) -> String {
        let name = match self.form {
            Form::Terminals => format!("G{}", self.n_groups),
            Form::Rules => format!("g{}", self.n_groups),
        };
        self.n_groups += 1;
        let _ = writeln!(self.out, "{name}: {body}");
        name
    }
}

/// A literal.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A class, which may be empty: then nothing matches.
fn class(ranges: &[(char, char)]) -> String {
    let mut out = String::from("/[");
    for (first, last) in ranges {
        let _ = write!(out, "\\x{{{:x}}}-\\x{{{:x}}}", u32::from(*first), u32::from(*last));
    }
    if ranges.is_empty() {
        out.push_str("^\\x{0}-\\x{10ffff}");
    }
    out.push_str("]/");
    out
}
