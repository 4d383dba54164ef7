//! All checks, by subject. Each looks at [`Facts`] and adds what is wrong; none touches a file.
//!
//! A new rule goes into the file of its subject with its check, into that file's `CHECKS`, and into `docs/doctor.md` (a test
//! compares the two).

mod builds;
mod config;
mod device;
mod encodings;
mod files;
mod graphs;
mod lora;
mod machine;
mod model;
mod positions;
mod tensors;
mod tokens;

use crate::{Facts, Finding, Findings, Rule};

/// A check and the rules that it reports.
struct Check {
    rules: &'static [&'static Rule],
    run: fn(&Facts, &mut Findings),
}

/// All checks, in the order of the report.
fn all() -> impl Iterator<Item = &'static Check> {
    let subjects = [
        machine::CHECKS,
        device::CHECKS,
        builds::CHECKS,
        files::CHECKS,
        config::CHECKS,
        model::CHECKS,
        positions::CHECKS,
        lora::CHECKS,
        tokens::CHECKS,
        encodings::CHECKS,
        graphs::CHECKS,
    ];
    subjects.into_iter().flatten()
}

/// Runs all checks; errors come first.
pub fn examine(facts: &Facts) -> Vec<Finding> {
    let mut found = Findings::default();
    for check in all() {
        (check.run)(facts, &mut found);
    }
    found.into_sorted()
}

/// All rules.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    all().flat_map(|check| check.rules).copied()
}
