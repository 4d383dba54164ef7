//! A conversation as a template sees it.

use serde_json::{Map, Value};

use crate::{Message, TemplateError};

/// Messages, and what else a template may ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct Chat {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
    /// Tools that the model may call: JSON schemas in the form of OpenAI's API. Empty: `tools` is none.
    pub tools: Vec<Value>,
    /// Whether the text ends where the model's reply begins.
    pub add_generation_prompt: bool,
    /// Further variables of the template, such as `enable_thinking`. They win over the usual ones.
    pub variables: Map<String, Value>,
}

impl Chat {
    /// A conversation that the model is to answer, without tools.
    pub fn new(messages: Vec<Message>) -> Self {
        Self { messages, tools: Vec::new(), add_generation_prompt: true, variables: Map::new() }
    }

    /// Checks messages that came as JSON.
    ///
    /// # Errors
    ///
    /// [`TemplateError::Message`], [`TemplateError::NoMessages`].
    pub fn from_json(messages: Vec<Value>) -> Result<Self, TemplateError> {
        if messages.is_empty() {
            return Err(TemplateError::NoMessages);
        }
        let messages = messages.into_iter().enumerate().map(|(index, value)| Message::from_json(index, value));
        Ok(Self::new(messages.collect::<Result<_, _>>()?))
    }
}
