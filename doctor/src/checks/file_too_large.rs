//! HTP's limit on the size of a binary.

use crate::case::FileState;
use crate::{Case, Findings, Rule, Severity};

/// Over two gigabytes.
pub const RULE: Rule = Rule {
    id: "file-too-large",
    severity: Severity::Error,
    title: "a context binary of 2 GB or more",
    why: "the HTP serialises and maps less than 2 GB: it cannot be loaded (1002, 5005)",
    cure: "cut the model into more splits: `genie compile --layers-per-split N`",
};

/// What a signed 32-bit length can say.
const LIMIT: u64 = (2 << 30) - 1;

/// Each binary's length.
pub fn check(case: &Case, found: &mut Findings) {
    for binary in case.binaries() {
        let FileState::Present { bytes } = binary.file else { continue };
        if bytes > LIMIT {
            found.add(&RULE, binary.name(), format!("has {bytes} bytes, {} more than fit", bytes - LIMIT));
        }
    }
}
