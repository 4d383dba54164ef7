//! What a sampler remembers of one reply: the tokens that its penalties look at, and where mirostat is.

use genie_types::TokenId;

use super::chain::{Dry, Mirostat};
use super::dry::Recent;
use super::penalties::Penalties;
use super::settings::SamplerSettings;

/// Belongs to one reply; lanes of a dialog have one each.
#[derive(Clone, Debug)]
pub struct Window {
    pub(super) penalties: Penalties,
    /// Of DRY, where it acts.
    pub(super) recent: Option<(Dry, Recent)>,
    /// Mirostat's bound of the surprise, in bits, and where it starts.
    pub(super) mu: f64,
    first_mu: f64,
}

impl Window {
    pub(super) fn new(settings: &SamplerSettings) -> Self {
        let chain = settings.chain();
        let dry = Some(&chain.dry).filter(|dry| dry.multiplier != 0.0);
        let first_mu = chain.mirostat.map_or(0.0, |m| 2.0 * f64::from(m.tau));
        Self {
            penalties: Penalties::new(settings.effective_penalty()),
            recent: dry.map(|dry| (dry.clone(), Recent::default())),
            mu: first_mu,
            first_mu,
        }
    }

    pub(crate) fn accept(&mut self, token: TokenId) {
        self.penalties.accept(token);
        if let Some((rule, recent)) = &mut self.recent {
            recent.accept(token, rule);
        }
    }

    /// Moves mirostat's bound by the surprise of the token that was drawn.
    pub(super) fn follow(&mut self, rule: Mirostat, surprise: f64) {
        self.mu -= f64::from(rule.eta) * (surprise - f64::from(rule.tau));
    }

    /// Nothing is remembered, as in a new one.
    pub(super) fn is_new(&self) -> bool {
        !self.penalties.is_active()
            && self.recent.as_ref().is_none_or(|(_, r)| r.is_empty())
            && self.mu == self.first_mu
    }

    pub(crate) fn clear(&mut self) {
        self.forget_tokens();
        self.mu = self.first_mu;
    }

    /// No tokens are remembered.
    pub(super) fn forget_tokens(&mut self) {
        self.penalties.clear();
        if let Some((_, recent)) = &mut self.recent {
            recent.clear();
        }
    }
}
