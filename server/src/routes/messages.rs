//! `POST /v1/messages`, `/v1/messages/count_tokens`: Anthropic's interface.

use axum::Json;
use axum::response::{IntoResponse, Response};
use open_genie::serving::{Finished, Request};
use serde_json::{Value, json};

use crate::anthropic;
use crate::anthropic::blocks::{self, BlockEvents};
use crate::anthropic::error::AnthropicError;
use crate::anthropic::request::MessagesRequest;
use crate::error::ApiError;
use crate::extract::ModelRequest;
use crate::ids;
use crate::jobs::{JobEvent, Jobs};
use crate::reply::Collected;
use crate::stream::{self, ErrorEvent, EventSender, StreamEnd};

type Body = Result<ModelRequest, ApiError>;

pub(crate) async fn count(asked: Body) -> Result<Json<Value>, AnthropicError> {
    let ModelRequest { state, body } = asked?;
    let request = state.prepare(move |state| MessagesRequest::read(state, &body, true)).await?;
    Ok(Json(json!({"input_tokens": request.chat.prompt.len()})))
}

pub(crate) async fn create(asked: Body) -> Result<Response, AnthropicError> {
    let ModelRequest { state, body } = asked?;
    let request = state.prepare(move |state| MessagesRequest::read(state, &body, false)).await?;
    let (prompt, settings) = (request.chat.prompt.clone(), request.chat.settings.clone());
    let jobs = Jobs::submit(&state, vec![Request { prompt, settings, priority: request.priority }]).await?;
    let model = state.name().to_owned();
    if request.stream {
        return Ok(stream::reply(
            &state,
            error_event,
            move |out| async move { write(&out, jobs, &request, &model).await },
        ));
    }
    Ok(Json(whole(jobs, &request, &model).await?).into_response())
}

fn error_event(error: &ApiError) -> ErrorEvent {
    ErrorEvent { name: Some("error"), data: anthropic::error::to_json(error) }
}

fn usage(n_prompt: usize, finished: Option<&Finished>) -> Value {
    let n_cached = finished.map_or(0, |finished| finished.n_shared);
    json!({
        "input_tokens": n_prompt.saturating_sub(n_cached),
        "cache_read_input_tokens": n_cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": finished.map_or(0, |finished| finished.reply.kpis.n_drawn),
    })
}

fn message(model: &str, content: Vec<Value>, usage: Value) -> Value {
    json!({
        "id": ids::new("msg_"), "type": "message", "role": "assistant", "model": model, "content": content,
        "stop_reason": null, "stop_sequence": null, "usage": usage,
    })
}

async fn whole(mut jobs: Jobs, request: &MessagesRequest, model: &str) -> Result<Value, ApiError> {
    let MessagesRequest { chat, own_stops, .. } = request;
    let (mut parser, mut reply) = (chat.parser(), Collected::default());
    while let Some((_, event)) = jobs.next().await? {
        match event {
            JobEvent::Piece(piece) => parser.push_piece(&piece).iter().for_each(|delta| reply.push(delta)),
            JobEvent::Done(finished) => {
                parser.finish().iter().for_each(|delta| reply.push(delta));
                let (reason, sequence) = blocks::stop_reason(&finished.reply.stop, own_stops, reply.has_whole_calls());
                let mut message = message(model, blocks::of_reply(&reply), usage(chat.prompt.len(), Some(&finished)));
                message["stop_reason"] = reason.into();
                message["stop_sequence"] = sequence.into();
                return Ok(message);
            }
            JobEvent::Failed(error) => return Err(error.into()),
            JobEvent::Started { .. } => {}
        }
    }
    Err(ApiError::cut_off())
}

async fn write(out: &EventSender, mut jobs: Jobs, request: &MessagesRequest, model: &str) -> Result<(), StreamEnd> {
    let MessagesRequest { chat, own_stops, .. } = request;
    let start = message(model, Vec::new(), usage(chat.prompt.len(), None));
    out.event("message_start", &json!({"type": "message_start", "message": start})).await?;
    out.event("ping", &json!({"type": "ping"})).await?;
    let (mut parser, mut blocks, mut reply) = (chat.parser(), BlockEvents::default(), Collected::default());
    while let Some((_, event)) = out.wait(jobs.next()).await?? {
        let (deltas, finished) = match event {
            JobEvent::Piece(piece) => (parser.push_piece(&piece), None),
            JobEvent::Done(finished) => (parser.finish(), Some(finished)),
            JobEvent::Failed(error) => return Err(ApiError::from(error).into()),
            JobEvent::Started { .. } => continue,
        };
        let mut events = Vec::new();
        for delta in &deltas {
            reply.push(delta);
            blocks.push(delta, &mut events);
        }
        if let Some(finished) = finished {
            blocks.close(&mut events);
            let (reason, sequence) = blocks::stop_reason(&finished.reply.stop, own_stops, reply.has_whole_calls());
            let delta = json!({"stop_reason": reason, "stop_sequence": sequence});
            let usage = usage(chat.prompt.len(), Some(&finished));
            events.push(("message_delta", json!({"type": "message_delta", "delta": delta, "usage": usage})));
            events.push(("message_stop", json!({"type": "message_stop"})));
        }
        for (name, event) in &events {
            out.event(name, event).await?;
        }
    }
    Ok(())
}
