//! What a Rust file declares and names: modules, items, and paths that begin at `crate`, `super`, `self` or a child module.
//!
//! Not a parser of Rust: comments and literals are blanked, items under `#[cfg(test)]` are cut out, and the rest is read as
//! a row of identifiers and signs. A module inside of the file counts as the file.

/// A `use` of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Segments; `*` at the end for all names.
    pub path: Vec<String>,
    /// Name that it is known by here.
    pub name: String,
    /// `pub use` of any reach.
    pub public: bool,
}

/// A file's part in the graph of imports.
#[derive(Debug, Default)]
pub struct Imports {
    pub uses: Vec<Use>,
    /// Paths in the code itself.
    pub paths: Vec<Vec<String>>,
    /// Names of items that are defined here.
    pub items: Vec<String>,
    /// Child modules for tests only, which are files of their own.
    pub test_modules: Vec<String>,
}

/// Words before an item's name.
const ITEMS: [&str; 10] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "mod", "macro_rules"];

/// Reads a file.
pub fn read(text: &str) -> Imports {
    let mut imports = Imports::default();
    let tokens = cut_tests(tokens(&blank(text)), &mut imports.test_modules);
    let mut at = 0;
    while at < tokens.len() {
        let token = tokens[at].as_str();
        let next = tokens.get(at + 1).map_or("", String::as_str);
        let before = at.checked_sub(1).map_or("", |i| tokens[i].as_str());
        if token == "use" && next != "<" {
            let public = before == "pub" || before == ")";
            at = read_tree(&tokens, at + 1, &[], public, &mut imports.uses);
        } else if ITEMS.contains(&token) {
            let name = if next == "!" { tokens.get(at + 2).map_or("", String::as_str) } else { next };
            imports.items.push(name.to_owned());
            at += 1;
        } else if next == "::" && before != "::" && before != "in" && is_name(token) {
            let mut path = vec![token.to_owned()];
            at += 1;
            while tokens.get(at).is_some_and(|t| t == "::") && tokens.get(at + 1).is_some_and(|t| is_name(t)) {
                path.push(tokens[at + 1].clone());
                at += 2;
            }
            imports.paths.push(path);
        } else {
            at += 1;
        }
    }
    imports
}

/// One tree of a `use`, from `at`; returns where it ends: behind its last token.
fn read_tree(tokens: &[String], mut at: usize, head: &[String], public: bool, uses: &mut Vec<Use>) -> usize {
    let mut path = head.to_vec();
    loop {
        match tokens.get(at).map_or(";", String::as_str) {
            "::" => at += 1,
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|t| t != "}") {
                    at = read_tree(tokens, at, &path, public, uses);
                    at += usize::from(tokens.get(at).is_some_and(|t| t == ","));
                }
                return at + 1;
            }
            "as" => {
                let name = tokens.get(at + 1).cloned().unwrap_or_default();
                uses.push(Use { path, name, public });
                return at + 2;
            }
            "," | "}" | ";" => {
                // `a::{self}` is `a`.
                if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
                    path.pop();
                }
                let name = path.last().cloned().unwrap_or_default();
                uses.push(Use { path, name, public });
                return at;
            }
            segment => {
                path.push(segment.to_owned());
                at += 1;
            }
        }
    }
}

/// Without items under `#[cfg(test)]`, and whatever else names `test` in a `cfg`.
fn cut_tests(tokens: Vec<String>, test_modules: &mut Vec<String>) -> Vec<String> {
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        let end = attribute_end(&tokens, at);
        let is_test = end > at && tokens[at..end].iter().any(|t| t == "cfg") && {
            let has = |word: &str| tokens[at..end].iter().any(|t| t == word);
            has("test") && !has("not")
        };
        if !is_test {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        at = end;
        while attribute_end(&tokens, at) > at {
            at = attribute_end(&tokens, at);
        }
        let mut depth = 0;
        let from = at;
        while at < tokens.len() {
            let token = tokens[at].as_str();
            depth += i32::from(matches!(token, "{" | "(" | "[")) - i32::from(matches!(token, "}" | ")" | "]"));
            at += 1;
            if depth == 0 && matches!(token, ";" | "}") || depth < 0 {
                break;
            }
        }
        if let Some(name) = tokens[from..at].windows(3).find(|w| w[0] == "mod" && w[2] == ";").map(|w| w[1].clone()) {
            test_modules.push(name);
        }
    }
    kept
}

/// Where the outer attribute that begins at `at` ends; `at` if none does.
fn attribute_end(tokens: &[String], at: usize) -> usize {
    if tokens.get(at).is_none_or(|t| t != "#") || tokens.get(at + 1).is_none_or(|t| t != "[") {
        return at;
    }
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(at + 1) {
        depth += i32::from(token == "[") - i32::from(token == "]");
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::`, and single signs.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_alphanumeric() || c == '_' {
            let mut name = String::from(c);
            while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
                name.push(c);
            }
            tokens.push(name);
        } else if c == ':' && chars.next_if_eq(&':').is_some() {
            tokens.push("::".to_owned());
        } else if !c.is_whitespace() {
            tokens.push(c.to_string());
        }
    }
    tokens
}

/// The text with comments and literals replaced by blanks.
fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        let end = match (at(i), at(i + 1)) {
            ('/', '/') => skip(&chars, i, &['\n'], false),
            ('/', '*') => skip(&chars, i + 2, &['*', '/'], false),
            ('"', _) => skip(&chars, i + 1, &['"'], true),
            ('r', '"' | '#') if !out.ends_with(|c: char| c.is_alphanumeric() || c == '_') => raw_string(&chars, i),
            ('\'', '\\') => skip(&chars, i + 3, &['\''], false),
            ('\'', _) if at(i + 2) == '\'' => i + 3,
            _ => i,
        };
        if end == i {
            out.push(chars[i]);
            i += 1;
        } else {
            out.push(' ');
            i = end;
        }
    }
    out
}

/// Behind the first `mark` from `from`.
fn skip(chars: &[char], from: usize, mark: &[char], escapes: bool) -> usize {
    let mut i = from;
    while i < chars.len() {
        if escapes && chars[i] == '\\' {
            i += 2;
        } else if chars[i..].starts_with(mark) {
            return i + mark.len();
        } else {
            i += 1;
        }
    }
    chars.len()
}

/// Behind a raw string that begins at `from`; `from` if it is a raw identifier.
fn raw_string(chars: &[char], from: usize) -> usize {
    let hashes = chars[from + 1..].iter().take_while(|c| **c == '#').count();
    if chars.get(from + 1 + hashes) != Some(&'"') {
        return from;
    }
    let mark: Vec<char> = [vec!['"'], vec!['#'; hashes]].concat();
    skip(chars, from + 2 + hashes, &mark, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(text: &str) -> Vec<String> {
        read(text).uses.iter().map(|one| one.path.join("::")).collect()
    }

    #[test]
    fn a_tree_is_read_into_its_leaves() {
        assert_eq!(
            used("use crate::{a::{B, self}, c as d};\npub use super::*;"),
            ["crate::a::B", "crate::a", "crate::c", "super::*"]
        );
        let uses = read("pub(crate) use a::B as C;").uses;
        assert_eq!(uses, [Use { path: vec!["a".into(), "B".into()], name: "C".into(), public: true }]);
    }

    #[test]
    fn comments_strings_and_tests_are_left_out() {
        let text = "// use a::b;\n/* use c; */ const T: &str = \"use d;\\\" use e;\"; let q = '\"'; use f::g;\n\
                    let r = r#\"use h::\"i;\"#;\n#[cfg(test)]\nmod tests { use super::*; fn f() {} }\n\
                    #[cfg(all(test, unix))]\n#[allow(x)]\nmod more;\nuse j::k;";
        assert_eq!(used(text), ["f::g", "j::k"]);
        assert_eq!(read(text).test_modules, ["more"]);
    }

    #[test]
    fn paths_in_code_count_and_visibility_does_not() {
        let found = read("pub(in crate::a) fn f<'a>(x: &'a super::B) { crate::c::d::<u8>(); x::y() }");
        let paths: Vec<_> = found.paths.iter().map(|path| path.join("::")).collect();
        assert_eq!(paths, ["super::B", "crate::c::d", "x::y"]);
        assert_eq!(found.items, ["f"]);
    }
}
