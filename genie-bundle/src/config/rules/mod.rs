//! Rules between keys, which no table can express. Each adds all problems that it finds.

mod dialog;
mod engine;
mod htp;
mod model;

pub(super) use htp::parse_mask;

use super::node::Node;
use super::problem::Problem;

/// Runs every rule over a whole document.
pub(super) fn check(root: &Node<'_>, problems: &mut Vec<Problem>) {
    if let Some(d) = root.get("dialog") {
        dialog::check(&d, problems);
        for e in d.get("engine").map_or(Vec::new(), |e| e.one_or_many()) {
            engine::check(&e, problems);
            htp::check(&e, problems);
            model::check(&e, problems);
        }
    }
}
