//! How much a template may take: it comes with a checkpoint, and nothing in a checkpoint is trusted.
//!
//! Fuel (see [`environment`](crate::environment)) bounds the steps of a rendering and the bytes of its texts, not what one step does: the
//! engine and the filters follow a value, and the parser an expression, by recursion, and Python's methods of texts know of no fuel.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// Longest template, in bytes: the longest that are in use have 50 kB.
pub(crate) const LONGEST: usize = 256 << 10;

/// Deepest value that is written out: messages as JSON have at most 128 levels.
const DEEPEST: usize = 500;
/// Most bytes of it, and of what a method makes of a text.
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

/// Refuses a method of a text whose result would be too large: those that repeat what they are given.
pub(crate) fn check_method(text: &str, method: &str, args: &[Value]) -> Result<(), Error> {
    match (method, args) {
        ("join", [items]) => {
            check(items)?;
            let n = items.len().unwrap_or(0).max(1);
            bytes(text.len().saturating_mul(n - 1))
        }
        ("replace", [old, new, count @ ..]) => {
            let (old, new) = (old.as_str().unwrap_or_default(), new.as_str().unwrap_or_default());
            // Below 0 it is none.
            let most = count.first().and_then(Value::as_usize).unwrap_or(usize::MAX);
            let n = if new.len() > old.len() { text.matches(old).take(most).count() } else { 0 };
            bytes(n.saturating_mul(new.len()).saturating_add(text.len()))
        }
        _ => Ok(()),
    }
}

fn bytes(n: usize) -> Result<(), Error> {
    if n > LARGEST { Err(too(LARGEST, "bytes")) } else { Ok(()) }
}

fn too(most: usize, what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("a value has more than {most} {what}"))
}

fn follow(value: &Value, depth: usize, size: &mut usize) -> Result<(), Error> {
    *size = size.saturating_add(NODE + value.as_str().map_or(0, str::len));
    for (found, most, what) in [(depth, DEEPEST, "levels"), (*size, LARGEST, "bytes")] {
        if found > most {
            return Err(too(most, what));
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
