//! `POST /v1/chat/completions`: what is asked for.

use serde_json::{Map, Value};

use super::logprobs;
use super::prepared::{Parts, Prepared};
use super::response_format;
use super::sampling::Sampling;
use crate::body;
use crate::error::ApiError;
use crate::reply::ReplyParser;
use crate::schema::keys;
use crate::state::State;
use crate::tools::{Tool, ToolChoice};

keys! {
    /// Keys of a request, beside those of sampling.
    pub(crate) struct Fields {
        messages: Vec<Value>,
        stream: Option<bool>,
        stream_options: Option<StreamOptions>,
        tools: Option<Vec<Value>>,
        tool_choice: Option<Value>,
        parallel_tool_calls: Option<bool>,
        chat_template_kwargs: Option<Map<String, Value>>,
        reasoning_format: Option<String>,
        reasoning_effort: Option<String>,
        timings_per_token: Option<bool>,
        logprobs: Option<bool>,
        top_logprobs: Option<i64>,
        add_generation_prompt: Option<bool>,
    }
}

keys! {
    pub(crate) struct StreamOptions {
        include_usage: Option<bool>,
    }
}

impl StreamOptions {
    /// A last chunk with the usage is wanted.
    pub(crate) fn include_usage(&self) -> bool {
        self.include_usage.unwrap_or(false)
    }
}

/// A chat that is to be answered.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    pub(crate) chat: Prepared,
    pub(crate) n: usize,
    pub(crate) priority: i32,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) timings_per_token: bool,
}

impl ChatRequest {
    /// Reads and checks a body.
    pub(crate) fn read(state: &State, body: &Value) -> Result<Self, ApiError> {
        let fields: Fields = body::read(body)?;
        let sampling = Sampling::read(body)?;
        let mut tools = Vec::new();
        for (index, tool) in fields.tools.unwrap_or_default().iter().enumerate() {
            tools.extend(Tool::of_openai(tool, &format!("tools[{index}]"))?);
        }
        let mut settings = sampling.settings(state)?;
        if fields.logprobs != Some(true) && fields.top_logprobs.is_some_and(|n| n != 0) {
            return Err(ApiError::invalid("top_logprobs", "`top_logprobs` needs `logprobs: true`"));
        }
        let keep_reasoning = match fields.reasoning_format.as_deref() {
            Some("none") => true,
            None | Some("auto" | "deepseek") => false,
            Some(found) => {
                let message = format!("`reasoning_format`: expected `none`, `auto` or `deepseek`, found `{found}`");
                return Err(ApiError::invalid("reasoning_format", message));
            }
        };
        if fields.logprobs == Some(true) {
            settings.logprobs = Some(logprobs::checked("top_logprobs", fields.top_logprobs.unwrap_or(0))?);
        }
        // Templates that know efforts have this name for it.
        let mut variables = fields.chat_template_kwargs.unwrap_or_default();
        if let Some(effort) = fields.reasoning_effort {
            variables.entry("reasoning_effort").or_insert(effort.into());
        }
        let parts = Parts {
            messages: fields.messages,
            tools,
            choice: ToolChoice::of_openai(fields.tool_choice.as_ref())?,
            variables,
            settings,
            grammar: response_format::grammar(body)?,
            keep_reasoning,
            open_reply: fields.add_generation_prompt.unwrap_or(true),
            one_call: fields.parallel_tool_calls == Some(false),
        };
        Ok(Self {
            n: sampling.n()?,
            priority: sampling.priority(),
            chat: Prepared::new(state, parts)?,
            stream: fields.stream.unwrap_or(false),
            include_usage: fields.stream_options.is_some_and(|options| options.include_usage()),
            timings_per_token: fields.timings_per_token.unwrap_or(false),
        })
    }

    /// What takes the text of one reply apart.
    pub(crate) fn parser(&self) -> ReplyParser {
        self.chat.parser()
    }
}
