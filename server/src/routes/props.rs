//! `GET /props`: what llama.cpp's clients ask for at their start.

use axum::Json;
use serde_json::{Value, json};

use crate::extract::QueryModel;

pub(crate) async fn props(QueryModel(state): QueryModel) -> Json<Value> {
    let settings = state.model.settings();
    let sampler = &settings.sampler;
    Json(json!({
        "default_generation_settings": {
            "n_ctx": state.model.n_ctx(),
            "params": {
                "temperature": sampler.temp(),
                "top_k": sampler.top_k(),
                "top_p": sampler.top_p(),
                "seed": sampler.seed().map_or(-1, i64::from),
                "repeat_penalty": sampler.penalty().repetition,
                "presence_penalty": sampler.penalty().presence,
                "frequency_penalty": sampler.penalty().frequency,
                "repeat_last_n": sampler.penalty().last_n,
                "n_predict": settings.max_tokens.or(state.options.max_tokens).map_or(-1, |n| i64::try_from(n).unwrap_or(-1)),
                "stop": settings.stop_sequences,
            },
        },
        "total_slots": state.model.n_slots(),
        "model_alias": state.name(),
        "model_path": state.model.name(),
        "modalities": {"vision": false, "audio": false},
        "chat_template": state.model.template().source(),
        "build_info": crate::FINGERPRINT,
    }))
}
