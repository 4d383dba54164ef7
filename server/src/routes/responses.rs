//! `POST /v1/responses`: OpenAI's newer interface, whole and as typed events.

use axum::Json;
use axum::response::{IntoResponse, Response};
use open_genie::StopReason;
use open_genie::serving::Request;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::extract::ModelRequest;
use crate::ids;
use crate::jobs::{JobEvent, Jobs};
use crate::responses::events::Output;
use crate::responses::items::Shape;
use crate::responses::request::ResponsesRequest;
use crate::stream::{self, ErrorEvent, EventSender, StreamEnd};

pub(crate) async fn create(ModelRequest { state, body }: ModelRequest) -> Result<Response, ApiError> {
    let request = state.prepare(move |state| ResponsesRequest::read(state, &body)).await?;
    let (prompt, settings) = (request.chat.prompt.clone(), request.chat.settings.clone());
    let jobs = Jobs::submit(&state, vec![Request { prompt, settings, priority: request.priority }]).await?;
    let (model, echo) = (state.name().to_owned(), request.echo.clone());
    let shape = Shape { id: ids::new("resp_"), created: ids::now(), model, echo };
    if request.stream {
        return Ok(stream::reply(
            &state,
            error_event,
            move |out| async move { write(&out, jobs, &request, &shape).await },
        ));
    }
    Ok(Json(whole(jobs, &request, &shape).await?).into_response())
}

fn error_event(error: &ApiError) -> ErrorEvent {
    let fields = &error.to_json()["error"];
    let data = json!({"type": "error", "code": fields["code"], "message": fields["message"], "param": fields["param"]});
    ErrorEvent { name: Some("error"), data }
}

fn status(stop: &StopReason) -> &'static str {
    if matches!(stop, StopReason::MaxTokens | StopReason::ContextLimit) { "incomplete" } else { "completed" }
}

async fn whole(mut jobs: Jobs, request: &ResponsesRequest, shape: &Shape) -> Result<Value, ApiError> {
    let (mut parser, mut output, mut events) = (request.chat.parser(), Output::default(), Vec::new());
    while let Some((_, event)) = jobs.next().await? {
        events.clear();
        match event {
            JobEvent::Piece(piece) => {
                parser.push_piece(&piece).iter().for_each(|delta| output.push(delta, &mut events));
            }
            JobEvent::Done(finished) => {
                parser.finish().iter().for_each(|delta| output.push(delta, &mut events));
                output.close(status(&finished.reply.stop), &mut events);
                return Ok(shape.done(&output.items, &finished, request.chat.prompt.len()));
            }
            JobEvent::Failed(error) => return Err(error.into()),
            JobEvent::Started { .. } => {}
        }
    }
    Err(ApiError::cut_off())
}

async fn write(out: &EventSender, mut jobs: Jobs, request: &ResponsesRequest, shape: &Shape) -> Result<(), StreamEnd> {
    let (mut parser, mut output) = (request.chat.parser(), Output::default());
    for name in ["response.created", "response.in_progress"] {
        let (name, event) = output.event(name, json!({"response": shape.open()}));
        out.event(name, &event).await?;
    }
    while let Some((_, event)) = out.wait(jobs.next()).await?? {
        let (deltas, finished) = match event {
            JobEvent::Piece(piece) => (parser.push_piece(&piece), None),
            JobEvent::Done(finished) => (parser.finish(), Some(finished)),
            JobEvent::Failed(error) => return Err(ApiError::from(error).into()),
            JobEvent::Started { .. } => continue,
        };
        let mut events = Vec::new();
        deltas.iter().for_each(|delta| output.push(delta, &mut events));
        if let Some(finished) = finished {
            let status = status(&finished.reply.stop);
            output.close(status, &mut events);
            let response = shape.done(&output.items, &finished, request.chat.prompt.len());
            let name = if status == "completed" { "response.completed" } else { "response.incomplete" };
            events.push(output.event(name, json!({"response": response})));
        }
        for (name, event) in &events {
            out.event(name, event).await?;
        }
    }
    Ok(())
}
