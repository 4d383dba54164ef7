//! Suggests what the writer of a config meant.

use super::schema::{Block, Type};

/// The likeliest meaning of a key that a block does not know: a misspelling, or a key of another block.
pub(super) fn for_unknown_key(name: &str, block: &Block, root: &Block) -> Option<String> {
    // snake_case is the commonest slip, and may be too far for the edit distance.
    let dashed = name.replace('_', "-");
    if block.keys.iter().any(|k| k.name == dashed) {
        return Some(format!("did you mean `{dashed}`?"));
    }
    if let Some(hint) = place_of_other(|known| known == dashed, block, root) {
        return Some(hint);
    }
    if let Some(near) = nearest(name, block.keys.iter().map(|k| k.name)) {
        return Some(format!("did you mean `{near}`?"));
    }
    let near = nearest(&dashed, OTHER_NAMES.iter().map(|(other, _)| *other));
    place_of_other(|known| Some(known) == near, block, root)
        .or_else(|| place_of(&dashed, root, "").map(|at| format!("`{dashed}` belongs in `{at}`")))
}

/// Names that other programs have for a key of Genie's, with that key.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("temperature", "temp"),
    ("repeat-penalty", "repetition-penalty"),
    ("repeat-last-n", "penalize-last-n"),
    ("stop", "stop-sequence"),
    ("stop-words", "stop-sequence"),
    ("stop-strings", "stop-sequence"),
    ("max-tokens", "max-num-tokens"),
    ("max-new-tokens", "max-num-tokens"),
    ("n-predict", "max-num-tokens"),
    ("num-threads", "n-threads"),
    ("threads", "n-threads"),
    ("vocab-size", "n-vocab"),
    ("hidden-size", "n-embd"),
    ("head-dim", "kv-dim"),
    ("bos-token-id", "bos-token"),
    ("eos-token-id", "eos-token"),
    ("pad-token-id", "pad-token"),
];

/// Genie's key for a name of another program, and where it belongs if that is not this block.
fn place_of_other(is_it: impl Fn(&str) -> bool, block: &Block, root: &Block) -> Option<String> {
    let (_, ours) = OTHER_NAMES.iter().find(|(other, _)| is_it(other))?;
    if block.keys.iter().any(|k| k.name == *ours) {
        return Some(format!("did you mean `{ours}`?"));
    }
    place_of(ours, root, "").map(|at| format!("did you mean `{ours}` in `{at}`?"))
}

/// The candidate with the fewest edits, if they are few for a word of this length.
pub(super) fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    candidates
        .filter(|c| !c.is_empty())
        .map(|c| (strsim::levenshtein(&word.to_lowercase(), &c.to_lowercase()), c))
        .filter(|(n, _)| *n <= limit)
        .min_by_key(|(n, _)| *n)
        .map(|(_, c)| c)
}

/// Pointer of the first block, depth first, that has the key. Short common words do not point to a block.
fn place_of(name: &str, block: &Block, pointer: &str) -> Option<String> {
    if matches!(name, "version" | "type" | "path" | "name" | "prefix" | "size") {
        return None;
    }
    for key in block.keys {
        if key.name == name {
            return Some(if pointer.is_empty() { "/".into() } else { pointer.into() });
        }
        if let Some(inner) = block_of(&key.ty)
            && let Some(found) = place_of(name, inner, &format!("{pointer}/{}", key.name))
        {
            return Some(found);
        }
    }
    None
}

fn block_of(ty: &Type) -> Option<&'static Block> {
    match ty {
        Type::Block(b) | Type::Tagged(_, b) => Some(b),
        Type::List(item, _) => block_of(item),
        Type::Either(types) => types.iter().find_map(block_of),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_words_are_no_hint() {
        assert_eq!(nearest("temperature", ["temp", "seed"].into_iter()), None);
        assert_eq!(nearest("sed", ["temp", "seed"].into_iter()), Some("seed"));
    }
}
