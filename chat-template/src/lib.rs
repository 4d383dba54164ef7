//! Chat templates: the messages of a conversation in, the text that a model was trained on out.
//!
//! Checkpoints carry their template as a Jinja program, written for Python and for the environment that transformers gives
//! it. [`ChatTemplate`] renders it alike: same white space, same JSON, Python's methods, `raise_exception`, `strftime_now`.
//!
//! ```
//! use chat_template::{Chat, ChatTemplate, Message};
//!
//! let template = ChatTemplate::new(
//!     "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}\
//!      {% if add_generation_prompt %}<|assistant|>{% endif %}",
//! )?;
//! let chat = Chat::new(vec![Message::system("Be brief."), Message::user("Hello")]);
//! assert_eq!(template.render(&chat)?, "<|system|>Be brief.<|end|><|user|>Hello<|end|><|assistant|>");
//! # Ok::<(), chat_template::TemplateError>(())
//! ```
//!
//! # What is in here
//!
//! | type | what |
//! |---|---|
//! | [`ChatTemplate`] | a compiled template with the special tokens it may write |
//! | [`Chat`] | messages, tools, and what else a template may ask for |
//! | [`Message`] | one message in the form of OpenAI's API, checked |
//! | [`TemplateError`] | what is wrong: the line of the template, or the message that it refuses |
//! | [`find`] | the templates in a folder or a `tokenizer_config.json` |
//!
//! # Where templates differ
//!
//! Templates were written against several forms of a message: tool arguments as an object or as JSON text, content as text
//! or as a list of parts, a missing content as `null` or as empty text. The form given is tried first, then the others; see
//! [`ChatTemplate::render`].
//!
//! # What it must never know
//!
//! Tokens, tokenizers, models, files other than those that hold a template.

#![forbid(unsafe_code)]

mod bounds;
mod chat;
mod environment;
mod error;
pub mod find;
mod forms;
mod json;
mod message;
mod named;
mod python;
mod template;

pub use chat::Chat;
pub use error::TemplateError;
pub use message::Message;
pub use named::{NAMED, named};
pub use template::{ChatTemplate, SpecialTokens};
