//! The two splitters behind one another: reasoning first, then calls in what is left. Reasoning that the model's format has apart from
//! the text, in a channel of its own, goes before the text of its piece.

use open_genie::serving::ReplyPiece;

use super::Delta;
use super::reasoning::{Part, ReasoningRule, Splitter};
use crate::tools::CallScanner;

/// Turns text into pieces of a reply.
#[derive(Debug)]
pub(crate) struct ReplyParser {
    splitter: Splitter,
    /// Reasoning is wanted apart.
    splits: bool,
    calls: Option<CallScanner>,
    most_calls: usize,
}

impl ReplyParser {
    /// `calls`: where the request has tools.
    pub(crate) fn new(rule: ReasoningRule, calls: Option<CallScanner>) -> Self {
        Self { splitter: Splitter::new(rule), splits: rule != ReasoningRule::Keep, calls, most_calls: usize::MAX }
    }

    /// Leaves out all calls behind the first: the request takes one at a time.
    pub(crate) fn with_one_call(mut self) -> Self {
        self.most_calls = 1;
        self
    }

    /// Takes a piece of the reply; gives out what is certain.
    pub(crate) fn push_piece(&mut self, piece: &ReplyPiece) -> Vec<Delta> {
        let thought = Some(&piece.reasoning).filter(|text| self.splits && !text.is_empty());
        thought.map(|text| Delta::Reasoning(text.clone())).into_iter().chain(self.push(&piece.text)).collect()
    }

    /// Takes text; gives out what is certain.
    fn push(&mut self, text: &str) -> Vec<Delta> {
        let mut parts = Vec::new();
        self.splitter.push(text, &mut parts);
        self.parts(parts)
    }

    /// Gives out the rest.
    pub(crate) fn finish(&mut self) -> Vec<Delta> {
        let mut parts = Vec::new();
        self.splitter.finish(&mut parts);
        let mut out = self.parts(parts);
        if let Some(calls) = &mut self.calls {
            calls.finish(&mut out);
        }
        self.leave_out(&mut out);
        out
    }

    fn leave_out(&self, out: &mut Vec<Delta>) {
        out.retain(|delta| match delta {
            Delta::Call { index, .. } | Delta::Arguments { index, .. } => *index < self.most_calls,
            Delta::Reasoning(_) | Delta::Content(_) => true,
        });
    }

    fn parts(&mut self, parts: Vec<Part>) -> Vec<Delta> {
        let mut out = Vec::new();
        for part in parts {
            match (part, &mut self.calls) {
                (Part::Reasoning(text), _) => out.push(Delta::Reasoning(text)),
                (Part::Content(text), Some(calls)) => calls.push(&text, &mut out),
                (Part::Content(text), None) => out.push(Delta::Content(text)),
            }
        }
        self.leave_out(&mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reply::Collected;
    use crate::tools::{Tool, ToolFormat};

    #[test]
    fn reasoning_of_a_channel_goes_before_the_text_of_its_piece() {
        let pieces = [("Let me", ""), (" think", "<"), ("", "this> is it")];
        let reply = |rule: ReasoningRule| {
            let (mut parser, mut reply) = (ReplyParser::new(rule, None), Collected::default());
            for (reasoning, text) in pieces {
                let piece = ReplyPiece { reasoning: reasoning.into(), text: text.into(), ..ReplyPiece::default() };
                parser.push_piece(&piece).iter().for_each(|delta| reply.push(delta));
            }
            parser.finish().iter().for_each(|delta| reply.push(delta));
            (reply.reasoning, reply.content)
        };
        assert_eq!(reply(ReasoningRule::of_prompt("x")), ("Let me think".into(), "<this> is it".into()));
        assert_eq!(reply(ReasoningRule::Keep), (String::new(), "<this> is it".into()));
    }

    #[test]
    fn a_request_may_take_one_call_at_a_time() {
        let tool = Tool { name: "look".into(), description: None, parameters: json!({}) };
        let text = "<tool_call>{\"name\": \"look\", \"arguments\": {\"n\": 1}}</tool_call>\n\
                    <tool_call>{\"name\": \"look\", \"arguments\": {\"n\": 2}}</tool_call>";
        let calls = |one: bool| {
            let scanner = CallScanner::new(ToolFormat::Hermes, std::slice::from_ref(&tool));
            let mut parser = ReplyParser::new(ReasoningRule::Keep, Some(scanner));
            if one {
                parser = parser.with_one_call();
            }
            let mut reply = Collected::default();
            parser.push(text).iter().chain(&parser.finish()).for_each(|delta| reply.push(delta));
            reply.calls.into_iter().map(|call| call.arguments).collect::<Vec<_>>()
        };
        assert_eq!(calls(false).len(), 2);
        assert_eq!(calls(true), ["{\"n\": 1}"]);
    }
}
