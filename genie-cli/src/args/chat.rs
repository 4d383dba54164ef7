//! `--chat-template`, `--system`: how messages become the text that the model is given.

use std::path::Path;

use anyhow::Result;
use chat_template::{ChatTemplate, Message, NAMED, find, named};
use open_genie::{Bundle, chat_template};

use crate::failure::UserError;

/// The chat template and the system message.
#[derive(clap::Args, Default, Clone)]
#[command(next_help_heading = "Model and prompt")]
pub struct ChatArgs {
    /// Chat template: a Jinja file, or the name of one.
    #[arg(long, value_name = "FILE|NAME", help = template_help())]
    pub chat_template: Option<String>,
    /// Instructions to the model, before the first message.
    #[arg(long, visible_alias = "system-prompt", value_name = "TEXT", allow_hyphen_values = true)]
    pub system: Option<String>,
}

fn template_help() -> String {
    let names: Vec<&str> = NAMED.iter().map(|(name, ..)| *name).collect();
    format!("Chat template: a Jinja file, or one of {} [default: the bundle's]", names.join(", "))
}

impl ChatArgs {
    /// The template of the flags, else the bundle's; `None` where neither names one.
    pub fn template(&self, bundle: &Bundle) -> Result<Option<ChatTemplate>> {
        let Some(choice) = &self.chat_template else { return Ok(bundle.chat_template()?) };
        let folder = bundle.config().base();
        let file = Path::new(choice);
        // What is there is a path, everything else a name.
        if file.exists() || choice.contains(['/', '\\']) || choice.ends_with(".jinja") {
            return Ok(Some(find::in_file(file, Some(folder)).map_err(open_genie::Error::from)?));
        }
        let tokens = find::tokens_in(folder).map_err(open_genie::Error::from)?;
        match named(choice, tokens) {
            Ok(template) => Ok(Some(template)),
            Err(unknown) => {
                let hint = "give a file with a Jinja template, or one of the names";
                Err(UserError::error(format!("`--chat-template {choice}`: {unknown}"), hint))
            }
        }
    }

    /// The system message, if there is one.
    pub fn system(&self) -> Option<Message> {
        self.system.as_ref().map(Message::system)
    }
}
