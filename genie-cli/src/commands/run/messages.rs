//! The prompt of `genie run` as a message of a chat, where the bundle has a template.

use std::path::Path;

use anyhow::Result;
use chat_template::{Chat, ChatTemplate, Message};
use open_genie::{Bundle, Reply, chat_template, read_messages, write_messages};

use super::flags::Args;
use super::prompt::Prompt;
use crate::failure::UserError;
use crate::printer::Printer;

/// The conversation that the prompt belongs to, and its template.
pub struct Messages {
    template: ChatTemplate,
    chat: Chat,
}

/// Whether a flag wants the prompt as a message.
fn is_asked_for(args: &Args) -> bool {
    args.chat.chat_template.is_some() || args.chat.system.is_some()
}

impl Messages {
    /// The prompt as the last message of what was restored; `None` where it is given to the model as it is: token ids, text
    /// that states the whole conversation, `--raw`, and bundles without a template.
    pub fn new(args: &Args, bundle: &Bundle, prompt: &Prompt, printer: &Printer) -> Result<Option<Self>> {
        let asked = is_asked_for(args);
        if matches!(prompt, Prompt::Batch(_)) {
            if !asked && !args.raw && args.chat.template(bundle)?.is_some() {
                printer.info("note: `--prompts` gives each line to the model as it is, without the chat template");
            }
            return as_it_is(asked, "`--prompts` gives each line to the model as it is");
        }
        let Prompt::Text(text) = prompt else { return as_it_is(asked, "token ids are no message") };
        if args.raw {
            return Ok(None);
        }
        if args.saved.rewind {
            return as_it_is(asked, "`--rewind` takes the prompt as the whole conversation");
        }
        if args.no_parse_special {
            return as_it_is(asked, "`--no-parse-special` would keep the template's control tokens as text");
        }
        let Some(template) = args.chat.template(bundle)? else {
            return match &args.chat.system {
                Some(_) => Err(UserError::error(
                    "`--system`: the bundle has no chat template, which would say where it goes",
                    "choose one with `--chat-template`, or write the instructions into the prompt",
                )),
                None => Ok(None),
            };
        };
        let mut messages = Vec::new();
        if let Some(folder) = &args.saved.restore {
            match read_messages(folder)? {
                Some(before) => messages = before,
                None if asked => {
                    let message = format!("the dialog in `{}` was saved without messages", folder.display());
                    return Err(UserError::error(message, "leave out `--system` and `--chat-template`"));
                }
                None => {
                    printer.info("note: the dialog was saved without messages: the prompt is given as it is");
                    return Ok(None);
                }
            }
        }
        if let Some(system) = args.chat.system() {
            set_system(&mut messages, Some(system));
        }
        messages.push(Message::user(text));
        Ok(Some(Self { template, chat: Chat::new(messages) }))
    }

    /// What becomes of messages that were saved before libGenie went on with the dialog: its turns are in none of them, and a prompt
    /// that is written from them would drop these.
    pub fn outdated(found: Option<Self>, args: &Args, folder: &Path, printer: &Printer) -> Result<Option<Self>> {
        if found.is_none() {
            return Ok(None);
        }
        if is_asked_for(args) {
            let message =
                format!("the messages in `{}` are older than the dialog: Genie went on with it", folder.display());
            return Err(UserError::error(message, "leave out `--system` and `--chat-template`"));
        }
        printer.info("note: the messages beside the dialog are older than Genie's files: the prompt is given as it is");
        Ok(None)
    }

    /// The text of the whole conversation.
    pub fn write(&self) -> Result<String> {
        Ok(self.template.render(&self.chat).map_err(open_genie::Error::from)?)
    }

    /// Writes the messages, the reply among them, beside the saved dialog.
    pub fn keep(mut self, folder: &Path, reply: &Reply) -> Result<()> {
        self.chat.messages.push(Message::assistant(reply.text.clone()));
        Ok(write_messages(folder, &self.chat.messages)?)
    }
}

fn as_it_is(asked: bool, why: &str) -> Result<Option<Messages>> {
    match asked {
        true => Err(UserError::error(
            format!("`--chat-template` and `--system` have no effect here: {why}"),
            "leave them out",
        )),
        false => Ok(None),
    }
}

/// Puts a system message first, in the place of another; takes that away where there is none.
pub fn set_system(messages: &mut Vec<Message>, system: Option<Message>) {
    messages.retain(|message| message.role() != "system");
    if let Some(system) = system {
        messages.insert(0, system);
    }
}
