//! `POST /v1/embeddings`: refused by name, since no graph that is served gives hidden states.

use crate::asked::Asked;
use crate::error::ApiError;

pub(crate) async fn create(Asked { state, .. }: Asked) -> ApiError {
    ApiError::NotSupported(format!(
        "`{}` gives no embeddings: its graphs give logits only; `genie embed` runs text encoders",
        state.name()
    ))
}
