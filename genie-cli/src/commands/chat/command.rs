//! Lines that begin with a slash.

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Clear,
    Edit,
    Exit,
    Help,
    Load(String),
    Model(String),
    Regenerate,
    Save(String),
    Set(String, String),
    Stats,
    System(String),
    Undo,
}

const NAMES: [&str; 12] =
    ["/clear", "/edit", "/exit", "/help", "/load", "/model", "/regen", "/save", "/set", "/stats", "/system", "/undo"];

impl Command {
    /// The command of a line; `None` for a message, an error in words for a command that is not one.
    pub fn parse(line: &str) -> Option<Result<Self, String>> {
        let line = line.trim();
        if !line.starts_with('/') || line.contains('\n') {
            return None;
        }
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let text = |what: &str| match rest {
            "" => Err(format!("`{name}` needs {what}")),
            text => Ok(text.to_owned()),
        };
        let alone = |command: Self| match rest {
            "" => Ok(command),
            _ => Err(format!("`{name}` takes nothing, found `{rest}`")),
        };
        Some(match name {
            "/clear" => alone(Self::Clear),
            "/edit" => alone(Self::Edit),
            "/exit" | "/quit" | "/bye" => alone(Self::Exit),
            "/help" | "/?" => alone(Self::Help),
            "/load" => text("a folder").map(Self::Load),
            "/model" => text("a bundle").map(Self::Model),
            "/regen" | "/retry" => alone(Self::Regenerate),
            "/save" => text("a folder").map(Self::Save),
            "/set" => match rest.split_once(char::is_whitespace) {
                Some((name, value)) => Ok(Self::Set(name.into(), value.trim().into())),
                None => Err("`/set` needs a name and a value, such as `/set temp 0.7`".into()),
            },
            "/stats" => alone(Self::Stats),
            "/system" => Ok(Self::System(rest.into())),
            "/undo" => alone(Self::Undo),
            _ => Err(unknown(name)),
        })
    }
}

fn unknown(name: &str) -> String {
    let near = NAMES.iter().map(|known| (strsim::damerau_levenshtein(name, known), known)).min();
    match near {
        Some((distance, known)) if distance <= 2 => format!("unknown command `{name}`: did you mean `{known}`?"),
        _ => format!("unknown command `{name}`: `/help` lists them; a message cannot begin with a slash"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_or_commands() {
        let cases = [
            ("/clear", Ok(Command::Clear)),
            (" /save a b ", Ok(Command::Save("a b".into()))),
            ("/set temp  0.5", Ok(Command::Set("temp".into(), "0.5".into()))),
            ("/system", Ok(Command::System(String::new()))),
            ("/quit", Ok(Command::Exit)),
            ("/save", Err("`/save` needs a folder")),
            ("/clear now", Err("`/clear` takes nothing, found `now`")),
            ("/rege", Err("unknown command `/rege`: did you mean `/regen`?")),
            (
                "/frobnicate",
                Err("unknown command `/frobnicate`: `/help` lists them; a message cannot begin with a slash"),
            ),
        ];
        for (line, expected) in cases {
            assert_eq!(Command::parse(line), Some(expected.map_err(str::to_owned)), "{line}");
        }
        assert_eq!(Command::parse("what is /clear?"), None);
        assert_eq!(Command::parse("/a\nb"), None);
    }

    #[test]
    fn the_help_has_every_command() {
        for name in NAMES {
            assert!(
                super::super::help::TEXT.contains(&format!("\n{name} ")) || super::super::help::TEXT.starts_with(name),
                "{name}"
            );
        }
    }
}
