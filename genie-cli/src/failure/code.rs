//! The `code` of each error in its JSON form: one stable word for each kind, whatever the text says.
//!
//! *Invariant*: every word that is given out stands in `CODES`, and docs/exit-codes.md has the same table. The first cause
//! that has a word decides, from the top; a cause that only carries another one has none.

use std::io;

use compiler::CompileError;
use doctor::DoctorError;
use engine::EngineError;
use file_io::FileError;
use genie_bundle::{BundleError, ConfigError};
use kvmanager::PlanError;
use open_genie::models::ModelsError;
use open_genie::{DialogError, Error, GrammarError};
use session_store::StoreError;

use crate::hints::files;
use crate::interrupt::Interrupted;
use crate::printer::OutputError;
use crate::user_error::UserError;

/// Bad usage: the command line itself.
pub const USAGE: &str = "usage";

/// The words, and what each stands for.
#[cfg(test)]
const CODES: &[(&str, &str)] = &[
    (USAGE, "the command line is not understood (exit code 2)"),
    ("interrupted", "a signal ended the run; what was done until then stands beside `error`"),
    ("invalid-argument", "the value of a flag cannot be used"),
    ("not-found", "a file or folder does not exist"),
    ("permission-denied", "the system refuses access to a file"),
    ("disk-full", "the disk is full, or a limit on file sizes was hit"),
    ("io", "the system could not read or write"),
    ("stdout-failed", "the output could not be written"),
    ("output-refused", "the place to write to holds something else"),
    ("invalid-config", "`genie_config.json`, or a file beside it, is not valid"),
    ("invalid-bundle", "a bundle, its manifest or its context binaries cannot be used"),
    ("invalid-model", "the checkpoint or GGUF file to compile is damaged, incomplete or contradicts itself"),
    ("unsupported-model", "the model needs what this program does not have"),
    ("unsupported-target", "the chip cannot run what was asked for"),
    ("too-large", "a context binary would exceed its limit"),
    ("invalid-grammar", "a grammar is malformed, or no token can follow it"),
    ("invalid-tokenizer", "the tokenizer cannot be used"),
    ("invalid-token", "a token id is not in the vocabulary"),
    ("invalid-session", "a saved dialog is damaged or not one"),
    ("other-model", "a saved dialog belongs to another model"),
    ("nothing-to-save", "there is no dialog yet"),
    ("context-exceeded", "the tokens do not fit the context"),
    ("not-finite", "the graphs computed NaN or infinity"),
    ("backend-missing", "a QNN library is missing or is not one"),
    ("backend-failed", "a QNN library refused a call"),
    ("failed", "anything else; the message says what"),
];

const FALLBACK: &str = "failed";

/// The word of an error.
pub fn of(error: &anyhow::Error) -> &'static str {
    error.chain().find_map(of_cause).unwrap_or(FALLBACK)
}

fn of_cause(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    if error.is::<Interrupted>() {
        return Some("interrupted");
    }
    if error.is::<UserError>() {
        return Some("invalid-argument");
    }
    #[cfg(feature = "server")]
    if let Some(server::ServerError::OpenWithoutKey { .. } | server::ServerError::EmptyKey { .. }) =
        error.downcast_ref()
    {
        return Some("invalid-argument");
    }
    #[cfg(feature = "train")]
    if let Some(error) = error.downcast_ref::<trainer::TrainError>() {
        return of_trainer(error);
    }
    if error.is::<OutputError>() {
        return Some("stdout-failed");
    }
    // What the system refused is more than where it did.
    if let Some(file @ (FileError::Io { .. } | FileError::NoSpace { .. })) = files::within(error) {
        return of_file(file);
    }
    None.or_else(|| of_front(error.downcast_ref()?))
        .or_else(|| of_dialog(error.downcast_ref::<DialogError>().or_else(|| Some(error.downcast_ref::<Box<_>>()?))?))
        .or_else(|| of_engine(error.downcast_ref()?))
        .or_else(|| of_grammar(error.downcast_ref()?))
        .or_else(|| of_compiler(error.downcast_ref()?))
        .or_else(|| of_plan(error.downcast_ref()?))
        .or_else(|| of_store(error.downcast_ref()?))
        .or_else(|| of_bundle(error.downcast_ref()?))
        .or_else(|| of_config(error.downcast_ref()?))
        .or_else(|| of_doctor(error.downcast_ref()?))
        .or_else(|| of_backend(error.downcast_ref()?))
        .or_else(|| of_file(error.downcast_ref()?))
        .or_else(|| Some(of_io(error.downcast_ref()?)))
}

#[cfg(feature = "train")]
fn of_trainer(error: &trainer::TrainError) -> Option<&'static str> {
    use trainer::TrainError as T;
    Some(match error {
        T::OutputExists(_) => "output-refused",
        T::File(error) => return of_file(error),
        T::Stopped { .. } => "interrupted",
        T::NoState(_) => "not-found",
        T::Diverged { .. } => "not-finite",
        T::Compute(_) | T::Draw(_) | T::Tokenizer(_) | T::State { .. } => FALLBACK,
        _ => "invalid-argument",
    })
}

fn of_front(error: &Error) -> Option<&'static str> {
    match error {
        Error::UnknownBackend { .. } | Error::Load { .. } | Error::NoSharedMemory { .. } => Some("backend-missing"),
        Error::UnknownSoc { .. } | Error::NoHtp { .. } => Some("unsupported-target"),
        Error::BadLora { .. }
        | Error::PinOnOtherBackend { .. }
        | Error::ThreadsOnOtherBackend { .. }
        | Error::SystemOnEmbedded { .. }
        | Error::SocOnEmbedded { .. }
        | Error::NoCores { .. }
        | Error::CoreUnavailable { .. }
        | Error::CoresUnknown
        | Error::UnknownLongContext { .. }
        | Error::UnknownSharedMemory { .. }
        | Error::ImageGrid { .. }
        | Error::UnknownSpeculation { .. }
        | Error::ReservedWithoutLongContext { .. }
        | Error::NoClocks { .. }
        | Error::PromptLength { .. }
        | Error::Window { .. }
        | Error::NothingToPredict { .. }
        | Error::NothingToVerify
        | Error::OtherCheckpoint { .. }
        | Error::NaiveOfMerged { .. }
        | Error::NaiveWindow
        | Error::Tolerance { .. }
        | Error::NoCacheFolder => Some("invalid-argument"),
        Error::UnknownPerfProfile { .. } | Error::EncoderWidth { .. } | Error::NoSamplerCallback { .. } => {
            Some("invalid-config")
        }
        Error::NoCheckpoint { .. } => Some("not-found"),
        Error::TextTooLong { .. } | Error::TextTooLarge { .. } => Some("context-exceeded"),
        Error::NoFile { .. } => Some("not-found"),
        Error::NoBinary { .. }
        | Error::OtherBackend { .. }
        | Error::NewerBinary { .. }
        | Error::MixedBinaries { .. }
        | Error::DamagedWeights { .. }
        | Error::OtherWeights { .. }
        | Error::LogitsWidth { .. } => Some("invalid-bundle"),
        Error::LogitsNotFinite { .. } => Some("not-finite"),
        Error::Vote { .. } | Error::Start { .. } => Some("backend-failed"),
        Error::Bundle(error) => of_bundle(error),
        Error::Config(error) => of_config(error),
        Error::ContextExceeded { .. } => Some("context-exceeded"),
        Error::Engine(error) => of_engine(error),
        Error::Dialog(error) => of_dialog(error),
        Error::Tokenizer(_) => Some("invalid-tokenizer"),
        Error::Store(error) => of_store(error),
        Error::Save { source, .. } | Error::Restore { source, .. } => of_dialog(source),
        Error::Compile(error) => of_compiler(error),
        Error::Models(error) => of_models(error),
        // Carriers: what is below them says more.
        _ => None,
    }
}

fn of_models(error: &ModelsError) -> Option<&'static str> {
    match error {
        ModelsError::Unknown { .. } | ModelsError::NoFile { .. } => Some("not-found"),
        ModelsError::NoModel { .. }
        | ModelsError::SeveralGguf { .. }
        | ModelsError::Ambiguous { .. }
        | ModelsError::NoCacheFolder => Some("invalid-argument"),
        ModelsError::Model(error) => of_compiler(error),
        // Carriers: what is below them says more.
        _ => None,
    }
}

fn of_dialog(error: &DialogError) -> Option<&'static str> {
    match error {
        DialogError::Tokenizer(_) => Some("invalid-tokenizer"),
        DialogError::Engine(error) => of_engine(error),
        DialogError::Grammar(error) => of_grammar(error),
        DialogError::Overflow(_) | DialogError::TooLong { .. } => Some("context-exceeded"),
        DialogError::Store(error) => of_store(error),
        DialogError::Sampler(_) => Some("not-finite"),
        DialogError::UnknownKind { .. } | DialogError::Kind { .. } | DialogError::EmptyStopSequence { .. } => {
            Some("invalid-config")
        }
        DialogError::RandomState(_) | DialogError::NoDialogSaved => Some("invalid-session"),
        DialogError::NothingToSave => Some("nothing-to-save"),
        DialogError::Empty
        | DialogError::StreamCount { .. }
        | DialogError::BatchSize { .. }
        | DialogError::BatchCount { .. }
        | DialogError::BatchNotSaved
        | DialogError::TokensRefused { .. } => Some("invalid-argument"),
        _ => None,
    }
}

fn of_grammar(error: &GrammarError) -> Option<&'static str> {
    match error {
        GrammarError::Read { source, .. } => Some(of_io(source)),
        GrammarError::Tokenizer(_) | GrammarError::Vocabulary { .. } => Some("invalid-tokenizer"),
        _ => Some("invalid-grammar"),
    }
}

fn of_engine(error: &EngineError) -> Option<&'static str> {
    match error {
        EngineError::Overflow(_) | EngineError::DraftTooLong { .. } | EngineError::TextTooLong { .. } => {
            Some("context-exceeded")
        }
        EngineError::TokenOutOfRange { .. } | EngineError::NoTokens => Some("invalid-token"),
        EngineError::NotFinite { .. } => Some("not-finite"),
        EngineError::NoAdapters { .. }
        | EngineError::UnknownAdapter { .. }
        | EngineError::LoraStrength { .. }
        | EngineError::NoStrength { .. }
        | EngineError::SharedAlpha { .. }
        | EngineError::SectionsStay { .. } => Some("invalid-argument"),
        EngineError::UnknownAlpha { .. } | EngineError::SectionCount { .. } => Some("invalid-config"),
        EngineError::Sections { .. } => Some("backend-failed"),
        EngineError::MissingFile { .. } => Some("not-found"),
        EngineError::Layout(_)
        | EngineError::LoadBinary { .. }
        | EngineError::FindGraph { .. }
        | EngineError::NotAnEncoder { .. }
        | EngineError::EncoderShape { .. } => Some("invalid-bundle"),
        EngineError::Unsupported { .. } => Some("unsupported-model"),
        EngineError::Config { .. }
        | EngineError::Rope(_)
        | EngineError::RopeMissing { .. }
        | EngineError::RopeDim { .. }
        | EngineError::NoPositionInput { .. }
        | EngineError::PositionShape { .. }
        | EngineError::EmbeddingMissing { .. }
        | EngineError::EmbeddingWidth { .. }
        | EngineError::EmbeddingFile { .. }
        | EngineError::QuantisationFile { .. }
        | EngineError::WindowTooLong { .. }
        | EngineError::TooManyReserved { .. }
        | EngineError::NoConversion { .. } => Some("invalid-config"),
        EngineError::Saved(error) => of_store(error),
        EngineError::Execute { .. } => Some("backend-failed"),
        EngineError::Stopped { .. } => Some("interrupted"),
        _ => None,
    }
}

fn of_compiler(error: &CompileError) -> Option<&'static str> {
    match error {
        CompileError::NoWidths { .. }
        | CompileError::ZeroWidth { .. }
        | CompileError::ArTooWide { .. }
        | CompileError::BeyondPositions { .. }
        | CompileError::ZeroLayersPerSplit
        | CompileError::LayersPerSplitInMono { .. }
        | CompileError::OneFileForChip { .. }
        | CompileError::CacheTypeForChip { .. }
        | CompileError::CacheTypeWith { .. }
        | CompileError::NoKvPeaks
        | CompileError::RowsOnlyLeast { .. }
        | CompileError::BadKvPeak { .. }
        | CompileError::KvPeaksOfOtherModel { .. }
        | CompileError::AdapterName { .. }
        | CompileError::AdapterTwice { .. }
        | CompileError::TestModel { .. } => Some("invalid-argument"),
        CompileError::UnknownTarget { .. }
        | CompileError::NoFloat16 { .. }
        | CompileError::HtpWeights { .. }
        | CompileError::HtpPrecision { .. }
        | CompileError::OtherDevice { .. } => Some("unsupported-target"),
        CompileError::NotHtp { .. } => Some("backend-missing"),
        CompileError::PlannedTooLong { .. } | CompileError::TooLong { .. } => Some("too-large"),
        CompileError::UnsupportedArchitecture { .. }
        | CompileError::UnsupportedFeature { .. }
        | CompileError::UnsupportedValue { .. }
        | CompileError::UnknownKey { .. }
        | CompileError::UnsupportedDtype { .. }
        | CompileError::ListInBlocks { .. }
        | CompileError::HeadNotInBlocks { .. }
        | CompileError::NoBlocks { .. } => Some("unsupported-model"),
        CompileError::BadTokenizer { .. } | CompileError::Tokenizer(_) | CompileError::NoTokenizer { .. } => {
            Some("invalid-tokenizer")
        }
        CompileError::OutputOccupied { .. }
        | CompileError::OutputIsBundle { .. }
        | CompileError::OutputFolder(_)
        | CompileError::OutputUnfit { .. } => Some("output-refused"),
        CompileError::Bundle(error) => of_bundle(error),
        CompileError::Backend(error) => of_backend(error),
        CompileError::Cancelled => Some("interrupted"),
        CompileError::NoFile { .. } | CompileError::NoModel { .. } | CompileError::NoAdapter { .. } => {
            Some("not-found")
        }
        CompileError::File(error) => of_file(error),
        CompileError::NotProved { .. } => Some("invalid-bundle"),
        CompileError::Io { .. } => None,
        // What is left is about the model's files.
        _ => Some("invalid-model"),
    }
}

fn of_plan(error: &PlanError) -> Option<&'static str> {
    match error {
        PlanError::Overflow(_) => Some("context-exceeded"),
        _ => None,
    }
}

fn of_store(error: &StoreError) -> Option<&'static str> {
    match error {
        StoreError::OtherModel { .. } | StoreError::OtherRopeFactors | StoreError::OtherAdapters { .. } => {
            Some("other-model")
        }
        StoreError::File(error) => of_file(error),
        StoreError::Io { .. } => None,
        StoreError::Locked { .. } => Some("io"),
        _ => Some("invalid-session"),
    }
}

fn of_bundle(error: &BundleError) -> Option<&'static str> {
    match error {
        BundleError::NoConfig { .. } => Some("not-found"),
        BundleError::Io { .. } => None,
        _ => Some("invalid-bundle"),
    }
}

fn of_config(error: &ConfigError) -> Option<&'static str> {
    match error {
        ConfigError::Read { .. } => None,
        _ => Some("invalid-config"),
    }
}

fn of_doctor(error: &DoctorError) -> Option<&'static str> {
    match error {
        DoctorError::NoSubject { .. } | DoctorError::NoLibraries { .. } => Some("not-found"),
        _ => None,
    }
}

fn of_backend(error: &qnn_api::Error) -> Option<&'static str> {
    match error {
        qnn_api::Error::Open { .. }
        | qnn_api::Error::NotFound { .. }
        | qnn_api::Error::Symbol { .. }
        | qnn_api::Error::NoProvider { .. }
        | qnn_api::Error::Version { .. }
        | qnn_api::Error::Missing { .. }
        | qnn_api::Error::NoSystem { .. } => Some("backend-missing"),
        qnn_api::Error::Io { .. } => None,
        _ => Some("backend-failed"),
    }
}

fn of_file(error: &FileError) -> Option<&'static str> {
    match error {
        FileError::Io { source, .. } => Some(of_io(source)),
        FileError::NoSpace { .. } => Some("disk-full"),
        FileError::NoFolder { .. } => Some("not-found"),
        _ => Some("output-refused"),
    }
}

fn of_io(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "not-found",
        io::ErrorKind::PermissionDenied => "permission-denied",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => "disk-full",
        _ => "io",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_with_a_word_decides() {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let io = |kind| CompileError::Io { doing: "read", path: "m".into(), source: io::Error::from(kind) };
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        let denied = FileError::io("make a folder in", std::path::Path::new("/x"))(refused);
        let cases = [
            (anyhow::anyhow!("what"), "failed"),
            (anyhow::Error::new(missing()).context("cannot read the prompt"), "not-found"),
            (UserError::error("no", "do").context("more"), "invalid-argument"),
            (anyhow::Error::new(io(io::ErrorKind::StorageFull)), "disk-full"),
            (anyhow::Error::new(CompileError::Cancelled), "interrupted"),
            (Error::Compile(io(io::ErrorKind::PermissionDenied)).into(), "permission-denied"),
            (Error::Bundle(BundleError::NoConfig { path: "b".into() }).into(), "not-found"),
            (
                Error::Save { folder: "s".into(), source: Box::new(DialogError::NothingToSave) }.into(),
                "nothing-to-save",
            ),
            (Error::Engine(EngineError::NoTokens).into(), "invalid-token"),
            (CompileError::OutputFolder(file_io::FolderError::File(denied)).into(), "permission-denied"),
        ];
        for (error, expected) in cases {
            assert_eq!(of(&error), expected, "{error:#}");
            assert!(CODES.iter().any(|(code, _)| *code == expected));
        }
    }

    /// No word is given out that the table lacks, and none stands in it twice.
    #[test]
    fn every_word_is_in_the_table_and_in_the_document() {
        let source = include_str!("code.rs");
        let given = source.split("Some(\"").skip(1).chain(source.split("=> \"").skip(1));
        let given: Vec<&str> = given.filter_map(|rest| rest.split('"').next()).collect();
        assert!(given.len() > 40, "{given:?}");
        for word in given {
            assert_eq!(CODES.iter().filter(|(code, _)| *code == word).count(), 1, "`{word}`");
        }
        let document = include_str!("../../../docs/exit-codes.md");
        for (code, meaning) in CODES {
            assert!(document.contains(&format!("| `{code}` | {meaning} |\n")), "docs/exit-codes.md lacks `{code}`");
        }
        let table = document.split("| code | stands for |").nth(1).expect("the table of codes");
        let rows = table.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, CODES.len(), "docs/exit-codes.md has rows of its own");
    }
}
