//! The tests of a run, and how each is timed.

use std::fmt;
use std::time::Instant;

use anyhow::Result;
use engine::TokenModel;
use genie_types::TokenId;

use super::Args;
use crate::failure::UserError;

/// A test to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// A prompt of that length into an empty cache.
    Prefill(usize),
    /// Tokens, one by one.
    Decode {
        /// Tokens to decode.
        n: usize,
        /// Tokens in the cache before the first of them.
        fill: usize,
    },
}

impl Test {
    /// Tokens that are timed.
    pub fn tokens(&self) -> usize {
        match *self {
            Self::Prefill(n) | Self::Decode { n, .. } => n,
        }
    }
}

/// `pp128`, `tg64`, `tg64@4000`.
impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefill(n) => write!(f, "pp{n}"),
            Self::Decode { n, fill: 0 } => write!(f, "tg{n}"),
            Self::Decode { n, fill } => write!(f, "tg{n}@{fill}"),
        }
    }
}

/// The tests that the flags select, in their order; an error if one cannot run.
pub fn tests(args: &Args, limit: usize) -> Result<Vec<Test>> {
    let fits = |flag: &str, n: usize| {
        if 0 < n && n <= limit {
            return Ok(());
        }
        let what = format!("`--{flag} {n}` cannot be measured: the context holds {limit} tokens");
        Err(UserError::error(what, format!("choose 1 to {limit} tokens")))
    };
    let mut tests = Vec::new();
    for &n in &args.pp {
        fits("pp", n)?;
        tests.push(Test::Prefill(n));
    }
    for &n in &args.tg {
        fits("tg", n)?;
        for &fill in &args.fill {
            if fill + n > limit {
                let what = format!("`--fill {fill}` leaves no room for `--tg {n}`: the context holds {limit} tokens");
                return Err(UserError::error(
                    what,
                    format!("use a fill of at most {}, or decode fewer tokens", limit - n),
                ));
            }
            tests.push(Test::Decode { n, fill });
        }
    }
    Ok(tests)
}

/// Empties the cache and fills it as the test wants it: all that takes long before [`run`].
pub fn prepare(test: &Test, engine: &mut dyn TokenModel) -> Result<()> {
    engine.reset()?;
    let tokens = arbitrary_of(engine.vocab_size(), engine.context_size());
    ready(test, engine, &tokens).map(drop)
}

/// Runs a prepared test once to warm up, then `reps` times; the seconds of each.
pub fn run(test: &Test, engine: &mut dyn TokenModel, reps: usize) -> Result<Vec<f64>> {
    let tokens = arbitrary_of(engine.vocab_size(), engine.context_size());
    let mut seconds = Vec::with_capacity(reps);
    for run in 0..=reps {
        let steps = ready(test, engine, &tokens)?;
        let began = Instant::now();
        for step in steps {
            engine.process(step)?;
        }
        if run > 0 {
            seconds.push(began.elapsed().as_secs_f64());
        }
    }
    Ok(seconds)
}

/// Brings the cache to the test's start; returns the chunks to process: a whole prompt, or each token.
pub fn ready<'t>(
    test: &Test,
    engine: &mut dyn TokenModel,
    tokens: &'t [TokenId],
) -> Result<std::slice::Chunks<'t, TokenId>> {
    match *test {
        Test::Prefill(n) => {
            engine.reset()?;
            Ok(tokens[..n].chunks(n))
        }
        Test::Decode { n, fill } => {
            // The fill stays in the cache from run to run.
            engine.rewind(fill.min(engine.n_past()))?;
            fill_up(engine, &tokens[..fill])?;
            Ok(tokens[fill..fill + n].chunks(1))
        }
    }
}

/// Processes what the cache lacks of `tokens`, the last one alone: the switch to the variant for single tokens then happens
/// before timing starts.
fn fill_up(engine: &mut dyn TokenModel, tokens: &[TokenId]) -> Result<()> {
    if engine.n_past() >= tokens.len() {
        return Ok(());
    }
    let (last, first) = tokens[engine.n_past()..].split_last().expect("the cache holds fewer tokens than wanted");
    if !first.is_empty() {
        engine.prefill(first)?;
    }
    engine.process(std::slice::from_ref(last))?;
    Ok(())
}

/// Arbitrary tokens of a vocabulary.
pub fn arbitrary_of(vocab: usize, n: usize) -> Vec<TokenId> {
    (0..n as u32).map(|i| TokenId((i * 31 + 7) % vocab.max(1) as u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::Test;

    #[test]
    fn names_say_tokens_and_fill() {
        let tests = [Test::Prefill(128), Test::Decode { n: 64, fill: 0 }, Test::Decode { n: 64, fill: 4000 }];
        assert_eq!(tests.map(|t| t.to_string()), ["pp128", "tg64", "tg64@4000"]);
    }
}
