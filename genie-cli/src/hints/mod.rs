//! Words the libraries' typed hints in terms of this program's flags: one file per library.

mod backend;
mod compiler;
pub mod doctor;
pub mod files;
mod front;

use ::compiler::CompileError;
use open_genie::models::ModelsError;

use crate::user_error::UserError;

/// The first hint along the chain of causes.
pub fn of(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|e| {
        let own = e.downcast_ref::<UserError>().map(|e| e.hint().to_owned());
        let front = e.downcast_ref::<open_genie::Error>();
        let compile = || match front {
            Some(open_genie::Error::Compile(error) | open_genie::Error::Models(ModelsError::Model(error))) => {
                Some(error)
            }
            _ => e.downcast_ref::<CompileError>(),
        };
        let backend = e.downcast_ref::<qnn_api::Error>().or_else(|| match compile()? {
            CompileError::Backend(error) => Some(error),
            _ => None,
        });
        own.or_else(|| of_server(e))
            .or_else(|| of_trainer(e))
            .or_else(|| front::of(front?))
            .or_else(|| Some(backend::words(&backend?.hint()?)))
            .or_else(|| compiler::of(compile()?))
            .or_else(|| Some(doctor::of(e.downcast_ref()?)))
            .or_else(|| files::of(e.downcast_ref().or_else(|| files::within(e))?))
    })
}

/// The hints of `genie serve`.
#[cfg(feature = "server")]
fn of_server(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    use server::ServerError;
    Some(match error.downcast_ref::<ServerError>()? {
        ServerError::OpenWithoutKey { .. } => "set a key with `--api-key` or `--api-key-file`, or omit `--host`".into(),
        ServerError::EmptyKey { .. } => "remove the empty key".into(),
        ServerError::Listen { .. } => "choose another port with `--port`; 0 takes a free one".into(),
        ServerError::SlotFolder { .. } => "give a folder that you may write to with `--slot-save-path`".into(),
        ServerError::SlotFolderTaken { .. } => {
            "give this one another folder with `--slot-save-path`, or omit `--keep-slots`".into()
        }
        ServerError::NoTls => {
            "build with `cargo build -p genie-cli --features tls`, or let a router such as nginx end HTTPS".into()
        }
        ServerError::Tls { .. } => {
            "give a certificate with `--tls-cert` and its key with `--tls-key`, both in PEM".into()
        }
        ServerError::Model(error) => return front::of(error),
        _ => return None,
    })
}

#[cfg(not(feature = "server"))]
fn of_server(_: &(dyn std::error::Error + 'static)) -> Option<String> {
    None
}

/// The hints of `genie train`.
#[cfg(feature = "train")]
fn of_trainer(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    use trainer::TrainError;
    Some(match error.downcast_ref::<TrainError>()? {
        TrainError::ShortText { .. } => "give a longer text, or a shorter `--context`".into(),
        TrainError::ShortHeldOut { .. } => "hold out more, a shorter `--context`, or nothing: `--held-out 0`".into(),
        TrainError::Vocabulary { found, .. } => format!("at most `--vocab {found}`, or `--vocab characters`"),
        TrainError::OutputExists(_) => "choose another folder; `--resume` goes on with a run that was stopped".into(),
        TrainError::NoState(_) => "omit `--resume` to begin a run".into(),
        TrainError::State { .. } => "begin again in another folder".into(),
        TrainError::OtherRun { name, saved, .. } if name == "text" => {
            format!("give the text that the run began with ({saved})")
        }
        TrainError::OtherRun { name, saved, .. } => {
            format!("give `--{name} {saved}`, or begin again in another folder")
        }
        TrainError::Diverged { .. } => "try a third of the `--learning-rate`".into(),
        TrainError::File(error) => return files::of(error),
        _ => return None,
    })
}

#[cfg(not(feature = "train"))]
fn of_trainer(_: &(dyn std::error::Error + 'static)) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_has_a_hint_wherever_it_is_met() {
        let source = || std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let file = || file_io::FileError::io("make a folder in", std::path::Path::new("/x"))(source());
        let folder = || file_io::FolderError::File(file());
        let cases: [anyhow::Error; 7] = [
            file().into(),
            folder().into(),
            CompileError::File(file()).into(),
            CompileError::OutputFolder(folder()).into(),
            open_genie::Error::DemoFolder(folder()).into(),
            open_genie::Error::Compile(CompileError::OutputFolder(folder())).into(),
            open_genie::Error::Compile(CompileError::Backend(qnn_api::Error::File(file()))).into(),
        ];
        for error in cases {
            assert_eq!(of(&error).as_deref(), Some("choose a place that you may write to"), "{error:?}");
        }
    }

    #[test]
    fn memory_that_is_not_there_has_a_hint() {
        let source = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        let source = qnn_api::Error::Io { operation: "map", path: "model.bin".into(), source };
        let source = engine::EngineError::LoadBinary { path: "model.bin".into(), source };
        let hint = of(&open_genie::Error::Graphs { source }.into());
        assert!(hint.is_some_and(|hint| hint.contains("`ulimit -v`")));
    }

    #[test]
    fn a_hint_survives_context() {
        let error = UserError::error("no", "do that").context("cannot");
        assert_eq!(of(&error).as_deref(), Some("do that"));
    }
}
