//! What all chat interfaces come to: a prompt, settings, and what takes replies apart.

use open_genie::serving::RequestSettings;
use open_genie::{Grammar, TokenId};
use serde_json::{Map, Value};

use super::messages;
use crate::error::ApiError;
use crate::reply::{ReasoningRule, ReplyParser};
use crate::state::State;
use crate::tools::{CallScanner, Tool, ToolChoice, ToolFormat};

/// What a chat interface has read of a request, in OpenAI's form of messages.
pub(crate) struct Parts {
    pub(crate) messages: Vec<Value>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) choice: ToolChoice,
    pub(crate) variables: Map<String, Value>,
    pub(crate) settings: RequestSettings,
    /// What the reply has to follow.
    pub(crate) grammar: Option<Grammar>,
    /// Reasoning stays in the content.
    pub(crate) keep_reasoning: bool,
    /// The text ends where a reply begins.
    pub(crate) open_reply: bool,
    /// At most one call.
    pub(crate) one_call: bool,
}

/// A chat that is to be answered.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) text: String,
    pub(crate) prompt: Vec<TokenId>,
    pub(crate) settings: RequestSettings,
    tools: Vec<Tool>,
    format: ToolFormat,
    reasoning: ReasoningRule,
    one_call: bool,
}

impl Prepared {
    /// Renders and encodes.
    pub(crate) fn new(state: &State, parts: Parts) -> Result<Self, ApiError> {
        let (tools, forced) = parts.choice.apply(parts.tools)?;
        let source = state.model.template().source();
        let mut messages = parts.messages;
        if let Some(system) = state.options.system.as_deref() {
            messages::put_system(&mut messages, system);
        }
        let mut chat = messages::chat(messages, &tools, parts.variables, source)?;
        chat.add_generation_prompt = parts.open_reply;
        let text = state.model.render(&chat)?;
        let prompt = state.model.encode(&text)?;
        let format = ToolFormat::of_template(source);
        let mut settings = parts.settings;
        match parts.grammar {
            Some(_) if forced => {
                let message =
                    "`tool_choice` forces a call, and `response_format` something else: leave out one of them";
                return Err(ApiError::invalid("response_format", message));
            }
            Some(grammar) => settings.grammar = Some(grammar),
            None if forced => settings.grammar = Some(format.forced(&tools)?),
            None => {}
        }
        // A grammar leaves no room for marks.
        let reasoning = match parts.keep_reasoning || settings.grammar.is_some() {
            true => ReasoningRule::Keep,
            false => ReasoningRule::of_prompt(&text),
        };
        Ok(Self { text, prompt, settings, tools, format, reasoning, one_call: parts.one_call })
    }

    /// What takes the text of one reply apart.
    pub(crate) fn parser(&self) -> ReplyParser {
        let calls = (!self.tools.is_empty()).then(|| CallScanner::new(self.format, &self.tools));
        let parser = ReplyParser::new(self.reasoning, calls);
        if self.one_call { parser.with_one_call() } else { parser }
    }
}
