//! `genie verify`: compares generation with the KV cache against full recomputation.
//!
//! For each prompt length the model generates greedily with its cache. Then, for each generated token, all tokens before it
//! are run again with an empty cache, and the two rows of logits and their most likely tokens are compared.

use std::path::PathBuf;

use anyhow::Result;
use engine::{Engine, TokenModel};
use genie_types::{Dtype, TokenId};
use serde::Serialize;

use crate::args::{BackendArgs, PolicyArg, SocArgs};
use crate::exit::ExitStatus;
use crate::failure::UserError;
use crate::printer::Printer;
use crate::threads::Threads;
use crate::{backend, bundle};

/// Flags of `genie verify`.
#[derive(clap::Args)]
pub struct Args {
    /// The bundle's folder or its `genie_config.json`.
    pub bundle: PathBuf,
    /// Tokens to generate per prompt length.
    #[arg(long, short = 'n', default_value_t = 200)]
    pub tokens: usize,
    /// Prompt lengths, in tokens [default: 1, AR-1, AR, AR+1, 2*AR+3, N-20, N-1 and N, for the largest AR and the
    /// context size N].
    #[arg(long, value_delimiter = ',', value_name = "N,N")]
    pub lengths: Option<Vec<usize>>,
    /// Largest allowed difference of logits, relative to the row's largest logit [default: 1e-4 for float32 graphs, else
    /// 2e-2].
    #[arg(long)]
    pub tolerance: Option<f32>,
    /// Print one JSON line per prompt length.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub backend: BackendArgs,
    #[command(flatten)]
    pub soc: SocArgs,
    /// Planner policy.
    #[arg(long, value_enum, default_value_t)]
    pub policy: PolicyArg,
}

/// The result of one prompt length.
#[derive(Serialize)]
struct Outcome {
    prompt_tokens: usize,
    generated: usize,
    /// Tokens that differ although the recomputed logits differ by more than the tolerance.
    wrong_tokens: usize,
    /// Tokens that differ where the recomputed logits are equal within the tolerance: no error.
    ties: usize,
    /// Largest difference of two logits, relative to the row's largest logit.
    max_relative_difference: f32,
    executed: Vec<(String, usize)>,
    ok: bool,
}

/// Checks each prompt length; the status is `Failed` if one differs.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    let config = bundle::config(&args.bundle, printer)?;
    let active = backend::start(&args.backend, &args.soc, config.backend(), &Threads::default())?;
    let mut engine = bundle::engine(config.engine(), &active.backend, args.policy)?;
    let tolerance = args.tolerance.unwrap_or_else(|| tolerance(&engine));
    let lengths = match &args.lengths {
        Some(lengths) => lengths.clone(),
        None => lengths(&engine),
    };
    let limit = engine.context_size();
    if let Some(&length) = lengths.iter().find(|&&n| n == 0 || n > limit) {
        return Err(UserError::error(
            format!("a prompt of {length} tokens cannot be verified"),
            format!("choose lengths from 1 to {limit} tokens, the context size"),
        ));
    }
    let mut all_ok = true;
    for length in lengths {
        let outcome = verify(&mut engine, length, args.tokens, tolerance, printer)?;
        all_ok &= outcome.ok;
        if args.json {
            printer.data_line(serde_json::to_string(&outcome)?)?;
        } else {
            printer.data_line(format_args!(
                "prompt {:>5}: {} of {} tokens equal, {} ties, logits within {:.1e} of {tolerance:.0e}{}",
                outcome.prompt_tokens,
                outcome.generated - outcome.wrong_tokens - outcome.ties,
                outcome.generated,
                outcome.ties,
                outcome.max_relative_difference,
                if outcome.ok { "" } else { "  <- differs" },
            ))?;
        }
    }
    if !all_ok {
        printer.info("generation with the cache and full recomputation differ: the cache or a graph is wrong");
    }
    Ok(if all_ok { ExitStatus::Done } else { ExitStatus::Failed })
}

/// Larger than rounding errors, much smaller than the effect of a wrong cache row.
fn tolerance(engine: &Engine) -> f32 {
    let is_f32 = engine
        .layout()
        .splits
        .iter()
        .flat_map(|s| &s.graphs)
        .flat_map(|g| &g.info.outputs)
        .all(|t| t.dtype == Dtype::F32);
    if is_f32 { 1e-4 } else { 2e-2 }
}

/// The edges of chunks of the largest AR that fit, then the longest prompts.
fn lengths(engine: &Engine) -> Vec<usize> {
    let limit = engine.context_size();
    let ar = engine.layout().variants.iter().map(|v| v.ar().get()).max().unwrap_or(1);
    let mut lengths = vec![1, ar.saturating_sub(1), ar, ar + 1, 2 * ar + 3, limit - limit.min(20), limit - 1, limit];
    lengths.retain(|&n| n > 0 && n <= limit);
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

fn verify(engine: &mut Engine, length: usize, n: usize, tolerance: f32, printer: &Printer) -> Result<Outcome> {
    let mut tokens = pseudo_random(length, engine.vocab_size());
    // The prompt's logits give one token; each further token takes one cell of the context.
    let n = n.min(engine.context_size() - length + 1);
    let bar = printer.bar(n as u64, &format!("prompt {length}"), false);
    engine.reset()?;
    engine.clear_steps();
    let mut cached = vec![engine.process(&tokens)?.to_vec()];
    while cached.len() < n {
        let token = argmax(&cached[cached.len() - 1]);
        tokens.push(token);
        cached.push(engine.process(&[token])?.to_vec());
    }
    let executed = engine.steps().runs().into_iter().map(|(g, n)| (g.to_owned(), n)).collect();

    let mut outcome = Outcome {
        prompt_tokens: length,
        generated: n,
        wrong_tokens: 0,
        ties: 0,
        max_relative_difference: 0.0,
        executed,
        ok: true,
    };
    for (i, row) in cached.iter().enumerate() {
        let whole = engine.recompute(&tokens[..length + i])?;
        let largest = whole.iter().fold(f32::MIN_POSITIVE, |m, x| m.max(x.abs()));
        let difference = row.iter().zip(whole).fold(0.0f32, |m, (a, b)| m.max((a - b).abs())) / largest;
        outcome.max_relative_difference = outcome.max_relative_difference.max(difference);
        let (ours, theirs) = (argmax(row), argmax(whole));
        if ours != theirs {
            let margin = (whole[theirs.0 as usize] - whole[ours.0 as usize]) / largest;
            if margin <= tolerance {
                outcome.ties += 1;
            } else {
                outcome.wrong_tokens += 1;
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    outcome.ok = outcome.wrong_tokens == 0 && outcome.max_relative_difference <= tolerance;
    Ok(outcome)
}

/// A pseudo-random prompt, the same in each run.
fn pseudo_random(length: usize, vocab: usize) -> Vec<TokenId> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        TokenId((state % vocab as u64) as u32)
    };
    (0..length).map(|_| next()).collect()
}

/// The most likely token; the lowest id if several are.
fn argmax(logits: &[f32]) -> TokenId {
    let mut best = 0;
    for (i, x) in logits.iter().enumerate() {
        if *x > logits[best] {
            best = i;
        }
    }
    TokenId(best as u32)
}
