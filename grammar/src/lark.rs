//! What llguidance says of a grammar, as this crate's errors.

use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv};
use llguidance::{Matcher, ParserFactory};

use crate::{GrammarError, GrammarKind};

/// Stack of the thread that compiles; only what is used takes memory.
const STACK: usize = 256 << 20;

/// Compiles a grammar over single bytes, which shows what is wrong with it whatever the vocabulary is.
pub(crate) fn check(kind: GrammarKind, grammar: &TopLevelGrammar) -> Result<(), GrammarError> {
    let bytes: TokEnv = ApproximateTokEnv::single_byte_env();
    let factory = catch_unwind(std::panic::AssertUnwindSafe(|| {
        ParserFactory::new(&bytes, InferenceCapabilities::default(), &[])
    }));
    let mut factory = factory.map_err(|e| fault(kind, &e.to_string()))?;
    matcher(kind, factory.quiet(), grammar.clone()).map(|_| ())
}

/// A parser at its start.
pub(crate) fn matcher(
    kind: GrammarKind,
    factory: &ParserFactory,
    grammar: TopLevelGrammar,
) -> Result<Matcher, GrammarError> {
    let make = || {
        catch_unwind(std::panic::AssertUnwindSafe(|| {
            let logger = llguidance::Logger::new(0, 0);
            let init = GrammarInit::Serialized(grammar);
            factory.create_parser_from_init_ext(init, logger, InferenceCapabilities::default(), limits(kind))
        }))
    };
    // The parser follows rules by recursion, as deep as they name each other.
    let made = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, make);
        thread.map_err(|e| e.to_string())?.join().map_err(|_| "the parser has panicked".to_owned())
    });
    let made = made.map_err(|message| GrammarError::Unusable { kind, message })?;
    let matcher = Matcher::new(made);
    match matcher.get_error() {
        Some(message) => Err(fault(kind, &message)),
        None => Ok(matcher),
    }
}

/// Bounds of the work for one token. Rules of an EBNF are followed character by character (see `ebnf::lark`), which takes more
/// items than the parser's own bound.
fn limits(kind: GrammarKind) -> ParserLimits {
    let own = ParserLimits { verbose_errors: false, ..ParserLimits::default() };
    match kind {
        GrammarKind::Ebnf => ParserLimits { max_items_in_row: 1 << 17, step_max_items: 1 << 25, ..own },
        _ => own,
    }
}

/// An error from the parser's words, which may begin with the place.
pub(crate) fn fault(kind: GrammarKind, message: &str) -> GrammarError {
    let first = message.lines().next().unwrap_or_default().trim();
    let text = first.strip_prefix("at ").unwrap_or(first);
    match place(text).filter(|_| kind == GrammarKind::Lark) {
        Some((line, column, rest)) => GrammarError::Malformed { kind, line, column, message: rest.to_owned() },
        None => GrammarError::Unusable { kind, message: first.to_owned() },
    }
}

/// `LINE(COLUMN): words`.
fn place(text: &str) -> Option<(usize, usize, &str)> {
    let (line, rest) = text.split_once('(')?;
    let (column, rest) = rest.split_once("): ")?;
    Some((line.parse().ok()?, column.parse().ok()?, rest))
}
