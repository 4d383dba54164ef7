//! How many tokens go through the model for a reply, with a cache and without one.
//!
//! Step `i` of `T` without a cache takes the prompt of `n` tokens and `i` generated ones: `n*T + T(T+1)/2` together.

/// Tokens processed without a cache, as textbooks count them: each step takes the prompt and all tokens so far, the new one included.
pub const fn without_cache(prompt: u64, generated: u64) -> u64 {
    prompt * generated + generated * (generated + 1) / 2
}

/// Tokens that graphs without a cache must take: the token that a step gives is taken by the next step only.
pub const fn needed_without_cache(prompt: u64, generated: u64) -> u64 {
    prompt * generated + generated * generated.saturating_sub(1) / 2
}

/// Tokens that graphs with a cache must take: the prompt once, then each generated token but the last.
pub const fn needed_with_cache(prompt: u64, generated: u64) -> u64 {
    if generated == 0 { 0 } else { prompt + generated - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notebooks_example() {
        assert_eq!(without_cache(512, 256), 163_968);
        // The first exercise of docs/kv-cache-explained.md.
        assert_eq!(without_cache(10, 5), 65);
    }

    #[test]
    fn sums_are_those_of_the_steps() {
        for (n, t) in [(1, 1), (5, 3), (512, 256), (1, 100)] {
            assert_eq!(without_cache(n, t), (1..=t).map(|i| n + i).sum::<u64>());
            assert_eq!(needed_without_cache(n, t), (0..t).map(|i| n + i).sum::<u64>());
            assert_eq!(needed_with_cache(n, t), n + t - 1);
        }
        assert_eq!((needed_without_cache(9, 0), needed_with_cache(9, 0)), (0, 0));
    }
}
