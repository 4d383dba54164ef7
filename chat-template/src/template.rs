//! A compiled template.

use minijinja::value::Serde;
use minijinja::{Environment, Value};
use serde_json::Map;

use crate::environment::{environment, without_generation_blocks};
use crate::forms::{self, Forms};
use crate::{Chat, TemplateError, bounds};

/// Texts of special tokens that templates write, such as `bos_token` and `eos_token`, by their names.
pub type SpecialTokens = Map<String, serde_json::Value>;

/// A chat template, compiled once, rendered for each conversation.
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    tokens: SpecialTokens,
    source: String,
    /// In which form messages are tried first.
    forms: Forms,
}

const NAME: &str = "chat template";

impl ChatTemplate {
    /// Compiles a template without special tokens: `bos_token` and `eos_token` are empty texts.
    ///
    /// # Errors
    ///
    /// As [`with_tokens`](Self::with_tokens).
    pub fn new(source: &str) -> Result<Self, TemplateError> {
        Self::with_tokens(source, SpecialTokens::new())
    }

    /// Compiles a template that writes the special tokens given.
    ///
    /// # Errors
    ///
    /// [`TemplateError::Syntax`], [`TemplateError::TooLong`], [`TemplateError::Thread`].
    pub fn with_tokens(source: &str, tokens: SpecialTokens) -> Result<Self, TemplateError> {
        let (most, found) = (bounds::LONGEST, source.len());
        if found > most {
            return Err(TemplateError::TooLong { most, found });
        }
        let compile = || {
            let mut env = environment();
            env.add_template_owned(NAME, without_generation_blocks(source)).map_err(TemplateError::syntax)?;
            let mut template = Self { env, tokens, source: source.to_owned(), forms: Forms::default() };
            template.forms = forms::probe(|chat| template.render_as_is(chat));
            Ok(template)
        };
        bounds::with_deep_stack(compile).map_err(TemplateError::Thread)?
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The text of a conversation.
    ///
    /// Text content is given as parts to templates that show text only so, and parts of text as text to the others. Where a
    /// template fails, tool arguments are tried in their other form (an object, or its JSON text), and a content that is
    /// `null` as an empty text.
    ///
    /// # Errors
    ///
    /// [`TemplateError::NoMessages`]; [`TemplateError::Refused`] with the template's own words; [`TemplateError::Render`];
    /// [`TemplateError::Thread`].
    pub fn render(&self, chat: &Chat) -> Result<String, TemplateError> {
        if chat.messages.is_empty() {
            return Err(TemplateError::NoMessages);
        }
        bounds::with_deep_stack(|| self.render_in_some_form(chat)).map_err(TemplateError::Thread)?
    }

    fn render_in_some_form(&self, chat: &Chat) -> Result<String, TemplateError> {
        let mut first_error = None;
        for forms in self.forms.alternatives(chat) {
            match self.render_as_is(&forms.apply(chat)) {
                Ok(text) => return Ok(text),
                Err(e) => first_error = first_error.or(Some(e)),
            }
        }
        Err(first_error.unwrap_or(TemplateError::NoMessages))
    }

    /// The text of a conversation without the BOS token that the template begins with: for callers that add it themselves.
    ///
    /// # Errors
    ///
    /// As [`render`](Self::render).
    pub fn render_without_bos(&self, chat: &Chat) -> Result<String, TemplateError> {
        let text = self.render(chat)?;
        let bos = self.tokens.get("bos_token").and_then(serde_json::Value::as_str).unwrap_or_default();
        Ok(text.strip_prefix(bos).map(str::to_owned).unwrap_or(text))
    }

    fn render_as_is(&self, chat: &Chat) -> Result<String, TemplateError> {
        let mut variables = Map::new();
        for name in ["bos_token", "eos_token"] {
            variables.insert(name.into(), "".into());
        }
        variables.extend(self.tokens.clone());
        let messages = chat.messages.iter().map(|message| message.members().clone().into()).collect();
        variables.insert("messages".into(), serde_json::Value::Array(messages));
        let tools = if chat.tools.is_empty() { serde_json::Value::Null } else { chat.tools.clone().into() };
        variables.insert("tools".into(), tools);
        variables.insert("documents".into(), serde_json::Value::Null);
        variables.insert("add_generation_prompt".into(), chat.add_generation_prompt.into());
        variables.extend(chat.variables.clone());
        let template = self.env.get_template(NAME).map_err(TemplateError::syntax)?;
        template.render(Value::from(Serde(&variables))).map_err(TemplateError::render)
    }
}
