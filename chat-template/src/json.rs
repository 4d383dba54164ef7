//! The filter `tojson` as transformers has it: Python's `json.dumps`, with its blanks, its numbers, and nothing escaped for HTML.

use std::io;

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, PrettyFormatter};

use crate::{bounds, python};

/// How Python separates: `", "` and `": "`, or lines.
struct Dumps<'a> {
    lines: Option<PrettyFormatter<'a>>,
    item: &'a str,
    key: &'a str,
    ascii: bool,
}

/// Writes a value.
pub(crate) fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent = match kwargs.get::<Option<Value>>("indent")? {
        Some(value) if !value.is_none() => Some(match value.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(
                usize::try_from(value).map_err(|e| Error::new(ErrorKind::InvalidOperation, e.to_string()))?.min(64),
            ),
        }),
        _ => None,
    };
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    let ascii = kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sorted = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.as_str(), key.as_str()),
        _ => (if indent.is_some() { "," } else { ", " }, ": "),
    };
    let lines = indent.as_deref().map(|text| PrettyFormatter::with_indent(text.as_bytes()));
    let mut out = Vec::new();
    bounds::check(value)?;
    let mut json = serde_json::to_value(value).map_err(bad)?;
    if sorted {
        json.sort_all_objects();
    }
    json.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Dumps { lines, item, key, ascii }))
        .map_err(bad)?;
    Ok(Value::from_safe_string(String::from_utf8_lossy(&out).into_owned()))
}

fn bad(e: serde_json::Error) -> Error {
    Error::new(ErrorKind::BadSerialization, "a value has no JSON form").with_source(e)
}

impl Formatter for Dumps<'_> {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(python::float(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        if !self.ascii || fragment.is_ascii() {
            return writer.write_all(fragment.as_bytes());
        }
        let mut units = [0; 2];
        for c in fragment.chars() {
            match c.is_ascii() {
                true => write!(writer, "{c}")?,
                false => c.encode_utf16(&mut units).iter().try_for_each(|unit| write!(writer, "\\u{unit:04x}"))?,
            }
        }
        Ok(())
    }

    fn write_char_escape<W: ?Sized + io::Write>(&mut self, writer: &mut W, escape: CharEscape) -> io::Result<()> {
        serde_json::ser::CompactFormatter.write_char_escape(writer, escape)
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        match &mut self.lines {
            Some(lines) => lines.begin_array(writer),
            None => writer.write_all(b"["),
        }
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        match &mut self.lines {
            Some(lines) => lines.end_array(writer),
            None => writer.write_all(b"]"),
        }
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.separate(writer, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.lines.as_mut().map_or(Ok(()), |lines| lines.end_array_value(writer))
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        match &mut self.lines {
            Some(lines) => lines.begin_object(writer),
            None => writer.write_all(b"{"),
        }
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        match &mut self.lines {
            Some(lines) => lines.end_object(writer),
            None => writer.write_all(b"}"),
        }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.separate(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(self.key.as_bytes())
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.lines.as_mut().map_or(Ok(()), |lines| lines.end_object_value(writer))
    }
}

impl Dumps<'_> {
    /// Between two items; with lines, the first item begins a line too.
    fn separate<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(self.item.as_bytes())?;
        }
        // Asked for the first item, the pretty formatter writes only the line's beginning.
        self.lines.as_mut().map_or(Ok(()), |lines| lines.begin_array_value(writer, true))
    }
}
