//! Why a template cannot be read or does not render.

/// What is wrong with a template, or with the messages given to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The template is not Jinja as this crate reads it.
    #[error("the chat template is invalid{}", at(*.line))]
    Syntax {
        /// Its line, from 1.
        line: Option<usize>,
        /// What was expected there.
        #[source]
        source: minijinja::Error,
    },
    /// The template is longer than any that is in use.
    #[error("the chat template has {found} bytes, expected at most {most}")]
    TooLong {
        /// Most bytes.
        most: usize,
        /// How many it has.
        found: usize,
    },
    /// No thread for the template can be started.
    #[error("no thread for the chat template can be started")]
    Thread(#[source] std::io::Error),
    /// The template calls `raise_exception`: it does not take these messages.
    #[error("the chat template refuses these messages: {message}")]
    Refused {
        /// The template's own words.
        message: String,
    },
    /// The template fails on these messages.
    #[error("the chat template cannot be rendered{}", at(*.line))]
    Render {
        /// Its line, from 1.
        line: Option<usize>,
        /// What failed.
        #[source]
        source: minijinja::Error,
    },
    /// A message that no template can take.
    #[error("message {index}: {what}: expected {expected}, found {found}")]
    Message {
        /// Its place, from 0.
        index: usize,
        /// Which part of it.
        what: &'static str,
        /// What that part has to be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// A conversation without messages.
    #[error("the conversation has no messages: expected at least one")]
    NoMessages,
    /// A file or document that should hold templates.
    #[error("`{place}` {problem}")]
    Place {
        /// Which.
        place: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A name that a set of templates does not have.
    #[error("there is no chat template `{name}`: found {}", .found.join(", "))]
    UnknownName {
        /// The name asked for.
        name: String,
        /// The names there are.
        found: Vec<String>,
    },
}

fn at(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(" at line {line}"))
}

/// What a template said through `raise_exception`, on its way through the engine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Raised(pub(crate) String);

impl TemplateError {
    pub(crate) fn syntax(source: minijinja::Error) -> Self {
        Self::Syntax { line: source.line(), source }
    }

    pub(crate) fn render(source: minijinja::Error) -> Self {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&source);
        while let Some(error) = cause {
            if let Some(Raised(message)) = error.downcast_ref() {
                return Self::Refused { message: message.clone() };
            }
            cause = error.source();
        }
        Self::Render { line: source.line(), source }
    }
}
