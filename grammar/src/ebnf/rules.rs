//! What can be said of rules from their shape: which ones have texts that end, and which ones are regular.

use super::syntax::{Node, Rules};
use crate::{GrammarError, GrammarKind};

/// Longest chain of rules that is written as one regular expression.
const DEEPEST_REGULAR: usize = 200;

/// Refuses a grammar whose texts never end.
pub(super) fn check_ends(rules: &Rules) -> Result<(), GrammarError> {
    let mut ends = vec![false; rules.bodies.len()];
    loop {
        let mut changed = false;
        for (number, body) in rules.bodies.iter().enumerate() {
            if !ends[number] && has_end(body, &ends) {
                (ends[number], changed) = (true, true);
            }
        }
        if !changed {
            break;
        }
    }
    if ends[rules.root] {
        return Ok(());
    }
    let message = format!("no text of the rule `{}` ever ends", rules.names[rules.root]);
    Err(GrammarError::Unusable { kind: GrammarKind::Ebnf, message })
}

fn has_end(node: &Node, ends: &[bool]) -> bool {
    match node {
        Node::Text(_) | Node::Class(_) => true,
        Node::Rule(number) => ends[*number],
        Node::Sequence(all) => all.iter().all(|node| has_end(node, ends)),
        Node::Choice(all) => all.iter().any(|node| has_end(node, ends)),
        Node::Repeat { of, min, .. } => *min == 0 || has_end(of, ends),
    }
}

/// Whether the start needs no rule that names itself, so that all of it is one regular expression.
pub(super) fn is_regular(rules: &Rules) -> bool {
    // The length of the longest chain of rules below each one, once it is known.
    let mut below: Vec<Option<usize>> = vec![None; rules.bodies.len()];
    loop {
        let mut changed = false;
        for (number, body) in rules.bodies.iter().enumerate() {
            if below[number].is_none() {
                below[number] = chain(body, &below);
                changed |= below[number].is_some();
            }
        }
        if !changed {
            return below[rules.root].is_some_and(|n| n <= DEEPEST_REGULAR);
        }
    }
}

fn chain(node: &Node, below: &[Option<usize>]) -> Option<usize> {
    let longest = |all: &[Node]| all.iter().try_fold(0, |most, node| Some(chain(node, below)?.max(most)));
    match node {
        Node::Text(_) | Node::Class(_) => Some(0),
        Node::Rule(number) => Some(below[*number]? + 1),
        Node::Sequence(all) | Node::Choice(all) => Some(longest(all)? + 1),
        Node::Repeat { of, .. } => Some(chain(of, below)? + 1),
    }
}
