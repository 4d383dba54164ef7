//! Numbers of flags: a message that says the range, for every type.

use std::ops::RangeInclusive;

/// A number of tokens, runs or windows.
pub fn count(text: &str) -> Result<usize, String> {
    within(text, 0..=MOST)
}

/// A number of at least 1.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    within(text, 1..=MOST)
}

/// A number of at least 2.
pub fn at_least_two(text: &str) -> Result<usize, String> {
    within(text, 2..=MOST)
}

/// A number that is kept in 32 bits.
pub fn count_u32(text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| format!("expected a whole number from 0 to {}", u32::MAX))
}

/// A number of tokens, or `None` for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub Option<usize>);

/// A number of tokens; -1 is no limit.
pub fn limit(text: &str) -> Result<Limit, String> {
    if text.trim() == "-1" {
        return Ok(Limit(None));
    }
    within(text, 0..=MOST).map(|n| Limit(Some(n))).map_err(|why| why + ", or -1")
}

/// A number of MiB.
pub fn mebibytes(text: &str) -> Result<u64, String> {
    let most = u64::MAX >> 20;
    let found = text.trim().parse().ok().filter(|n| *n <= most);
    found.ok_or_else(|| format!("expected a whole number from 0 to {most}"))
}

/// Seconds of the longest time that a flag takes: a year.
const YEAR: usize = 365 * 24 * 3_600;

/// A number of seconds.
pub fn seconds(text: &str) -> Result<u64, String> {
    within(text, 0..=YEAR).map(|n| n as u64)
}

/// A number of seconds, at least 1.
pub fn some_seconds(text: &str) -> Result<u64, String> {
    within(text, 1..=YEAR).map(|n| n as u64)
}

/// Requests that have rows in the cache at once: it has 64 sequences.
pub fn slots(text: &str) -> Result<usize, String> {
    within(text, 1..=64)
}

/// Requests in a second.
pub fn rate(text: &str) -> Result<f64, String> {
    let found = text.trim().parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    found.ok_or_else(|| "expected requests in a second, above 0, such as 0.5".into())
}

/// A seed of random numbers.
pub fn seed(text: &str) -> Result<i32, String> {
    text.trim().parse().map_err(|_| format!("expected a whole number from {} to {}", i32::MIN, i32::MAX))
}

/// A number with a fraction; who uses it says its range.
pub fn real(text: &str) -> Result<f32, String> {
    text.trim().parse().map_err(|_| "expected a number such as 0.5".into())
}

/// A probability.
pub fn probability(text: &str) -> Result<f64, String> {
    let found = text.trim().parse().ok().filter(|p| (0.0..=1.0).contains(p));
    found.ok_or_else(|| "expected a number from 0 to 1".into())
}

/// Most of a number that has no other bound.
const MOST: usize = i32::MAX as usize;

fn within(text: &str, range: RangeInclusive<usize>) -> Result<usize, String> {
    let found = text.trim().parse().ok().filter(|n| range.contains(n));
    found.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minus_one_is_no_limit() {
        assert_eq!((limit("-1"), limit(" 7")), (Ok(Limit(None)), Ok(Limit(Some(7)))));
        assert_eq!(limit("-2").unwrap_err(), "expected a whole number from 0 to 2147483647, or -1");
    }

    #[test]
    fn ranges_are_said() {
        assert_eq!((count("0"), at_least_one("7"), count_u32("4294967295")), (Ok(0), Ok(7), Ok(u32::MAX)));
        for text in ["-1", "x", "1.5", "", "99999999999999999999999"] {
            assert_eq!(count(text).unwrap_err(), "expected a whole number from 0 to 2147483647");
            assert_eq!(at_least_one(text).unwrap_err(), "expected a whole number from 1 to 2147483647");
            assert_eq!(count_u32(text).unwrap_err(), "expected a whole number from 0 to 4294967295");
            assert_eq!(mebibytes(text).unwrap_err(), "expected a whole number from 0 to 17592186044415");
        }
        assert_eq!((seed("-1"), real(" 1.5"), mebibytes("17592186044415")), (Ok(-1), Ok(1.5), Ok((1 << 44) - 1)));
        assert!(mebibytes("17592186044416").is_err(), "its bytes must fit");
        assert_eq!(
            (seconds("0"), some_seconds("31536000"), slots("64"), rate("0.5")),
            (Ok(0), Ok(31_536_000), Ok(64), Ok(0.5))
        );
        assert!(seconds("18446744073709551615").is_err() && some_seconds("0").is_err() && slots("65").is_err());
        assert!(slots("0").is_err() && ["0", "nan", "inf", "-1", "x"].iter().all(|text| rate(text).is_err()));
        assert_eq!((probability("0"), probability(" 0.8"), probability("1.1").is_err()), (Ok(0.0), Ok(0.8), true));
        for text in ["x", "", "1,5", "0x10"] {
            assert_eq!(seed(text).unwrap_err(), "expected a whole number from -2147483648 to 2147483647");
            assert_eq!(real(text).unwrap_err(), "expected a number such as 0.5");
            assert_eq!(probability(text).unwrap_err(), "expected a number from 0 to 1");
        }
    }
}
