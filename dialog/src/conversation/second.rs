//! The other model of a dialog of two, brought to where the dialog is.
//!
//! It has a cache of its own and does not learn what becomes of the dialog (rewinds, resets, rejected tokens, turns): what
//! it has in common with it is compared, it goes back to there, and processes the rest.

use engine::{EngineError, TokenModel};
use genie_types::TokenId;

/// Brings a model to `tokens`, and returns the logits of the last. At least that one is processed.
///
/// # Errors
/// [`EngineError::NoTokens`]; those of [`TokenModel::process`].
pub fn follow<'m>(model: &'m mut dyn TokenModel, tokens: &[TokenId]) -> Result<&'m [f32], EngineError> {
    let common = go_back(model, tokens, tokens.len().saturating_sub(1))?;
    model.process(&tokens[common..])
}

/// As [`follow`], where no logits are wanted: a model that has all of `tokens` processes nothing.
///
/// # Errors
/// Those of [`TokenModel::prefill`].
pub fn keep_up(model: &mut dyn TokenModel, tokens: &[TokenId]) -> Result<(), EngineError> {
    let common = go_back(model, tokens, tokens.len())?;
    if common < tokens.len() { model.prefill(&tokens[common..]) } else { Ok(()) }
}

/// Forgets what the model has that `tokens` do not begin with, and all from `most` on; returns how much is left.
fn go_back(model: &mut dyn TokenModel, tokens: &[TokenId], most: usize) -> Result<usize, EngineError> {
    let own = model.transcript();
    let plain = own.is_plain();
    let common = own.tokens().iter().zip(tokens).take_while(|(a, b)| a == b).count().min(most);
    if common == model.n_past() && plain {
        return Ok(common);
    }
    // Rows that were moved or dropped are not those of its tokens.
    if common == 0 || !plain || model.rewind(common).is_err() {
        model.reset()?;
        return Ok(0);
    }
    Ok(common)
}
