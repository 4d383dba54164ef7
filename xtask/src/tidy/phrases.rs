//! Finds the refused words of `words.rs` in a text: by words, over line ends, in names of code as well.

use std::path::Path;

use super::words::{NOT_CHECKED, REFUSED};

/// A word, in lower case, and its line from 1; an empty one where punctuation parts two sentences or names.
struct Word {
    line: usize,
    text: String,
}

/// Checks one file; `path` is relative to the root.
pub fn check(path: &Path, text: &str, faults: &mut Vec<String>) {
    if NOT_CHECKED.iter().any(|file| path == Path::new(file)) {
        return;
    }
    let words = split(text);
    for refused in REFUSED {
        let pattern: Vec<Vec<&str>> = refused.phrase.split_whitespace().map(|word| word.split('|').collect()).collect();
        for window in words.windows(pattern.len()).filter(|window| matches(window, &pattern)) {
            let found: Vec<_> = window.iter().map(|word| word.text.as_str()).collect();
            let (line, found) = (window[0].line, found.join(" "));
            faults.push(format!("{}:{line}: `{found}`: write {}", path.display(), refused.instead));
        }
    }
}

fn matches(window: &[Word], pattern: &[Vec<&str>]) -> bool {
    window.iter().zip(pattern).all(|(word, alternatives)| {
        alternatives.iter().any(|one| match one.strip_suffix('*') {
            Some(head) => word.text.starts_with(head),
            None => word.text == *one,
        })
    })
}

/// Words of letters, digits and apostrophes; `snake_case` and `CamelCase` are several. Comment signs at a line's head are
/// skipped, so that a phrase may go on there.
fn split(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start_matches(['/', '!', '*', '>', '#', ' ', '\t']);
        let mut word = String::new();
        let mut push = |text: &mut String| {
            words.push(Word { line: index + 1, text: std::mem::take(text).to_lowercase() });
        };
        if line.is_empty() {
            push(&mut word);
        }
        let mut last = ' ';
        for c in line.chars().chain([' ']) {
            let camel = c.is_uppercase() && (last.is_lowercase() || last.is_ascii_digit());
            if !word.is_empty() && (camel || !(c.is_alphanumeric() || c == '\'')) {
                push(&mut word);
            }
            if c.is_alphanumeric() || c == '\'' {
                word.push(c);
            } else if !c.is_whitespace() && c != '_' && last != c {
                push(&mut word);
            }
            last = c;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        check(Path::new("a.rs"), text, &mut faults);
        faults
    }

    #[test]
    fn a_word_is_refused_alone_and_in_names() {
        assert_eq!(faults("//! It is told.\n").len(), 1);
        assert_eq!(faults("fn told_at() {}\nstruct ToldAt;\n").len(), 2);
        assert_eq!(faults("let skin = kind(foretelling);").len(), 1);
        assert!(faults("kind skin kinship retold building warehouse").is_empty());
    }

    #[test]
    fn a_phrase_goes_over_the_end_of_a_comment_line() {
        assert_eq!(faults("/// As the real\n/// one does.\n"), ["a.rs:1: `the real one`: write libGenie"]);
        assert!(faults("It is the real. One more.").is_empty());
        assert!(faults("the real\n\none").is_empty());
    }

    #[test]
    fn a_rate_has_a_slash() {
        assert_eq!(faults("40 tokens a second, 12 us a token, two a byte").len(), 3);
        assert!(faults("tokens/s, the rows of a token, gives a row a name, 3 us per token").is_empty());
    }

    #[test]
    fn the_table_itself_may_hold_them() {
        let mut faults = Vec::new();
        check(Path::new("xtask/src/tidy/words.rs"), "told", &mut faults);
        assert!(faults.is_empty());
    }
}
