//! The model that is served, and how prompts are made for it.

use open_genie::TokenId;
use open_genie::chat_template::{Chat, ChatTemplate, find};
use open_genie::serving::{RequestSettings, RunningServer, Server, Serving};

use crate::error::{ApiError, ServerError};

/// A model on a thread of its own, with what turns messages into prompts.
#[derive(Debug)]
pub struct ServedModel {
    running: RunningServer,
    template: ChatTemplate,
    name: String,
    limit: usize,
    n_vocab: usize,
    n_slots: usize,
}

/// Characters of a reply's text while its tokens come, by the decoding that the reply itself has.
pub(crate) struct TextLength {
    n_chars: usize,
    added_by: Box<dyn FnMut(TokenId) -> usize + Send>,
}

impl TextLength {
    /// Whole characters in front of the next token, which is taken.
    pub(crate) fn before(&mut self, token: TokenId) -> usize {
        let before = self.n_chars;
        self.n_chars += (self.added_by)(token);
        before
    }
}

/// The template of models that carry none: it writes no token that a model may lack.
const GENERIC: &str = "\
{%- for message in messages -%}
    {{- message.role | capitalize + ': ' + (message.content or '') + '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'Assistant:' -}}{%- endif -%}";

impl ServedModel {
    /// Starts it. Without a template, messages are written as lines `User: ...` and `Assistant: ...`.
    ///
    /// # Errors
    /// The weights are damaged, or there is no thread.
    pub fn start(mut serving: Serving, template: Option<ChatTemplate>) -> Result<Self, ServerError> {
        let template = match template {
            Some(template) => template,
            None => {
                let tokens = find::tokens_in(serving.bundle().config().base()).unwrap_or_default();
                ChatTemplate::with_tokens(GENERIC, tokens).map_err(open_genie::Error::from)?
            }
        };
        let name = serving.bundle().name();
        let (limit, n_vocab) = (serving.scheduler().limit(), serving.scheduler().vocab_size());
        let n_slots = serving.scheduler().most_running();
        let running = serving.start()?;
        Ok(Self { running, template, name, limit, n_vocab, n_slots })
    }

    /// The bundle's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl ServedModel {
    pub(crate) fn running(&self) -> &RunningServer {
        &self.running
    }

    pub(crate) fn server(&self) -> &Server {
        self.running.server()
    }

    /// Whether its thread still runs: it ends early only by a panic.
    pub(crate) fn is_running(&self) -> bool {
        self.server().is_running()
    }

    pub(crate) fn template(&self) -> &ChatTemplate {
        &self.template
    }

    /// Most tokens of a prompt and its reply.
    pub(crate) fn n_ctx(&self) -> usize {
        self.limit
    }

    /// Entries of the vocabulary.
    pub(crate) fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    /// Requests that run at once.
    pub(crate) fn n_slots(&self) -> usize {
        self.n_slots
    }

    /// The text of tokens.
    pub(crate) fn decode(&self, tokens: &[TokenId]) -> Result<String, ApiError> {
        Ok(self.server().base().tokenizer().decode(tokens).map_err(open_genie::DialogError::from)?)
    }

    /// The bytes of one token: of a character that is cut into several, its own part. None where a token has no text.
    pub(crate) fn bytes_of(&self, token: TokenId) -> Vec<u8> {
        self.server().base().tokenizer().bytes_of_token(token).unwrap_or_default()
    }

    /// The length of a reply's text, from its start.
    pub(crate) fn text_length(&self) -> TextLength {
        let mut stream = self.server().base().tokenizer().detokenizer();
        let mut text = String::new();
        TextLength {
            n_chars: 0,
            added_by: Box::new(move |token| {
                text.clear();
                // A token that the decoder refuses ends the reply before it comes here.
                if stream.push(token, &mut text).is_err() {
                    return 0;
                }
                text.chars().count()
            }),
        }
    }

    pub(crate) fn settings(&self) -> RequestSettings {
        self.running.settings()
    }

    /// The text that the model is given for a chat.
    pub(crate) fn render(&self, chat: &Chat) -> Result<String, ApiError> {
        self.template.render(chat).map_err(|error| ApiError::from(open_genie::Error::from(error)))
    }

    /// The tokens of a prompt, with BOS.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<TokenId>, ApiError> {
        Ok(self.server().base().encode(text)?)
    }
}
