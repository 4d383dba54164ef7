//! `POST /v1/embeddings`: refused by name, since no graph that is served gives hidden states.

use crate::error::ApiError;
use crate::extract::ModelRequest;

pub(crate) async fn create(ModelRequest { state, .. }: ModelRequest) -> ApiError {
    ApiError::NotSupported(format!(
        "`{}` gives no embeddings: its graphs give logits only; `genie embed` runs text encoders",
        state.name()
    ))
}
