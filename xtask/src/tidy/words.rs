//! Words that are refused in code, comments and documents, and what to write instead. One term for each idea: docs/glossary.md.

/// A phrase and its replacement.
///
/// A phrase is words between blanks; a word may be alternatives `a|b`, and `abc*` stands for every word that begins so.
/// Words of names count: `told_at` and `ToldAt` hold `told`.
pub struct Refused {
    pub phrase: &'static str,
    pub instead: &'static str,
}

const fn no(phrase: &'static str, instead: &'static str) -> Refused {
    Refused { phrase, instead }
}

/// The table.
pub const REFUSED: &[Refused] = &[
    no("foretell*|foretold", "predict"),
    no("lest", "so that ... does not"),
    no("anew|afresh", "again, from the start"),
    no("kin", "and similar, or the names"),
    no("for ever", "without limit, until the process ends"),
    no("nobody", "name what does not: no caller, no test, nothing"),
    no("told", "printed, reported, logged, given, passed"),
    no("the real one|ones", "libGenie"),
    no("real genie", "libGenie"),
    no("but for", "except"),
    no("so many", "the number's name, `n`, up to `n`"),
    no("hears|hearer|hearers", "receives, log, listener"),
    no("in earnest", "production, really"),
    no("as one likes", "any"),
    no("come|comes|came home", "return"),
    no("house", "repository, project"),
    no("commits earlier", "nothing: a document has no history, git does"),
    no(
        "tokens|nats|us|ms|ns|seconds|microseconds|milliseconds|bytes|gb|mb|kb|gib|mib|kib|operations|worker|workers|\
         threads|allocations|line|row|one|two|three|four|five|binary|tensor|scale|table|bits a|an \
         token|second|step|layer|split|thread|context|byte|minute|run|row|worker|head|core|group|op|measure|channel|block|test",
        "per, or a slash: tokens/s, us per token",
    ),
];

/// Files in which a refused word is a name or a quotation: this table, its tests, the changelog.
pub const NOT_CHECKED: &[&str] = &["xtask/src/tidy/words.rs", "xtask/src/tidy/phrases.rs", "CHANGELOG.md"];
