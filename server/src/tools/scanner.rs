//! Finds calls in the text of a reply, as it comes. What looks like a call and is none comes out as text, unchanged.

use super::Tool;
use super::call_object::{CallObject, Step};
use super::format::{Syntax, ToolFormat};
use crate::ids;
use crate::reply::{Delta, overlap};

/// Bytes of what may be a call without being one, before it is taken for text.
const MOST_HELD: usize = 64 << 10;

#[derive(Debug)]
enum State {
    /// Nothing but white space has come.
    Start,
    Text,
    /// Behind a mark or a call: brackets, commas and closing marks are left out.
    Between,
    /// In an object; whether its call was announced already.
    Object {
        object: Box<CallObject>,
        announced: bool,
    },
}

/// Finds calls of some tools.
#[derive(Debug)]
pub(crate) struct CallScanner {
    syntax: Syntax,
    names: Vec<String>,
    state: State,
    held: String,
    /// Text that was left out since the last certain piece, given back if no call follows.
    skipped: String,
    n_calls: usize,
}

impl CallScanner {
    pub(crate) fn new(format: ToolFormat, tools: &[Tool]) -> Self {
        let names = tools.iter().map(|tool| tool.name.clone()).collect();
        let (held, skipped) = (String::new(), String::new());
        Self { syntax: format.syntax(), names, state: State::Start, held, skipped, n_calls: 0 }
    }

    /// Takes text; gives out what is certain.
    pub(crate) fn push(&mut self, text: &str, out: &mut Vec<Delta>) {
        self.held.push_str(text);
        while self.step(out) {}
    }

    /// Gives out the rest. An object that was not finished is text, or a call that was cut off.
    pub(crate) fn finish(&mut self, out: &mut Vec<Delta>) {
        if let State::Object { object, announced: false } = &self.state {
            self.skipped.push_str(object.raw());
        }
        let announced = matches!(self.state, State::Object { announced: true, .. });
        let rest = std::mem::take(&mut self.held);
        let mut text = std::mem::take(&mut self.skipped);
        if !announced {
            text.push_str(&rest);
        }
        self.state = State::Text;
        let is_left_over = self.n_calls > 0 && text.chars().all(|c| c.is_whitespace() || ",;[]".contains(c));
        if !text.is_empty() && !is_left_over {
            out.push(Delta::Content(text));
        }
    }

    /// Whether there may be more to do.
    fn step(&mut self, out: &mut Vec<Delta>) -> bool {
        match &mut self.state {
            State::Start => self.start(),
            State::Text => self.text(out),
            State::Between => self.between(out),
            State::Object { .. } => self.object(out),
        }
    }

    fn start(&mut self) -> bool {
        let Some(first) = self.held.chars().find(|c| !c.is_whitespace()) else { return false };
        let is_mark = self.syntax.open.iter().any(|mark| mark.starts_with(first));
        self.state = match first {
            '{' if self.syntax.bare => State::Between,
            // A list of calls, or a mark that begins alike.
            '[' if self.syntax.bare && !is_mark => State::Between,
            '[' if self.syntax.bare => {
                let text = self.held.trim_start();
                if self.syntax.open.iter().any(|mark| mark.starts_with(text)) {
                    return false;
                }
                match self.syntax.open.iter().any(|mark| text.starts_with(mark)) {
                    true => State::Text,
                    false => State::Between,
                }
            }
            _ => State::Text,
        };
        true
    }

    fn text(&mut self, out: &mut Vec<Delta>) -> bool {
        let found = self.syntax.open.iter().filter_map(|mark| Some((self.held.find(mark)?, mark.len()))).min();
        if let Some((at, len)) = found {
            let rest = self.held.split_off(at + len);
            let before = std::mem::replace(&mut self.held, rest);
            let text = before[..at].trim_end();
            if !text.is_empty() {
                out.push(Delta::Content(text.to_owned()));
            }
            self.skipped = before[text.len()..].to_owned();
            self.state = State::Between;
            return true;
        }
        // White space may stand before a mark, and is left out with it.
        let mark = self.syntax.open.iter().map(|mark| overlap(&self.held, mark)).max().unwrap_or(0);
        let certain = self.held[..self.held.len() - mark].trim_end().len();
        let rest = self.held.split_off(certain);
        let text = std::mem::replace(&mut self.held, rest);
        if !text.is_empty() {
            out.push(Delta::Content(text));
        }
        false
    }

    fn between(&mut self, out: &mut Vec<Delta>) -> bool {
        loop {
            let close = self.syntax.close.iter().chain(self.syntax.open).find(|mark| self.held.starts_with(**mark));
            if let Some(mark) = close {
                let rest = self.held.split_off(mark.len());
                let found = std::mem::replace(&mut self.held, rest);
                // The mark behind a call belongs to it.
                if self.n_calls == 0 || self.syntax.open.contains(&found.as_str()) {
                    self.skipped.push_str(&found);
                }
                continue;
            }
            let Some(first) = self.held.chars().next() else { return false };
            let may_close = self.syntax.close.iter().chain(self.syntax.open).any(|mark| mark.starts_with(&self.held));
            match first {
                '{' => {
                    self.state = State::Object { object: Box::default(), announced: false };
                    return true;
                }
                _ if may_close => return false,
                c if c.is_whitespace() || ",;[]".contains(c) => {
                    self.skipped.push(c);
                    self.held.remove(0);
                }
                _ => return self.named(out),
            }
        }
    }

    /// `name[ARGS]{..}` and `name{..}`; everything else is text.
    fn named(&mut self, out: &mut Vec<Delta>) -> bool {
        let word = |c: char| c.is_alphanumeric() || "_-.".contains(c);
        let end = self.held.find(|c| !word(c)).unwrap_or(self.held.len());
        let is_name = self.names.iter().any(|name| *name == self.held[..end]);
        let may_be = self.names.iter().any(|name| name.starts_with(&self.held[..end]));
        let behind = &self.held[end..];
        if behind.is_empty() && may_be || is_name && "[ARGS]".starts_with(behind) {
            return false;
        }
        let body = behind.strip_prefix("[ARGS]").unwrap_or(behind);
        if is_name && body.is_empty() {
            return false;
        }
        if is_name && body.starts_with('{') {
            // As if it had been written as an object.
            let name = &self.held[..end];
            self.held = format!("{{\"name\":{},\"arguments\":{body}", serde_json::json!(name));
            self.state = State::Object { object: Box::default(), announced: false };
            self.skipped.clear();
            // The brace that closes the object is missing: it is closed where the arguments are.
            if let State::Object { object, .. } = &mut self.state {
                object.close_with_arguments();
            }
            return true;
        }
        let text = std::mem::take(&mut self.skipped);
        // What was left out behind calls is of no interest; before a first one it is text.
        if self.n_calls == 0 && !text.is_empty() {
            out.push(Delta::Content(text));
        }
        self.state = State::Text;
        true
    }

    fn object(&mut self, out: &mut Vec<Delta>) -> bool {
        let State::Object { object, announced } = &mut self.state else { return false };
        let mut letters = self.held.char_indices();
        let mut ended = None;
        for (at, letter) in letters.by_ref() {
            if object.push(letter) == Step::End {
                ended = Some(at + letter.len_utf8());
                break;
            }
        }
        self.held = ended.map_or_else(String::new, |end| self.held[end..].to_owned());
        if let Some(name) = object.streams().filter(|name| self.names.iter().any(|known| known == name)) {
            if !*announced {
                *announced = true;
                self.skipped.clear();
                let (index, id) = (self.n_calls, ids::new("call_"));
                out.push(Delta::Call { index, id, name: name.to_owned() });
                self.n_calls += 1;
            }
            let text = object.new_arguments();
            if !text.is_empty() {
                out.push(Delta::Arguments { index: self.n_calls - 1, text });
            }
        }
        let was_announced = *announced;
        if ended.is_none() && (was_announced || object.raw().len() < MOST_HELD) {
            return false;
        }
        if was_announced {
            self.state = State::Between;
            return true;
        }
        let known = |name: &str| self.names.iter().any(|known| known == name);
        let calls: Vec<_> = object.calls().into_iter().filter(|(name, _)| known(name)).collect();
        if calls.is_empty() {
            let mut text = std::mem::take(&mut self.skipped);
            text.push_str(object.raw());
            out.push(Delta::Content(text));
            self.state = State::Text;
            return true;
        }
        self.skipped.clear();
        for (name, text) in calls {
            let (index, id) = (self.n_calls, ids::new("call_"));
            out.push(Delta::Call { index, id, name });
            out.push(Delta::Arguments { index, text });
            self.n_calls += 1;
        }
        self.state = State::Between;
        true
    }
}

#[cfg(test)]
mod tests;
