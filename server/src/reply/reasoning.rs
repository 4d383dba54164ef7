//! Splits what a model thinks from what it says: `<think>` and its relatives.
//!
//! *Invariant*: all text comes out once and in order; only the marks, and white space next to them, are left out.

/// A pair of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marks {
    open: &'static str,
    close: &'static str,
}

const MARKS: [Marks; 3] = [
    Marks { open: "<think>", close: "</think>" },
    Marks { open: "<thinking>", close: "</thinking>" },
    Marks { open: "<|START_THINKING|>", close: "<|END_THINKING|>" },
];

/// How a reply is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReasoningRule {
    /// All of it is content, marks included.
    Keep,
    /// Marks split it; `inside`: the prompt has opened them already.
    Split { inside: bool },
}

impl ReasoningRule {
    /// Of a prompt: a template may end with an open mark.
    pub(crate) fn of_prompt(prompt: &str) -> Self {
        let end = prompt.trim_end();
        Self::Split { inside: MARKS.iter().any(|marks| end.ends_with(marks.open)) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but white space has come.
    Start,
    /// Behind an opening mark; without one, the prompt had it, and any closing mark ends it.
    Inside(Option<Marks>),
    /// White space behind a closing mark is left out.
    After,
    Content,
}

/// Splits text as it comes.
#[derive(Debug)]
pub(super) struct Splitter {
    state: State,
    held: String,
}

/// A part of the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Reasoning(String),
    Content(String),
}

impl Splitter {
    pub(super) fn new(rule: ReasoningRule) -> Self {
        let state = match rule {
            ReasoningRule::Keep => State::Content,
            ReasoningRule::Split { inside: true } => State::Inside(None),
            ReasoningRule::Split { inside: false } => State::Start,
        };
        Self { state, held: String::new() }
    }

    /// Takes text; gives out what is certain.
    pub(super) fn push(&mut self, text: &str, out: &mut Vec<Part>) {
        self.held.push_str(text);
        while self.step(out) {}
    }

    /// Gives out the rest.
    pub(super) fn finish(&mut self, out: &mut Vec<Part>) {
        let rest = std::mem::take(&mut self.held);
        if rest.is_empty() {
            return;
        }
        out.push(match self.state {
            State::Inside(_) => Part::Reasoning(rest),
            _ => Part::Content(rest),
        });
    }

    /// Whether there may be more to do.
    fn step(&mut self, out: &mut Vec<Part>) -> bool {
        match self.state {
            State::Start => {
                let text = self.held.trim_start();
                if text.is_empty() {
                    return false;
                }
                if let Some(marks) = MARKS.into_iter().find(|marks| text.starts_with(marks.open)) {
                    self.held = text[marks.open.len()..].to_owned();
                    self.state = State::Inside(Some(marks));
                    return true;
                }
                if MARKS.iter().any(|marks| marks.open.starts_with(text)) {
                    return false;
                }
                self.state = State::Content;
                true
            }
            State::Inside(marks) => {
                let closes: Vec<&str> = MARKS
                    .iter()
                    .filter(|known| marks.is_none_or(|marks| marks == **known))
                    .map(|marks| marks.close)
                    .collect();
                let found = closes.iter().filter_map(|close| Some((self.held.find(close)?, close.len()))).min();
                if let Some((at, len)) = found {
                    let rest = self.held.split_off(at);
                    let thought = std::mem::replace(&mut self.held, rest[len..].to_owned());
                    if !thought.is_empty() {
                        out.push(Part::Reasoning(thought));
                    }
                    self.state = State::After;
                    return true;
                }
                let keep = closes.iter().map(|close| overlap(&self.held, close)).max().unwrap_or(0);
                self.give(keep, out, Part::Reasoning);
                false
            }
            State::After => {
                self.held = self.held.trim_start().to_owned();
                if self.held.is_empty() {
                    return false;
                }
                self.state = State::Content;
                true
            }
            State::Content => {
                self.give(0, out, Part::Content);
                false
            }
        }
    }

    /// Gives out all but the last `keep` bytes.
    fn give(&mut self, keep: usize, out: &mut Vec<Part>, part: fn(String) -> Part) {
        let rest = self.held.split_off(self.held.len() - keep);
        let text = std::mem::replace(&mut self.held, rest);
        if !text.is_empty() {
            out.push(part(text));
        }
    }
}

/// Bytes at the end of the text that may be the beginning of the mark.
pub(crate) fn overlap(text: &str, mark: &str) -> usize {
    let longest = mark.len().saturating_sub(1).min(text.len());
    (1..=longest).rev().find(|&n| text.as_bytes().ends_with(&mark.as_bytes()[..n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(rule: ReasoningRule, pieces: &[&str]) -> (String, String) {
        let (mut splitter, mut out) = (Splitter::new(rule), Vec::new());
        pieces.iter().for_each(|piece| splitter.push(piece, &mut out));
        splitter.finish(&mut out);
        let (mut thought, mut said) = (String::new(), String::new());
        for part in out {
            match part {
                Part::Reasoning(text) => thought += &text,
                Part::Content(text) => said += &text,
            }
        }
        (thought, said)
    }

    #[test]
    fn reasoning_is_split_however_the_text_is_cut() {
        let open = ReasoningRule::Split { inside: false };
        let cases: [(ReasoningRule, &str, &str, &str); 7] = [
            (open, "<think>a < b</think>\n\nyes", "a < b", "yes"),
            (open, "\n<thinking>x</think>y</thinking>z", "x</think>y", "z"),
            (open, "no <think>mark</think> at the start", "", "no <think>mark</think> at the start"),
            (open, "<think>never closed</th", "never closed</th", ""),
            (open, "<th", "", "<th"),
            (ReasoningRule::Split { inside: true }, "deep</think>out", "deep", "out"),
            (ReasoningRule::Keep, "<think>a</think>b", "", "<think>a</think>b"),
        ];
        for (rule, text, thought, said) in cases {
            let expected = (thought.to_owned(), said.to_owned());
            assert_eq!(split(rule, &[text]), expected, "{text}");
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(split(rule, &letters), expected, "{text}");
        }
    }

    #[test]
    fn a_prompt_may_open_the_mark() {
        assert_eq!(ReasoningRule::of_prompt("<|assistant|><think>\n"), ReasoningRule::Split { inside: true });
        assert_eq!(ReasoningRule::of_prompt("<|assistant|>"), ReasoningRule::Split { inside: false });
    }
}
