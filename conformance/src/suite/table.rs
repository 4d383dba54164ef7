//! The suite as a table for readers: op by types, what each backend does with them.

use std::fmt::Write;

use super::bounds::Bound;
use super::problem::{Problem, Support};

struct Row<'a> {
    op: &'a str,
    types: String,
    cases: Vec<&'a str>,
    host: String,
    htp: String,
}

/// The rows as Markdown, in the order of the suite. Cases of one op and one list of types that fare alike share a row.
pub fn render(problems: &[Problem]) -> String {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for problem in problems {
        let (types, host, htp) =
            (problem.types(), cell(&problem.host, problem.bounds.host), cell(&problem.htp, problem.bounds.htp));
        let alike =
            |row: &&mut Row<'_>| row.op == problem.op && (&row.types, &row.host, &row.htp) == (&types, &host, &htp);
        match rows.iter_mut().find(alike) {
            Some(row) => row.cases.push(&problem.case),
            None => rows.push(Row { op: problem.op, types, cases: vec![&problem.case], host, htp }),
        }
    }
    let mut text = String::from("| op | types | cases | qnn-host | emulator |\n|---|---|---|---|---|\n");
    for row in rows {
        writeln!(text, "| `{}` | {} | {} | {} | {} |", row.op, row.types, row.cases.join("; "), row.host, row.htp)
            .expect("a string grows");
    }
    text
}

fn cell(support: &Support, bound: Bound) -> String {
    match support {
        Support::Runs => bound.to_string(),
        Support::Refuses(why) => format!("refused: {why}"),
        Support::Deviates(why) => format!("differs: {why}"),
        Support::Unsteady(why) => format!("unsteady: {why}"),
    }
}
