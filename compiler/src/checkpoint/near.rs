//! Names that look like a name that is not there.

/// How many names a message offers.
const OFFERED: usize = 3;

/// The closest names by edit distance, best first; none that needs more than a third of `wanted` changed.
pub(super) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let limit = wanted.len() / 3;
    let mut scored: Vec<(usize, &str)> =
        names.map(|name| (distance(wanted.as_bytes(), name.as_bytes()), name)).filter(|(d, _)| *d <= limit).collect();
    scored.sort_unstable();
    scored.into_iter().take(OFFERED).map(|(_, name)| name.to_string()).collect()
}

/// Insertions, deletions and replacements that turn `a` into `b`.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_names_come_first() {
        let names = ["model.norm.weight", "model.embed_tokens.weight", "embed_tokens.weight", "lm_head.weight"];
        assert_eq!(nearest("lm_heads.weight", names.into_iter()), ["lm_head.weight"]);
        assert_eq!(
            nearest("model.embed_token.weight", names.into_iter()),
            ["model.embed_tokens.weight", "embed_tokens.weight"]
        );
        assert!(nearest("visual.patch", names.into_iter()).is_empty());
        assert_eq!(distance(b"kitten", b"sitting"), 3);
    }
}
