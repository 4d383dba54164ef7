//! A chat as messages: a template writes them, the cache keeps what two turns share.

use std::path::Path;

use chat_template::{Chat, ChatTemplate, Message, TemplateError};
use dialog::{RestoreNote, RestoreReport, SaveReport, SentenceCode};
use serde_json::{Value, json};

use crate::Error;
use crate::session::{Generation, Prompt, Session};

/// The file beside a saved dialog that holds its messages.
pub const MESSAGES_FILE: &str = "messages.json";

/// Longest file of messages that is read, in bytes.
const MOST_BYTES: u64 = 256 << 20;

/// A conversation of messages. Each reply is asked for with the whole conversation; only what the cache does not hold yet is
/// processed: the new message, or what follows an edited one.
///
/// ```
/// use open_genie::chat_template::{ChatTemplate, Message, named};
/// use open_genie::{Conversation, Options, Session, demo};
///
/// let mut session = Session::open(demo::bundle()?, &Options::new().threads(2))?;
/// session.set_max_tokens(Some(8));
/// let template = session.bundle().chat_template()?; // none: the demo is no chat model
/// let template = template.map_or_else(|| named("vicuna", Default::default()), Ok).unwrap();
/// let mut conversation = Conversation::new(session, template);
/// conversation.push(Message::user("But soft, what light?"));
/// let reply = conversation.reply()?.into_reply()?;
/// conversation.push(Message::assistant(reply.text));
/// assert_eq!(conversation.messages().len(), 2);
/// # Ok::<(), open_genie::Error>(())
/// ```
#[derive(Debug)]
pub struct Conversation {
    session: Session,
    template: ChatTemplate,
    chat: Chat,
}

impl Conversation {
    /// An empty conversation. What the session's cache holds already is used as far as the messages repeat it.
    pub fn new(session: Session, template: ChatTemplate) -> Self {
        Self { session, template, chat: Chat::new(Vec::new()) }
    }

    /// The messages, oldest first.
    pub fn messages(&self) -> &[Message] {
        &self.chat.messages
    }

    /// The messages, to edit or remove some; what follows the first change is processed again.
    pub fn messages_mut(&mut self) -> &mut Vec<Message> {
        &mut self.chat.messages
    }

    /// Adds a message at the end.
    pub fn push(&mut self, message: Message) {
        self.chat.messages.push(message);
    }

    /// Messages, tools and variables that the template is given.
    pub fn chat_mut(&mut self) -> &mut Chat {
        &mut self.chat
    }

    /// The template.
    pub fn template(&self) -> &ChatTemplate {
        &self.template
    }

    /// The text of the whole conversation, as the model is given it.
    ///
    /// # Errors
    /// [`Error::Template`].
    pub fn prompt(&self) -> Result<String, Error> {
        Ok(self.template.render(&self.chat)?)
    }

    /// Replies to the conversation. The reply is not yet a message of it: [`push`](Self::push) makes it one.
    ///
    /// # Errors
    /// [`Error::Template`]; what is wrong with the prompt is the first item of the iterator.
    pub fn reply(&mut self) -> Result<Generation<'_>, Error> {
        let prompt = self.prompt()?;
        Ok(self.session.query(Prompt::Text(&prompt), SentenceCode::Rewind))
    }

    /// Replies to the same conversation again, with new draws from the first token on.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    pub fn reply_again(&mut self) -> Result<Generation<'_>, Error> {
        let prompt = self.prompt()?;
        self.forget_reply(&prompt)?;
        Ok(self.session.query(Prompt::Text(&prompt), SentenceCode::Rewind))
    }

    /// Takes the cache back to the last token but one of a prompt, so that its last token is processed and the first of the
    /// reply drawn again; a rewind to the whole prompt would deliver the token drawn before.
    fn forget_reply(&mut self, prompt: &str) -> Result<(), Error> {
        let dialog = self.session.dialog_mut();
        let mut tokens = dialog.tokens_of_conversation(prompt).map_err(Error::Dialog)?;
        tokens.pop();
        if tokens.is_empty() {
            return self.session.reset();
        }
        // Started and dropped: nothing runs, but what follows the common prefix is forgotten.
        dialog.start_tokens(&tokens, SentenceCode::Rewind).map(drop).map_err(Error::Dialog)
    }

    /// Forgets messages and cache.
    ///
    /// # Errors
    /// The cache cannot be cleared.
    pub fn clear(&mut self) -> Result<(), Error> {
        self.chat.messages.clear();
        self.session.reset()
    }

    /// Saves the dialog as [`Session::save`] does, and its messages beside it.
    ///
    /// # Errors
    /// Those of [`Session::save`]; [`Error::Messages`].
    pub fn save(&mut self, folder: impl AsRef<Path>) -> Result<SaveReport, Error> {
        let folder = folder.as_ref();
        let report = self.session.save(folder)?;
        write_messages(folder, &self.chat.messages)?;
        Ok(report)
    }

    /// Continues a conversation that [`save`](Self::save) kept. One without messages, as [`Session::save`] leaves it, is
    /// refused: its tokens tell nothing of who spoke.
    ///
    /// # Errors
    /// [`Error::Messages`], and the messages are as they were: also where libGenie has gone on with the dialog since, whose turns are in
    /// no message. Those of [`Session::restore`].
    pub fn restore(&mut self, folder: impl AsRef<Path>) -> Result<RestoreReport, Error> {
        let folder = folder.as_ref();
        let messages = read_messages(folder)?
            .ok_or_else(|| messages_error(folder, "does not exist: the dialog was saved without messages"))?;
        let report = self.session.restore(folder)?;
        if matches!(report.note, Some(RestoreNote::GenieWentOn { .. })) {
            return Err(messages_error(folder, "is older than the dialog: libGenie went on with it"));
        }
        self.chat.messages = messages;
        Ok(report)
    }

    /// The session below.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The session below, for sampler, limits and statistics.
    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

/// The messages beside a saved dialog; `None` if it was saved without.
///
/// # Errors
/// [`Error::Messages`].
pub fn read_messages(folder: &Path) -> Result<Option<Vec<Message>>, Error> {
    let file = folder.join(MESSAGES_FILE);
    let bad = |problem: String| messages_error(folder, &problem);
    let meta = match std::fs::metadata(&file) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        meta => meta.map_err(|e| bad(format!("cannot be read: {e}")))?,
    };
    if !meta.is_file() || meta.len() > MOST_BYTES {
        return Err(bad(format!("is no file of at most {} MiB", MOST_BYTES >> 20)));
    }
    let text = std::fs::read_to_string(&file).map_err(|e| bad(format!("cannot be read: {e}")))?;
    let document: Value = serde_json::from_str(&text).map_err(|e| bad(format!("is not JSON: {e}")))?;
    let Some(Value::Array(messages)) = document.get("messages") else {
        return Err(bad("has no list `messages`".into()));
    };
    let messages = messages.iter().cloned().enumerate().map(|(index, value)| Message::from_json(index, value));
    Ok(Some(messages.collect::<Result<_, _>>()?))
}

/// Writes the messages of a conversation beside its saved dialog.
///
/// # Errors
/// [`Error::Messages`].
pub fn write_messages(folder: &Path, messages: &[Message]) -> Result<(), Error> {
    let messages: Vec<&serde_json::Map<String, Value>> = messages.iter().map(Message::members).collect();
    let text = format!("{:#}\n", json!({ "messages": messages }));
    file_io::write_bytes(&folder.join(MESSAGES_FILE), text.as_bytes())
        .map_err(|e| messages_error(folder, &format!("cannot be written: {e}")))
}

/// Removes the messages beside a dialog that was saved again without any: they are not its own.
///
/// # Errors
/// [`Error::Messages`].
pub fn remove_messages(folder: &Path) -> Result<(), Error> {
    match std::fs::remove_file(folder.join(MESSAGES_FILE)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(messages_error(folder, &format!("cannot be removed: {e}")))
        }
        _ => Ok(()),
    }
}

fn messages_error(folder: &Path, problem: &str) -> Error {
    Error::Messages { path: folder.join(MESSAGES_FILE), problem: problem.into() }
}

impl From<TemplateError> for Error {
    fn from(source: TemplateError) -> Self {
        Self::Template { source }
    }
}
