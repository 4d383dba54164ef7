//! How much a template may take: it comes with a checkpoint, and nothing in a checkpoint is trusted.
//!
//! Fuel (see [`environment`](crate::environment)) bounds the steps of a rendering, not what one step does: the engine and the filters
//! follow a value, and the parser an expression, by recursion.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// Longest template, in bytes: the longest that are in use have 50 kB.
pub(crate) const LONGEST: usize = 256 << 10;

/// Deepest value that is written out: messages as JSON have at most 128 levels.
const DEEPEST: usize = 500;
/// Most bytes of it.
const LARGEST: usize = 64 << 20;
/// Bytes that a value counts beside its text.
const NODE: usize = 64;

/// Stack of the thread on which templates are compiled and rendered: an expression of [`LONGEST`] bytes takes half of it, and so does a value
/// as deep as the fuel lets it become. Only what is used takes memory.
const STACK: usize = 256 << 20;

/// Runs `work` with that stack.
pub(crate) fn with_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("chat-template".into()).stack_size(STACK);
        let done = thread.spawn_scoped(scope, work)?.join();
        Ok(done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Refuses a value that is too deep or too large to be written out.
pub(crate) fn check(value: &Value) -> Result<(), Error> {
    follow(value, 0, &mut 0)
}

fn follow(value: &Value, depth: usize, size: &mut usize) -> Result<(), Error> {
    *size = size.saturating_add(NODE + value.as_str().map_or(0, str::len));
    for (found, most, what) in [(depth, DEEPEST, "levels"), (*size, LARGEST, "bytes")] {
        if found > most {
            return Err(Error::new(ErrorKind::InvalidOperation, format!("a value has more than {most} {what}")));
        }
    }
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
        return Ok(());
    }
    for item in value.try_iter()? {
        follow(&item, depth + 1, size)?;
        if value.kind() == ValueKind::Map {
            follow(&value.get_item(&item)?, depth + 1, size)?;
        }
    }
    Ok(())
}
