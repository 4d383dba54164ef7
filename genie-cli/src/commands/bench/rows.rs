//! Rows of `genie bench --output`: Markdown, CSV, SQL, one JSON array; every row has the same columns.

use clap::ValueEnum;
use serde_json::Value;

/// A form for other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for a document.
    Md,
    /// Comma-separated values.
    Csv,
    /// One array.
    Json,
    /// One JSON document a line, as `--json`.
    Jsonl,
    /// Statements for SQLite.
    Sql,
}

/// Columns: the name, the place in the record, and whether it is a number.
const COLUMNS: &[(&str, &str, bool)] = &[
    ("bundle", "/bundle", false),
    ("backend", "/backend", false),
    ("policy", "/policy", false),
    ("commit", "/commit", false),
    ("version", "/build", false),
    ("cpu", "/machine/cpu", false),
    ("isa", "/machine/isa", false),
    ("threads", "/threads", true),
    ("disturb", "/disturb", true),
    ("test", "/test", false),
    ("tokens", "/tokens", true),
    ("fill", "/fill", true),
    ("reps", "/reps", true),
    ("tokens_per_second", "/tok_s", true),
    ("min", "/min", true),
    ("max", "/max", true),
    ("ms", "/ms", true),
];
/// Of a table to be read.
const SHORT: &[&str] = &["bundle", "backend", "isa", "threads", "disturb", "test", "tokens_per_second", "min", "max"];

/// Prints rows one after the other.
pub struct Rows {
    format: Format,
    n: usize,
}

impl Rows {
    /// None yet.
    pub fn new(format: Format) -> Self {
        Self { format, n: 0 }
    }

    /// The text of the next row, with what comes before the first.
    pub fn row(&mut self, record: &Value) -> String {
        self.n += 1;
        let (head, row) = match self.format {
            Format::Md => (Some(markdown_head()), markdown(record)),
            Format::Csv => {
                let cells = COLUMNS.iter().map(|(_, place, _)| in_quotes(&plain(record, place)));
                (Some(names(",")), cells.collect::<Vec<_>>().join(","))
            }
            Format::Sql => (Some(table()), insert(record)),
            Format::Json | Format::Jsonl => (None, format!("{}{record}", if self.n == 1 { "[" } else { "," })),
        };
        match head.filter(|_| self.n == 1) {
            Some(head) => format!("{head}\n{row}"),
            None => row,
        }
    }

    /// What ends the rows, where something does.
    pub fn end(&self) -> Option<&'static str> {
        (self.format == Format::Json).then_some(if self.n == 0 { "[]" } else { "]" })
    }
}

fn names(separator: &str) -> String {
    COLUMNS.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(separator)
}

fn short_columns() -> impl Iterator<Item = &'static (&'static str, &'static str, bool)> {
    COLUMNS.iter().filter(|(name, ..)| SHORT.contains(name))
}

fn markdown_head() -> String {
    let names: Vec<&str> = short_columns().map(|(name, ..)| *name).collect();
    let rules: Vec<&str> = short_columns().map(|(.., is_number)| if *is_number { "---:" } else { "---" }).collect();
    format!("| {} |\n| {} |", names.join(" | "), rules.join(" | "))
}

fn markdown(record: &Value) -> String {
    let cells: Vec<String> = short_columns().map(|(_, place, is_number)| short(record, place, *is_number)).collect();
    format!("| {} |", cells.join(" | "))
}

fn table() -> String {
    let columns = COLUMNS.iter().map(|(name, _, number)| format!("{name} {}", if *number { "REAL" } else { "TEXT" }));
    format!("CREATE TABLE IF NOT EXISTS bench ({});", columns.collect::<Vec<_>>().join(", "))
}

fn insert(record: &Value) -> String {
    let cells = COLUMNS.iter().map(|(_, place, is_number)| match plain(record, place) {
        cell if cell.is_empty() => "NULL".to_owned(),
        cell if *is_number => cell,
        cell => format!("'{}'", cell.replace('\'', "''")),
    });
    format!("INSERT INTO bench ({}) VALUES ({});", names(", "), cells.collect::<Vec<_>>().join(", "))
}

fn plain(record: &Value, place: &str) -> String {
    match record.pointer(place) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// A number with two digits behind the point, as a reader wants it.
fn short(record: &Value, place: &str, is_number: bool) -> String {
    match record.pointer(place).and_then(Value::as_f64).filter(|n| is_number && n.fract() != 0.0) {
        Some(number) => format!("{number:.2}"),
        None => plain(record, place).replace('|', "\\|"),
    }
}

/// In quotes where the text has what would end it.
fn in_quotes(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(test: &str) -> Value {
        let machine = json!({"cpu": "x|y", "isa": "avx2"});
        json!({"bundle": "a, 'b'", "test": test, "tok_s": 12.375, "threads": 2, "disturb": 3, "machine": machine})
    }

    fn all(format: Format) -> String {
        let mut rows = Rows::new(format);
        let lines = [rows.row(&record("pp128")), rows.row(&record("tg64"))];
        lines.into_iter().chain(rows.end().map(str::to_owned)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn each_form_has_two_rows() {
        let md = all(Format::Md);
        assert_eq!(md.lines().count(), 4);
        assert!(md.ends_with("| a, 'b' |  | avx2 | 2 | 3 | tg64 | 12.38 |  |  |"), "{md}");
        let csv = all(Format::Csv);
        assert_eq!(csv.lines().nth(1), Some("\"a, 'b'\",,,,,x|y,avx2,2,3,pp128,,,,12.375,,,"));
        let sql = all(Format::Sql);
        assert!(sql.starts_with("CREATE TABLE IF NOT EXISTS bench (bundle TEXT,"), "{sql}");
        assert!(sql.ends_with("VALUES ('a, ''b''', NULL, NULL, NULL, NULL, 'x|y', 'avx2', 2, 3, 'tg64', NULL, NULL, NULL, 12.375, NULL, NULL, NULL);"), "{sql}");
        let json: Value = serde_json::from_str(&all(Format::Json)).unwrap();
        assert_eq!(json[1]["test"], "tg64");
        assert_eq!(Rows::new(Format::Json).end(), Some("[]"));
    }
}
