//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use open_genie::serving::Request;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::extract::ModelRequest;
use crate::ids;
use crate::jobs::{JobEvent, Jobs};
use crate::openai::chat_chunks::Chunks;
use crate::openai::chat_reply;
use crate::openai::chat_request::ChatRequest;
use crate::openai::logprobs;
use crate::openai::sampling::choices;
use crate::openai::usage::{Usage, timings};
use crate::reply::{Collected, ReplyParser};
use crate::served_model::ServedModel;
use crate::state::State;
use crate::stream::{self, ErrorEvent, EventSender, StreamEnd};

pub(crate) async fn create(ModelRequest { state, body }: ModelRequest) -> Result<Response, ApiError> {
    let request = state.prepare(move |state| ChatRequest::read(state, &body)).await?;
    let jobs = submit(&state, &request).await?;
    let chunks = Chunks { id: ids::new("chatcmpl-"), created: ids::now(), model: state.name().to_owned() };
    if request.stream {
        let model = Arc::clone(&state.model);
        return Ok(stream::reply(&state, ErrorEvent::of_openai, move |out| async move {
            write(&out, &model, jobs, &request, &chunks).await
        }));
    }
    whole(&state, jobs, &request, &chunks).await.map(|reply| Json(reply).into_response())
}

/// Hands the choices of a chat in.
pub(crate) async fn submit(state: &State, request: &ChatRequest) -> Result<Jobs, ApiError> {
    let of = |settings| Request { prompt: request.chat.prompt.clone(), settings, priority: request.priority };
    Jobs::submit(state, choices(&request.chat.settings, request.n).into_iter().map(of).collect()).await
}

async fn whole(state: &State, mut jobs: Jobs, request: &ChatRequest, chunks: &Chunks) -> Result<Value, ApiError> {
    let mut replies: Vec<(ReplyParser, Collected)> =
        (0..request.n).map(|_| (request.parser(), Collected::default())).collect();
    let mut done = vec![Value::Null; request.n];
    let mut likely: Vec<Vec<Value>> = vec![Vec::new(); request.n];
    let mut usage = Usage { n_prompt: request.chat.prompt.len(), ..Usage::default() };
    let mut times = Value::Null;
    while let Some((index, event)) = jobs.next().await? {
        let (parser, reply) = &mut replies[index];
        match event {
            JobEvent::Piece(piece) => {
                likely[index].extend(logprobs::of_chat(&state.model, &piece.logprobs));
                parser.push_piece(&piece).iter().for_each(|delta| reply.push(delta));
            }
            JobEvent::Done(finished) => {
                parser.finish().iter().for_each(|delta| reply.push(delta));
                usage.add(&finished);
                if index == 0 {
                    times = timings(usage.n_prompt, finished.reply.kpis.n_drawn, &jobs.times[index]);
                }
                let finish = chat_reply::finish_reason(&finished.reply.stop, reply.has_whole_calls());
                let likely = match request.chat.settings.logprobs {
                    Some(_) => json!({"content": likely[index], "refusal": null}),
                    None => Value::Null,
                };
                done[index] = json!({
                    "index": index, "message": chat_reply::message(reply), "logprobs": likely, "finish_reason": finish,
                });
            }
            JobEvent::Failed(error) => return Err(error.into()),
            JobEvent::Started { .. } => {}
        }
    }
    Ok(json!({
        "id": chunks.id,
        "object": "chat.completion",
        "created": chunks.created,
        "model": chunks.model,
        "system_fingerprint": crate::FINGERPRINT,
        "choices": done,
        "usage": usage.to_json(),
        "timings": times,
    }))
}

async fn write(
    out: &EventSender,
    model: &ServedModel,
    mut jobs: Jobs,
    request: &ChatRequest,
    chunks: &Chunks,
) -> Result<(), StreamEnd> {
    let mut parsers: Vec<ReplyParser> = (0..request.n).map(|_| request.parser()).collect();
    let (mut replies, mut n_tokens) = (vec![Collected::default(); request.n], vec![0; request.n]);
    let mut usage = Usage { n_prompt: request.chat.prompt.len(), ..Usage::default() };
    for index in 0..request.n {
        out.data(&chunks.first(index)).await?;
    }
    while let Some((index, event)) = out.wait(jobs.next()).await?? {
        let mut likely = Vec::new();
        let (deltas, finished) = match event {
            JobEvent::Piece(piece) => {
                n_tokens[index] += piece.tokens.len();
                likely.extend(logprobs::of_chat(model, &piece.logprobs));
                (parsers[index].push_piece(&piece), None)
            }
            JobEvent::Done(finished) => (parsers[index].finish(), Some(finished)),
            JobEvent::Failed(error) => return Err(ApiError::from(error).into()),
            JobEvent::Started { .. } => continue,
        };
        for delta in &deltas {
            replies[index].push(delta);
            let mut chunk = chunks.piece(index, delta);
            if request.timings_per_token {
                chunk["timings"] = timings(usage.n_prompt, n_tokens[index], &jobs.times[index]);
            }
            if !likely.is_empty() {
                chunk["choices"][0]["logprobs"] = json!({"content": std::mem::take(&mut likely), "refusal": null});
            }
            out.data(&chunk).await?;
        }
        // Tokens whose text is not certain yet are said at once, too.
        if !likely.is_empty() {
            let mut chunk = chunks.piece(index, &crate::reply::Delta::Content(String::new()));
            chunk["choices"][0]["logprobs"] = json!({"content": likely, "refusal": null});
            out.data(&chunk).await?;
        }
        if let Some(finished) = finished {
            usage.add(&finished);
            let finish = chat_reply::finish_reason(&finished.reply.stop, replies[index].has_whole_calls());
            let mut chunk = chunks.last(index, finish);
            chunk["timings"] = timings(usage.n_prompt, finished.reply.kpis.n_drawn, &jobs.times[index]);
            out.data(&chunk).await?;
        }
    }
    if request.include_usage {
        out.data(&chunks.usage(usage.to_json())).await?;
    }
    Ok(out.done().await?)
}
