//! The alphabet of byte-level BPE: every byte is written as a printable character.
//!
//! Printable Latin-1 bytes stand for themselves; the other 68 bytes are the characters from U+0100 on, in order.

/// The bytes that a vocabulary entry stands for. An entry with a character outside the alphabet (an added token,
/// usually) stands for its own UTF-8.
pub(crate) fn bytes_of(entry: &str, out: &mut Vec<u8>) {
    out.clear();
    for c in entry.chars() {
        match byte_of(c) {
            Some(b) => out.push(b),
            None => {
                out.clear();
                out.extend_from_slice(entry.as_bytes());
                return;
            }
        }
    }
}

/// The character that stands for a byte.
pub(crate) fn char_of(byte: u8) -> char {
    match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        0x00..=0x20 => char::from_u32(0x100 + u32::from(byte)).unwrap_or_default(),
        0x7f..=0xa0 => char::from_u32(0x121 + u32::from(byte) - 0x7f).unwrap_or_default(),
        0xad => '\u{143}',
    }
}

fn byte_of(c: char) -> Option<u8> {
    let n = u32::from(c);
    match n {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => u8::try_from(n).ok(),
        // 0x00 to 0x20, then 0x7f to 0xa0, then 0xad.
        0x100..=0x120 => u8::try_from(n - 0x100).ok(),
        0x121..=0x142 => u8::try_from(n - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_character() {
        let mut bytes: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte_of).collect();
        assert_eq!(bytes.len(), 256);
        bytes.sort_unstable();
        bytes.dedup();
        assert_eq!(bytes.len(), 256);
        // The well-known ones: space, newline, no-break space, soft hyphen.
        let known = [('\u{120}', b' '), ('\u{10a}', b'\n'), ('\u{142}', 0xa0), ('\u{143}', 0xad), ('é', 0xe9)];
        for (c, b) in known {
            assert_eq!(byte_of(c), Some(b), "{c}");
        }
        assert_eq!(byte_of(' '), None);
        assert!((0..=u8::MAX).all(|byte| byte_of(char_of(byte)) == Some(byte)));
    }
}
