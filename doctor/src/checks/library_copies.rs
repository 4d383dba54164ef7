//! Several copies of a library on the loader's path: the first one wins, whichever was meant.

use crate::case::Place;
use crate::{Case, Findings, Rule, Severity};

/// Copies that differ.
pub const RULE: Rule = Rule {
    id: "library-copies",
    severity: Severity::Warning,
    title: "several different copies of a QNN library on the search path",
    why: "the first folder wins; vendor copies in front of your own are often older and refuse newer binaries",
    cure: "put the folder with the release you mean first in `LD_LIBRARY_PATH`, or remove the others",
};

/// Looks through what the loader would look through.
pub fn check(case: &Case, found: &mut Findings) {
    let on_path: Vec<_> =
        case.machine.libraries.iter().filter(|l| matches!(l.place, Place::LoaderPath | Place::System)).collect();
    for (i, first) in on_path.iter().enumerate() {
        let earlier = on_path[..i].iter().any(|l| l.name == first.name);
        let others: Vec<_> = on_path[i + 1..]
            .iter()
            .filter(|l| l.name == first.name && (l.build, l.bytes) != (first.build, first.bytes))
            .collect();
        if earlier || others.is_empty() {
            continue;
        }
        let words = |l: &crate::case::LibraryFile| {
            let build = l.build.map_or_else(|| format!("{} bytes", l.bytes), |build| build.to_string());
            format!("`{}` ({build})", l.path.display())
        };
        let others: Vec<_> = others.iter().map(|l| words(l)).collect();
        found.add(&RULE, &first.name, format!("{} is used, not {}", words(first), others.join(", ")));
    }
}
