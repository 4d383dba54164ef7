//! The two splitters behind one another: reasoning first, then calls in what is left.

use super::Delta;
use super::reasoning::{Part, ReasoningRule, Splitter};
use crate::tools::CallScanner;

/// Turns text into pieces of a reply.
#[derive(Debug)]
pub(crate) struct ReplyParser {
    splitter: Splitter,
    calls: Option<CallScanner>,
    most_calls: usize,
}

impl ReplyParser {
    /// `calls`: where the request has tools.
    pub(crate) fn new(rule: ReasoningRule, calls: Option<CallScanner>) -> Self {
        Self { splitter: Splitter::new(rule), calls, most_calls: usize::MAX }
    }

    /// Leaves out all calls behind the first: the request takes one at a time.
    pub(crate) fn with_one_call(mut self) -> Self {
        self.most_calls = 1;
        self
    }

    /// Takes text; gives out what is certain.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Delta> {
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
