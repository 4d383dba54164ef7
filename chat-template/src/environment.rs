//! The Jinja environment that templates of checkpoints expect: transformers' settings, Python's methods and texts.

use jiff::Zoned;
use jiff::fmt::strtime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, StringInput, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value, filters};

use crate::{bounds, json, python};

/// Steps of the engine that one rendering may take: about a second; 64 bytes of a text count as one. A template from a file is foreign code.
const FUEL: u64 = 4_000_000;

/// An environment without templates.
pub(crate) fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    env.set_syntax(syntax.expect("the usual delimiters are valid"));
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_fuel(Some(FUEL));
    // Errors would hold values, as deep as they are.
    env.set_debug(false);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_unknown_method_callback(|state, value, name, args| {
        if let Some(text) = value.as_str() {
            bounds::check_method(text, name, args)?;
        }
        minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
    });
    env.set_formatter(|out, _, value| {
        let text = if value.kind() == ValueKind::String { None } else { Some(python::str(value)?) };
        out.write_str(text.as_deref().or_else(|| value.as_str()).unwrap_or_default()).map_err(Error::from)
    });
    env.add_test("iterable", |value: Value| {
        matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Iterable)
    });
    env.add_filter("join", join);
    env.add_filter("tojson", |value: Value, kwargs| json::tojson(&value, kwargs));
    env.add_filter("string", |value: Value| python::str(&value));
    env.add_function("raise_exception", |message: Value, rest| python::raise_exception(&message, rest));
    env.add_function("strftime_now", strftime_now);
    env
}

/// The engine's `join` of values that are not too large: it counts what it joins once all of it is there.
fn join(
    state: &mut State,
    value: &Value,
    joiner: Option<StringInput<'_>>,
    attribute: Option<&str>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    bounds::check(value)?;
    filters::join(state, value, joiner, attribute, kwargs)
}

/// The local time by Python's format.
fn strftime_now(format: &str) -> Result<String, Error> {
    strtime::format(format, &Zoned::now())
        .map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("`strftime_now`: `{format}`")).with_source(e))
}

/// A template without `generation` blocks: they mark what is trained on, and mean nothing to a prompt.
pub(crate) fn without_generation_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(begin) = rest.find("{%") {
        let (before, tag) = rest.split_at(begin);
        out.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let inner = tag[2..end].trim_matches(['-', '+']).trim();
        let instead = match inner {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        let (tag, after) = tag.split_at(end + 2);
        match instead {
            Some(word) => out.push_str(&tag.replacen(inner, word, 1)),
            None => out.push_str(tag),
        }
        rest = after;
    }
    out + rest
}
