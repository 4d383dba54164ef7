//! One call as a JSON object, read letter by letter, so that its arguments can be given out before it is whole.

use serde_json::Value;

use super::format::calls_of;

/// Reads an object from its `{` on.
#[derive(Debug, Default)]
pub(super) struct CallObject {
    raw: String,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Where the string that was read last began and ended, quotes left out.
    string: (usize, usize),
    /// The key of the value that is being read, at depth 1.
    key: Option<String>,
    name: Option<String>,
    /// Where the arguments begin, and how much of them was given out.
    arguments: Option<(usize, usize)>,
    arguments_end: Option<usize>,
    /// There is no brace behind the arguments.
    ends_with_arguments: bool,
}

/// What a letter has brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    More,
    /// The object is whole.
    End,
}

impl CallObject {
    /// The object ends where its arguments do.
    pub(super) fn close_with_arguments(&mut self) {
        self.ends_with_arguments = true;
    }

    /// Takes a letter.
    pub(super) fn push(&mut self, letter: char) -> Step {
        self.raw.push(letter);
        let end = self.raw.len();
        if self.in_string {
            match letter {
                _ if self.escaped => self.escaped = false,
                '\\' => self.escaped = true,
                '"' => {
                    (self.in_string, self.string.1) = (false, end - 1);
                    if self.depth == 1 && self.key.as_deref() == Some("name") && self.name.is_none() {
                        self.name = serde_json::from_str(&self.raw[self.string.0 - 1..end]).ok();
                    }
                }
                _ => {}
            }
            return Step::More;
        }
        match letter {
            '"' => (self.in_string, self.string.0) = (true, end),
            '{' | '[' => {
                let is_arguments = matches!(self.key.as_deref(), Some("arguments" | "parameters"));
                if self.depth == 1 && letter == '{' && is_arguments && self.arguments.is_none() {
                    self.arguments = Some((end - 1, end - 1));
                }
                self.depth += 1;
            }
            '}' | ']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 1 && self.arguments.is_some() && self.arguments_end.is_none() {
                    self.arguments_end = Some(end);
                    if self.ends_with_arguments {
                        return Step::End;
                    }
                }
                if self.depth == 0 {
                    return Step::End;
                }
            }
            ':' if self.depth == 1 && self.key.is_none() => {
                self.key = self.raw.get(self.string.0..self.string.1).map(str::to_owned);
            }
            ',' if self.depth == 1 => self.key = None,
            _ => {}
        }
        Step::More
    }

    /// The name, once arguments can be given out as they come.
    pub(super) fn streams(&self) -> Option<&str> {
        self.arguments.and(self.name.as_deref())
    }

    /// The arguments that were not given out yet.
    pub(super) fn new_arguments(&mut self) -> String {
        let Some((_, given)) = &mut self.arguments else { return String::new() };
        let end = self.arguments_end.unwrap_or(self.raw.len());
        let text = self.raw[*given..end].to_owned();
        *given = end;
        text
    }

    /// The calls that a whole object is, by whatever keys it says so.
    pub(super) fn calls(&self) -> Vec<(String, String)> {
        serde_json::from_str::<Value>(&self.raw).map(|value| calls_of(&value)).unwrap_or_default()
    }

    /// The text so far.
    pub(super) fn raw(&self) -> &str {
        &self.raw
    }
}
