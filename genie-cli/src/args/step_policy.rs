//! How a scheduler fills steps, by name: `--step-policy` of `genie serve` and `--policies` of `genie bench --serve`.

use open_genie::serving::Policy;

/// The policy of that name; the error lists all names.
pub fn step_policy(text: &str) -> Result<Policy, String> {
    let names = || Policy::ALL.map(Policy::name).join(", ");
    Policy::by_name(text).ok_or_else(|| format!("expected one of {}", names()))
}
