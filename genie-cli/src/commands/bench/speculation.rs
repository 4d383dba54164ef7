//! `genie bench --spec-accept`: what drafts gain and cost, next to decoding without them.
//!
//! A first reply without drafts is the script; then the same reply is generated with drafts whose tokens are right with the wished
//! probabilities, by prompt lookup, and once more without. All ways take turns, so that a machine that changes its pace changes it for
//! all of them. The ratio is the median of the rounds' ratios.
//!
//! *Trap*: graphs of different widths round differently, and a model of random weights has many tokens that are nearly as likely as the
//! best. So all ways deliver the script's tokens, and where the most likely one is another, that is counted.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use engine::calibrate::median;
use open_genie::{
    LookupSettings, Prompt, Reply, SamplerCallback, SamplerSettings, Script, Session, Speculation, TokenId,
};
use serde::Serialize;

use super::measure::arbitrary_of;
use super::output::Output;
use super::record::{RunMetadata, Summary};
use crate::failure::UserError;

/// Seed of the replies that are drawn.
const SEED: u32 = 7;

/// What to measure.
pub struct Plan<'a> {
    /// Probabilities that a drafted token is right.
    pub accept: &'a [f64],
    /// Tokens of a reply.
    pub tokens: usize,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Most tokens of a draft.
    pub draft_len: usize,
    /// Measured rounds, after one to warm up.
    pub reps: usize,
}

/// A way to generate the reply.
struct Way {
    name: String,
    speculation: Speculation,
    /// Tokens are drawn, not the most likely ones: a text without repetitions.
    drawn: bool,
}

/// A result.
#[derive(Serialize)]
pub struct SpecRecord<'a> {
    /// Its name.
    pub test: String,
    /// Median, tokens/s behind the first token.
    pub tok_s: f64,
    /// Slowest run.
    pub min: f64,
    /// Fastest run.
    pub max: f64,
    /// Tokens/s of each run, in order.
    pub samples_ts: Vec<f64>,
    /// Median of the runs' rates, each over that of the run without drafts of the same round.
    pub of_basic: f64,
    /// Tokens of the reply.
    pub tokens: usize,
    /// Most tokens of a draft.
    pub draft_len: usize,
    /// Steps that processed a draft, in the last run.
    pub rounds: usize,
    /// Tokens of the last run that were not the most likely ones: the step's width made another one so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_best: Option<usize>,
    /// Tokens of all drafts.
    pub drafted: usize,
    /// Those that were accepted.
    pub accepted: usize,
    /// Measured runs.
    pub reps: usize,
    #[serde(flatten)]
    metadata: &'a RunMetadata,
}

/// Measures all ways in turns and prints a record for each.
pub fn run(plan: &Plan<'_>, session: &mut Session, metadata: &RunMetadata, out: &mut Output<'_>) -> Result<()> {
    let prompt = arbitrary_of(session.bundle().config().context().n_vocab, plan.prompt);
    let fits = session.admission().map_or(usize::MAX, |admission| admission.n_fit);
    if plan.prompt + plan.tokens > fits {
        let what = format!(
            "`--spec-accept` generates {} tokens behind {}: the context holds {fits}",
            plan.tokens, plan.prompt
        );
        return Err(UserError::error(what, "generate fewer with `--tg`"));
    }
    session.set_max_tokens(Some(plan.tokens));
    let mut script = |drawn| anyhow::Ok(reply(session, &way_without("basic", drawn), &prompt)?.tokens);
    let scripts: [Vec<TokenId>; 2] = [script(false)?, script(true)?];
    let ways = ways(plan, &scripts[0]);
    type Found = (Vec<f64>, Option<(Reply, usize)>);
    let mut found: Vec<Found> = ways.iter().map(|_| (Vec::new(), None)).collect();
    for round in 0..=plan.reps {
        for (way, (rates, last)) in ways.iter().zip(&mut found) {
            let script = &scripts[usize::from(way.drawn)];
            let other_best = Arc::new(AtomicUsize::new(0));
            session.set_max_tokens(Some(script.len()));
            session.set_sampler_callback(Some(forced(script.clone(), other_best.clone())));
            let reply = reply(session, way, &prompt)?;
            ensure!(reply.tokens == *script, "the reply of `{}` differs from the one without drafts", way.name);
            let rate = reply.kpis.generation_rate();
            let Some(rate) = rate else {
                let what = format!("the reply ends after {} tokens, which is too few to measure", reply.tokens.len());
                return Err(UserError::error(what, "use another model, or more tokens with `--tg`"));
            };
            if round > 0 {
                rates.push(rate);
            }
            *last = Some((reply, other_best.load(Ordering::Relaxed)));
        }
    }
    for (way, (rates, last)) in ways.iter().zip(&found) {
        let base = ways.iter().position(|other| other.drawn == way.drawn).unwrap_or_default();
        let ratios: Vec<f64> = rates.iter().zip(&found[base].0).map(|(rate, basic)| rate / basic).collect();
        let Summary { median: tok_s, min, max } = Summary::of(rates);
        let counts = last.as_ref().and_then(|(reply, _)| reply.kpis.speculation).unwrap_or_default();
        let tokens = last.as_ref().map_or(0, |(reply, _)| reply.tokens.len());
        let other_best = last.as_ref().map(|(_, n)| *n).filter(|_| !way.drawn);
        out.speculation(&SpecRecord {
            test: format!("tg{tokens}/{}", way.name),
            tok_s,
            min,
            max,
            samples_ts: rates.clone(),
            of_basic: median(&ratios),
            tokens,
            draft_len: plan.draft_len,
            rounds: counts.n_rounds,
            other_best,
            drafted: counts.n_drafted,
            accepted: counts.n_accepted,
            reps: plan.reps,
            metadata,
        })?;
    }
    Ok(())
}

/// Chooses the tokens of a script whatever the logits are, and counts those that are not the most likely ones.
fn forced(script: Vec<TokenId>, other_best: Arc<AtomicUsize>) -> SamplerCallback {
    let mut place = 0;
    SamplerCallback::new(move |logits| {
        let best = (1..logits.len()).fold(0, |best, id| if logits[id] > logits[best] { id } else { best });
        let best = TokenId(best as u32);
        let token = script.get(place).copied().unwrap_or(best);
        place += 1;
        other_best.fetch_add(usize::from(token != best), Ordering::Relaxed);
        token
    })
}

fn way_without(name: &str, drawn: bool) -> Way {
    Way { name: name.into(), speculation: Speculation::Off, drawn }
}

/// All ways; the first of each kind of text is the one without drafts.
fn ways(plan: &Plan<'_>, reply: &[TokenId]) -> Vec<Way> {
    let lookup = Speculation::Lookup(LookupSettings { draft_len: plan.draft_len, ..LookupSettings::default() });
    let mut ways = vec![way_without("basic", false)];
    ways.extend(plan.accept.iter().map(|accept| {
        let right_per_mille = (accept * 1_000.0).round() as u32;
        let script = Script { reply: reply.to_vec(), right_per_mille, draft_len: plan.draft_len };
        Way { name: format!("accept-{accept}"), speculation: Speculation::Script(script), drawn: false }
    }));
    ways.push(Way { name: "lookup".into(), speculation: lookup.clone(), drawn: false });
    ways.push(way_without("drawn-basic", true));
    ways.push(Way { name: "drawn-lookup".into(), speculation: lookup, drawn: true });
    ways
}

/// A reply from an empty cache.
fn reply(session: &mut Session, way: &Way, prompt: &[TokenId]) -> Result<Reply> {
    session.set_speculation(&way.speculation)?;
    session.set_sampler(match way.drawn {
        true => SamplerSettings::default().with_seed(Some(SEED)).with_temp(1.0)?.with_top_p(1.0)?,
        false => SamplerSettings::argmax(),
    });
    session.reset()?;
    Ok(session.generate_with(Prompt::Tokens(prompt), |_| ControlFlow::Continue(()))?)
}
