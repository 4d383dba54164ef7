//! SentencePiece's precompiled character map: a trie over bytes, and the texts that replace what it finds.
//!
//! ```text
//! | trie bytes u32 | units u32 ... | texts, each ended by 0 |
//! ```
//!
//! A unit tells its label (low 8 bits), whether a value follows (bit 8), and the offset of its children (bits 10 up, times
//! 256 with bit 9). The library follows the units without looking whether they stay inside; here every one that can be
//! reached is followed once.
//! *Source*: SentencePiece's normalizer and the Darts-clone double array; the library's `common_prefix_search`.

use crate::error::Fault;

const HAS_VALUE: u32 = 1 << 8;
const VALUE: u32 = (1 << 31) - 1;

fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize
}

/// Checks the map; returns how many bytes one byte may become.
pub(crate) fn check(encoded: &str, at: &str) -> Result<usize, Fault> {
    let bad = |found: String, expected: &str| Fault::value(at, found, expected);
    // The version that the library decodes with: it takes what this takes.
    let bytes = base64::decode(encoded).map_err(|e| bad(format!("no base64 ({e})"), "a base64 text"))?;
    let Some((head, rest)) = bytes.split_first_chunk::<4>() else {
        return Err(bad(format!("a map of {} bytes", bytes.len()), "at least a trie's length, 4 bytes"));
    };
    let trie_bytes = u32::from_le_bytes(*head) as usize;
    if trie_bytes > rest.len() || trie_bytes < 4 {
        let found = format!("a trie of {trie_bytes} bytes in a map of {}", bytes.len());
        return Err(bad(found, "a trie that lies inside the map"));
    }
    let (trie, texts) = rest.split_at(trie_bytes / 4 * 4);
    let units: Vec<u32> = trie.as_chunks::<4>().0.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
    let texts = std::str::from_utf8(texts).map_err(|_| bad("texts that are no UTF-8".into(), "UTF-8"))?;
    walk(&units, texts, at)
}

/// Follows every unit that some text can reach.
fn walk(units: &[u32], texts: &str, at: &str) -> Result<usize, Fault> {
    let outside = |node: usize| {
        let found = format!("a trie that goes to unit {node} of {}", units.len());
        Fault::value(at, found, "a trie that stays inside")
    };
    let mut seen = vec![false; units.len()];
    let mut open = vec![offset(units[0])];
    let mut longest = 1;
    while let Some(base) = open.pop() {
        // Any byte may come next, and the library reads the unit before it compares the label.
        let last = base | 0xff;
        if last >= units.len() {
            return Err(outside(last));
        }
        if std::mem::replace(&mut seen[base], true) {
            continue;
        }
        for byte in 1..=0xff_u32 {
            let node = base ^ byte as usize;
            let unit = units[node];
            if unit & ((1 << 31) | 0xff) != byte {
                continue;
            }
            let next = node ^ offset(unit);
            if unit & HAS_VALUE != 0 {
                let leaf = *units.get(next).ok_or_else(|| outside(next))?;
                longest = longest.max(text_length(texts, (leaf & VALUE) as usize, at)?);
            }
            open.push(next);
        }
    }
    Ok(longest)
}

/// Bytes of the text that begins there.
fn text_length(texts: &str, start: usize, at: &str) -> Result<usize, Fault> {
    let Some(text) = texts.get(start..) else {
        let found = format!("a text that begins at byte {start} of {}", texts.len());
        return Err(Fault::value(at, found, "the start of a character inside the texts"));
    };
    Ok(text.bytes().position(|b| b == 0).unwrap_or(text.len()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A map with one rule, `A` becomes `text`.
    pub(crate) fn one_rule(text: &str) -> Vec<u8> {
        let mut units = vec![0_u32; 512];
        // The root's children start at 0 ^ 256.
        units[0] = 256 << 10;
        let node = 256 ^ b'A' as usize;
        // Its children start at `node ^ 1`, which is below 512 like all of its block; the value stands there.
        units[node] = u32::from(b'A') | HAS_VALUE | (1 << 10);
        units[node ^ 1] = 0;
        let mut map = (units.len() as u32 * 4).to_le_bytes().to_vec();
        units.iter().for_each(|unit| map.extend_from_slice(&unit.to_le_bytes()));
        map.extend_from_slice(text.as_bytes());
        map.push(0);
        map
    }

    fn message(map: &[u8]) -> String {
        check(&base64::encode(map), "/n").map_or_else(|e| e.to_string(), |n| n.to_string())
    }

    #[test]
    fn a_whole_map_is_taken_and_one_that_lies_is_not() {
        assert_eq!(message(&one_rule("xyz")), "3");
        let short = [255, 255, 255, 255, 1, 2, 3, 4, 0, 0, 0, 0];
        assert_eq!(
            message(&short),
            "`/n`: found a trie of 4294967295 bytes in a map of 12, expected a trie that lies inside the map"
        );
        assert_eq!(message(&[1, 2]), "`/n`: found a map of 2 bytes, expected at least a trie's length, 4 bytes");
        assert_eq!(
            message(&[0, 0, 0, 0]),
            "`/n`: found a trie of 0 bytes in a map of 4, expected a trie that lies inside the map"
        );
        let mut cut = one_rule("xyz");
        cut[0..4].copy_from_slice(&(300_u32 * 4).to_le_bytes());
        assert!(
            message(&cut).contains("goes to unit 511 of 300") || message(&cut).contains("no UTF-8"),
            "{}",
            message(&cut)
        );
        let mut far = one_rule("é");
        let node = 4 + 4 * (256 ^ b'A' as usize ^ 1);
        far[node..node + 4].copy_from_slice(&1_u32.to_le_bytes());
        assert!(message(&far).contains("begins at byte 1 of 3"), "{}", message(&far));
        far[node..node + 4].copy_from_slice(&9_u32.to_le_bytes());
        assert!(message(&far).contains("begins at byte 9 of 3"), "{}", message(&far));
        assert!(check("no base64!", "/n").is_err());
    }
}
