//! ARCHITECTURE.md's picture of the layers, written from the table of crates.
//!
//! A crate's level is one above the highest that it may use; an arrow that follows from others is left out.

use std::fmt::Write as _;

use super::crates::{CRATES, find};

/// The block lies between these lines.
const BEGIN: &str = "<!-- layers: written by `cargo xtask tidy --fix` from xtask/src/tidy/crates.rs -->\n";
const END: &str = "<!-- end of layers -->\n";

/// The document with the picture as it must be.
pub fn rewrite(document: &str) -> Option<String> {
    let (head, rest) = document.split_once(BEGIN)?;
    let (_, tail) = rest.split_once(END)?;
    Some(format!("{head}{BEGIN}{}{END}{tail}", picture()))
}

fn picture() -> String {
    let width = CRATES.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let mut text = "```\n".to_owned();
    let top = CRATES.iter().map(|row| level(row.name)).max().unwrap_or(0);
    for floor in (0..=top).rev() {
        for row in CRATES.iter().rev().filter(|row| level(row.name) == floor) {
            let arrows = direct(row.name);
            let line = if arrows.is_empty() {
                row.name.to_owned()
            } else {
                format!("{:width$} ──> {}", row.name, arrows.join(", "))
            };
            let _ = writeln!(text, "{floor}  {line}");
        }
    }
    text + "```\n"
}

fn level(name: &str) -> usize {
    uses(name).iter().map(|used| level(used) + 1).max().unwrap_or(0)
}

fn uses(name: &str) -> &'static [&'static str] {
    find(name).map_or(&[], |row| row.may_use)
}

/// What a crate may use and does not reach through another.
fn direct(name: &str) -> Vec<&'static str> {
    let all = uses(name);
    all.iter().copied().filter(|used| !all.iter().any(|other| other != used && reaches(other, used))).collect()
}

fn reaches(from: &str, to: &str) -> bool {
    uses(from).iter().any(|used| *used == to || reaches(used, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_is_replaced_and_the_rest_is_kept() {
        let document = format!("# Title\n{BEGIN}old\n{END}rest\n");
        let new = rewrite(&document).unwrap();
        assert!(new.starts_with("# Title\n") && new.ends_with("rest\n") && !new.contains("old"), "{new}");
        assert_eq!(rewrite(&new).as_deref(), Some(new.as_str()));
        assert_eq!(rewrite("# Title\n"), None);
    }

    #[test]
    fn an_arrow_that_follows_from_others_is_left_out() {
        assert_eq!(direct("kvmanager"), ["genie-types"]);
        assert!(uses("engine").contains(&"genie-types") && !direct("engine").contains(&"genie-types"));
        assert_eq!(level("genie-types"), 0);
        assert!(level("engine") > level("qnn-api") && level("qnn-api") > level("qnn-sys"));
    }
}
