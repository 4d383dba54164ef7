//! `POST /completion`: llama.cpp's own route, with its names.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use open_genie::StopReason;
use open_genie::serving::{Finished, Request};
use serde_json::{Value, json};

use crate::body;
use crate::error::ApiError;
use crate::extract::ModelRequest;
use crate::jobs::{JobEvent, Jobs};
use crate::openai::sampling::Sampling;
use crate::openai::usage::timings;
use crate::openai::{logprobs, prompt, response_format};
use crate::schema::keys;
use crate::served_model::ServedModel;
use crate::state::State;
use crate::stream::{self, ErrorEvent, EventSender, StreamEnd};

keys! {
    /// Keys of a request, beside those of sampling and of what the reply has to be.
    pub(crate) struct Fields {
        stream: Option<bool>,
        n_probs: Option<i64>,
    }
}

pub(crate) async fn create(ModelRequest { state, body }: ModelRequest) -> Result<Response, ApiError> {
    let (request, stream) = state.prepare(move |state| read(state, &body)).await?;
    let (model, served) = (state.name().to_owned(), Arc::clone(&state.model));
    let n_prompt = request.prompt.len();
    let jobs = Jobs::submit(&state, vec![request]).await?;
    if stream {
        return Ok(stream::reply(&state, ErrorEvent::of_openai, move |out| async move {
            write(&out, &served, jobs, n_prompt, &model).await
        }));
    }
    whole(&served, jobs, n_prompt, &model).await.map(|reply| Json(reply).into_response())
}

/// The request of a body, and whether it is streamed.
fn read(state: &State, body: &Value) -> Result<(Request, bool), ApiError> {
    let fields: Fields = body::read(body)?;
    let sampling = Sampling::read(body)?.only_one()?;
    let mut prompts = prompt::prompts(state, body)?;
    let (Some(prompt), true) = (prompts.pop(), prompts.is_empty()) else {
        return Err(ApiError::invalid("prompt", "`prompt`: expected one prompt, found several"));
    };
    let mut settings = sampling.settings(state)?;
    settings.grammar = response_format::grammar(body)?.or(settings.grammar);
    if let Some(n) = fields.n_probs.filter(|n| *n != 0) {
        settings.logprobs = Some(logprobs::checked("n_probs", n)?);
    }
    let priority = sampling.priority();
    Ok((Request { prompt, settings, priority }, fields.stream.unwrap_or(false)))
}

fn last(content: &str, finished: &Finished, jobs: &Jobs, n_prompt: usize, model: &str) -> Value {
    let (kind, word) = match &finished.reply.stop {
        StopReason::MaxTokens | StopReason::ContextLimit => ("limit", ""),
        StopReason::StopSequence(text) => ("word", text.as_str()),
        _ => ("eos", ""),
    };
    let n_generated = finished.reply.kpis.n_drawn;
    json!({
        "index": 0,
        "content": content,
        "tokens": finished.reply.tokens.iter().map(|token| token.0).collect::<Vec<_>>(),
        "stop": true,
        "stop_type": kind,
        "stopping_word": word,
        "truncated": matches!(finished.reply.stop, StopReason::ContextLimit),
        "model": model,
        "tokens_predicted": n_generated,
        "tokens_evaluated": n_prompt,
        "tokens_cached": finished.n_shared,
        "timings": timings(n_prompt, n_generated, &jobs.times[0]),
    })
}

async fn whole(served: &ServedModel, mut jobs: Jobs, n_prompt: usize, model: &str) -> Result<Value, ApiError> {
    let mut likely = Vec::new();
    while let Some((_, event)) = jobs.next().await? {
        match event {
            JobEvent::Done(finished) => {
                let mut reply = last(&finished.reply.text, &finished, &jobs, n_prompt, model);
                if !likely.is_empty() {
                    reply["completion_probabilities"] = likely.into();
                }
                return Ok(reply);
            }
            JobEvent::Piece(piece) => likely.extend(logprobs::of_chat(served, &piece.logprobs)),
            JobEvent::Failed(error) => return Err(error.into()),
            _ => {}
        }
    }
    Err(ApiError::cut_off())
}

async fn write(
    out: &EventSender,
    served: &ServedModel,
    mut jobs: Jobs,
    n_prompt: usize,
    model: &str,
) -> Result<(), StreamEnd> {
    while let Some((_, event)) = out.wait(jobs.next()).await?? {
        match event {
            JobEvent::Piece(piece) => {
                let tokens: Vec<u32> = piece.tokens.iter().map(|token| token.0).collect();
                let mut event = json!({"index": 0, "content": piece.text, "tokens": tokens, "stop": false});
                let likely = logprobs::of_chat(served, &piece.logprobs);
                if !likely.is_empty() {
                    event["completion_probabilities"] = likely.into();
                }
                out.data(&event).await?;
            }
            JobEvent::Done(finished) => out.data(&last("", &finished, &jobs, n_prompt, model)).await?,
            JobEvent::Failed(error) => return Err(ApiError::from(error).into()),
            JobEvent::Started { .. } => {}
        }
    }
    Ok(())
}
