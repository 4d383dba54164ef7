//! How a chat message becomes the text that a model sees.

/// Writes the turns of [`Session::chat`](crate::Session::chat).
///
/// [`Template::Raw`] gives the message as it is; between turns the dialog puts the special tokens that libGenie puts. Models
/// trained on a chat format need that format, and this is where templates of checkpoints come in.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum Template {
    /// The message as it is.
    #[default]
    Raw,
    /// Calls the function with the message, and whether it is the first of the conversation.
    Function(fn(message: &str, first: bool) -> String),
}

impl Template {
    pub(crate) fn turn(&self, message: &str, first: bool) -> String {
        match self {
            Self::Raw => message.to_owned(),
            Self::Function(write) => write(message, first),
        }
    }
}
