//! Names that look like the one that was asked for, for error messages.

use crate::error::Near;

/// At most three of `candidates`, nearest first, none further than a third of the wanted name's length.
pub(crate) fn near<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Near {
    let limit = (wanted.len() / 3).max(2);
    let mut ranked: Vec<(usize, &str)> = candidates
        .into_iter()
        .filter(|c| !c.is_empty())
        .map(|c| (if c.contains(wanted) || wanted.contains(c) { 1 } else { distance(wanted, c) }, c))
        .filter(|(d, _)| *d <= limit)
        .collect();
    ranked.sort_unstable();
    ranked.dedup();
    Near(ranked.into_iter().take(3).map(|(_, c)| c.into()).collect())
}

/// Levenshtein's distance in bytes.
fn distance(a: &str, b: &str) -> usize {
    let b = b.as_bytes();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let next = (diagonal + usize::from(x != *y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], next);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, want) in [("", "", 0), ("abc", "", 3), ("kitten", "sitting", 3), ("logits", "logit", 1)] {
            assert_eq!(distance(a, b), want, "{a} {b}");
            assert_eq!(distance(b, a), want, "{b} {a}");
        }
    }

    #[test]
    fn nearest_first_and_nothing_far() {
        let found = near("logits", ["hidden", "logit", "output_logits", "lgits"]);
        assert_eq!(found.to_string(), " (near names: `lgits`, `logit`, `output_logits`)");
        assert_eq!(near("logits", ["past_key_0_out"]).to_string(), "");
    }
}
