//! Factors and bounds of a configuration: Granite's multipliers, Gemma's scale of the embedding and its soft caps.

use super::parts::Factors;
use crate::Result;
use crate::json::Object;

/// Which keys of factors a family has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FactorKeys {
    /// None of them.
    None,
    /// `embedding_multiplier`, `residual_multiplier`, `attention_multiplier` and `logits_scaling`, which divides.
    Multipliers,
    /// `query_pre_attn_scalar` and the soft caps; the embedding is multiplied by the square root of its width.
    Gemma {
        /// `attn_logit_softcapping` and `final_logit_softcapping` of a configuration without the keys.
        caps: [Option<f64>; 2],
    },
}

/// `query_pre_attn_scalar` where there is none, in Hugging Face's Gemma.
const DEFAULT_SCALAR: f64 = 256.0;
const ABOVE_0: &str = "a number above 0";

pub(super) fn read(config: &Object<'_>, keys: FactorKeys, hidden: usize, head_dim: usize) -> Result<Factors> {
    let above_0 = |key| config.number(key, f64::MIN_POSITIVE..=f64::from(f32::MAX), ABOVE_0);
    let plain = Factors::plain(head_dim);
    Ok(match keys {
        FactorKeys::None => plain,
        FactorKeys::Multipliers => Factors {
            embedding: above_0("embedding_multiplier")?.unwrap_or(1.0),
            residual: above_0("residual_multiplier")?.unwrap_or(1.0),
            scores: above_0("attention_multiplier")?.unwrap_or(1.0),
            logits: 1.0 / above_0("logits_scaling")?.unwrap_or(1.0),
            ..plain
        },
        FactorKeys::Gemma { caps: [scores, logits] } => {
            // A null switches a cap off, an absent key does not.
            let cap = |key, default: Option<f64>| {
                Ok::<_, crate::CompileError>(match above_0(key)? {
                    None if config.is_null(key) => None,
                    given => given.or(default),
                })
            };
            Factors {
                embedding: (hidden as f64).sqrt(),
                scores: above_0("query_pre_attn_scalar")?.unwrap_or(DEFAULT_SCALAR).sqrt().recip(),
                scores_cap: cap("attn_logit_softcapping", scores)?,
                logits_cap: cap("final_logit_softcapping", logits)?,
                ..plain
            }
        }
    })
}
