//! `--lora NAME[:STRENGTH]`: the adapters that are applied.

use anyhow::Result;
use open_genie::{Error, Lora, Opened, Session};

/// LoRA adapters.
#[derive(clap::Args, Default, Clone)]
#[command(next_help_heading = "Adapters")]
pub struct LoraArgs {
    /// Apply a LoRA adapter of the bundle, with a strength [default: 1]; give it again for several at once.
    #[arg(long, short, value_name = "NAME[:STRENGTH]")]
    pub lora: Vec<Lora>,
}

impl LoraArgs {
    /// Applies what the flags say; without any, nothing.
    pub fn apply(&self, session: &mut Session) -> Result<()> {
        if !self.lora.is_empty() {
            session.apply_lora(&self.lora)?;
        }
        Ok(())
    }

    /// The same for a model that is measured.
    pub fn apply_to_opened(&self, opened: &mut Opened) -> Result<()> {
        match opened {
            _ if self.lora.is_empty() => {}
            Opened::Plain(model) => drop(model.apply_lora(&self.lora)?),
            Opened::Fused(_) => return Err(Error::NotWithFused { what: "LoRA adapters" }.into()),
        }
        Ok(())
    }
}
