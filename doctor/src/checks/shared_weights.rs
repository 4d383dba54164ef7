//! Weights that the graphs of a binary share: for devices only.

use qnn_api::library::runtime;

use crate::{Case, Findings, Rule, Severity};

/// The emulator cannot load them.
pub const RULE: Rule = Rule {
    id: "shared-weights",
    severity: Severity::Warning,
    title: "graphs that share their weights, and only the x86 emulator to run them here",
    why: "the emulator refuses such binaries with 1000 (`Shared weights buffer isn't supported on this platform`)",
    cure: "run the bundle on a device, or compile it again without shared weights to try it here",
};

/// What the manifest says, where the emulator is the library at hand.
pub fn check(case: &Case, found: &mut Findings) {
    let machine = &case.machine;
    let emulator = machine.library(runtime::HTP).is_some() && !machine.has_dsp();
    let manifest = case.bundle.as_ref().and_then(|bundle| bundle.manifest.as_ref());
    if emulator && manifest.is_some_and(|manifest| manifest.shared_weights) {
        found.add(&RULE, "manifest.json", "the binaries were compiled with shared weights");
    }
}
