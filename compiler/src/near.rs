//! Similar names, for messages about one that is missing.

/// Names that an error message offers.
const N_OFFERED: usize = 3;

/// The closest names by edit distance, best first; none that needs more than a third of `wanted` changed.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let limit = wanted.len() / 3;
    let scored = names.map(|name| (strsim::levenshtein(wanted, name), name));
    let mut scored: Vec<_> = scored.filter(|(distance, _)| *distance <= limit).collect();
    scored.sort_unstable();
    scored.into_iter().take(N_OFFERED).map(|(_, name)| name.into()).collect()
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
    }
}
