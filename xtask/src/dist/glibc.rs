//! The newest version of glibc's symbols that a program names: on an older one it does not start.

/// As `(2, 34)`; `None` where none is named.
pub fn newest(bytes: &[u8]) -> Option<(u32, u32)> {
    const BEFORE: &[u8] = b"GLIBC_";
    let at = bytes.windows(BEFORE.len()).enumerate().filter(|(_, window)| *window == BEFORE).map(|(at, _)| at);
    at.filter_map(|at| version(&bytes[at + BEFORE.len()..])).max()
}

fn version(bytes: &[u8]) -> Option<(u32, u32)> {
    let n = bytes.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
    let (major, rest) = std::str::from_utf8(&bytes[..n]).ok()?.split_once('.')?;
    let minor = rest.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_as_numbers() {
        assert_eq!(newest(b"\0GLIBC_2.4\0GLIBC_2.34\0GLIBC_2.17\0GLIBC_2.2.5\0"), Some((2, 34)));
        assert_eq!(newest(b"GLIBC_PRIVATE"), None);
        assert_eq!(newest(b"nothing"), None);
    }

    #[test]
    fn this_program_names_one() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(newest(&own).is_some_and(|version| version >= (2, 2)));
    }
}
