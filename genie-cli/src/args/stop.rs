//! `--max-tokens`, `--stop`, `--ignore-eos`: when a reply ends.

use anyhow::Result;
use open_genie::{SamplerSettings, Session, TokenId};

use super::number::{self, Limit};

/// Tokens of a reply, if no flag and no config says how many.
const MAX_TOKENS: usize = 512;

/// What ends a reply beside the model.
#[derive(clap::Args, Default, Clone)]
#[command(next_help_heading = "Length of the reply")]
pub struct StopArgs {
    /// Largest number of tokens to generate; -1 generates until the context is full [default: the config's, else 512; 200 for the
    /// demo; with `--save` at most half of what the context still holds, so that a next turn fits].
    #[arg(long, short = 'n', visible_alias = "n-predict", aliases = ["predict", "num-predict"], value_name = "TOKENS", allow_negative_numbers = true, value_parser = number::limit)]
    pub max_tokens: Option<Limit>,
    /// End the reply at this text, beside those of the config. Repeat the flag for several.
    #[arg(long, visible_alias = "reverse-prompt", value_name = "TEXT", allow_hyphen_values = true, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub stop: Vec<String>,
    /// Go on where the model would end: the tokens that end a reply are never drawn.
    #[arg(long)]
    pub ignore_eos: bool,
}

impl StopArgs {
    /// Sets what ends replies of a session. `fallback`: the number of tokens where neither a flag nor the config has one.
    pub fn apply(&self, session: &mut Session, fallback: Option<usize>) -> Result<()> {
        match self.max_tokens {
            Some(Limit(limit)) => session.set_max_tokens(limit),
            None if session.bundle().config().max_num_tokens().is_none() => {
                session.set_max_tokens(Some(fallback.unwrap_or(MAX_TOKENS)));
            }
            None => {}
        }
        if !self.stop.is_empty() {
            let mut sequences = session.bundle().config().stop_sequences().to_vec();
            sequences.extend(self.stop.iter().cloned());
            session.set_stop_sequences(sequences)?;
        }
        Ok(())
    }

    /// Forbids the tokens that end a reply, if that is asked for.
    pub fn forbid_ends(&self, settings: SamplerSettings, session: &Session) -> Result<SamplerSettings> {
        if !self.ignore_eos {
            return Ok(settings);
        }
        let context = session.bundle().config().context();
        let ends: Vec<TokenId> = context.eos.iter().copied().chain(context.eot).collect();
        let mut chain = settings.chain().clone();
        chain.logit_bias.extend(ends.into_iter().map(|id| (id, f32::NEG_INFINITY)));
        Ok(settings.with_chain(chain)?)
    }
}
