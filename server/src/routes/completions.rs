//! `POST /v1/completions`: text goes on, whole or in pieces.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use open_genie::serving::{Finished, Request};
use serde_json::{Value, json};

use crate::body;
use crate::error::ApiError;
use crate::extract::ModelRequest;
use crate::ids;
use crate::jobs::{JobEvent, Jobs};
use crate::openai::chat_reply::finish_reason;
use crate::openai::chat_request::StreamOptions;
use crate::openai::logprobs::CompletionLogprobs;
use crate::openai::sampling::{MOST_CHOICES, Sampling, choices};
use crate::openai::usage::{Usage, timings};
use crate::openai::{logprobs, prompt, response_format};
use crate::schema::keys;
use crate::served_model::ServedModel;
use crate::state::State;
use crate::stream::{self, ErrorEvent, EventSender, StreamEnd};

keys! {
    /// Keys of a request, beside those of sampling and of what the reply has to be.
    pub(crate) struct Fields {
        stream: Option<bool>,
        stream_options: Option<StreamOptions>,
        echo: Option<bool>,
        logprobs: Option<i64>,
        best_of: Option<i64>,
    }
}

/// What all parts of one reply have in common.
struct CompletionShape {
    stream: bool,
    /// Log probabilities are wanted.
    logprobs: bool,
    echo: Vec<String>,
    /// Choices of each prompt.
    n: usize,
    include_usage: bool,
    n_prompt: usize,
    id: String,
    created: u64,
    model: String,
}

pub(crate) async fn create(ModelRequest { state, body }: ModelRequest) -> Result<Response, ApiError> {
    let (shape, requests) = state.prepare(move |state| read(state, &body)).await?;
    let jobs = Jobs::submit(&state, requests).await?;
    if shape.stream {
        let model = Arc::clone(&state.model);
        return Ok(stream::reply(&state, ErrorEvent::of_openai, move |out| async move {
            write(&out, &model, jobs, &shape).await
        }));
    }
    whole(&state.model, jobs, shape).await.map(|reply| Json(reply).into_response())
}

/// What a body asks for: the form of the reply, and a request for each choice.
fn read(state: &State, body: &Value) -> Result<(CompletionShape, Vec<Request>), ApiError> {
    let fields: Fields = body::read(body)?;
    let sampling = Sampling::read(body)?;
    let prompts = prompt::prompts(state, body)?;
    let n = sampling.n()?;
    if prompts.len() * n > MOST_CHOICES * 4 {
        let message =
            format!("`n` and `prompt` ask for {} replies: expected at most {}", prompts.len() * n, MOST_CHOICES * 4);
        return Err(ApiError::invalid("n", message));
    }
    if fields.best_of.is_some_and(|best_of| usize::try_from(best_of) != Ok(n)) {
        let message = "`best_of` is not supported: all replies are given, so ask for `n` of them";
        return Err(ApiError::invalid("best_of", message));
    }
    let mut settings = sampling.settings(state)?;
    settings.grammar = response_format::grammar(body)?.or(settings.grammar);
    if let Some(n) = fields.logprobs {
        settings.logprobs = Some(logprobs::checked("logprobs", n)?);
    }
    let echo = fields.echo.unwrap_or(false);
    if echo && settings.logprobs.is_some() {
        let message =
            "`logprobs` and `echo`: the prompt's tokens have no log probabilities here: leave out one of them";
        return Err(ApiError::invalid("logprobs", message));
    }
    let mut shape = CompletionShape {
        stream: fields.stream.unwrap_or(false),
        logprobs: settings.logprobs.is_some(),
        echo: vec![String::new(); prompts.len() * n],
        n,
        include_usage: fields.stream_options.is_some_and(|options| options.include_usage()),
        n_prompt: prompts.iter().map(Vec::len).sum(),
        id: ids::new("cmpl-"),
        created: ids::now(),
        model: state.name().to_owned(),
    };
    if echo {
        for (at, prompt) in prompts.iter().enumerate() {
            let text = state.model.decode(prompt)?;
            shape.echo[at * n..(at + 1) * n].fill(text);
        }
    }
    let priority = sampling.priority();
    let requests = prompts.into_iter().flat_map(|prompt| {
        choices(&settings, n).into_iter().map(move |settings| Request { prompt: prompt.clone(), settings, priority })
    });
    Ok((shape, requests.collect()))
}

impl CompletionShape {
    /// Adds choice `index`. `cached` has the tokens of each prompt that were in the cache: their sum, as that of the prompts, counts.
    fn add(&self, usage: &mut Usage, cached: &mut [usize], index: usize, finished: &Finished) {
        usage.add(finished);
        let of_prompt = &mut cached[index / self.n];
        *of_prompt = finished.n_shared.max(*of_prompt);
        usage.n_cached = cached.iter().sum();
    }

    fn object(&self, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": crate::FINGERPRINT,
            "choices": choices,
        })
    }
}

fn choice(index: usize, text: &str, logprobs: Value, finish: Option<&str>) -> Value {
    json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish})
}

async fn whole(model: &ServedModel, mut jobs: Jobs, shape: CompletionShape) -> Result<Value, ApiError> {
    let mut likely = CompletionLogprobs::of_choices(model, shape.echo.len());
    let mut done = vec![Value::Null; shape.echo.len()];
    let mut usage = Usage { n_prompt: shape.n_prompt, ..Usage::default() };
    let mut cached = vec![0; shape.echo.len() / shape.n];
    let mut times = Value::Null;
    while let Some((index, event)) = jobs.next().await? {
        match event {
            JobEvent::Done(finished) => {
                shape.add(&mut usage, &mut cached, index, &finished);
                if index == 0 {
                    times = timings(finished.n_prompt, finished.reply.kpis.n_drawn, &jobs.times[0]);
                }
                let text = format!("{}{}", shape.echo[index], finished.reply.text);
                let finish = finish_reason(&finished.reply.stop, false);
                done[index] = choice(index, &text, likely[index].take(), Some(finish));
            }
            JobEvent::Piece(piece) => likely[index].push(model, &piece.logprobs),
            JobEvent::Failed(error) => return Err(error.into()),
            _ => {}
        }
    }
    let mut reply = shape.object(done.into());
    reply["usage"] = usage.to_json();
    reply["timings"] = times;
    Ok(reply)
}

async fn write(
    out: &EventSender,
    model: &ServedModel,
    mut jobs: Jobs,
    shape: &CompletionShape,
) -> Result<(), StreamEnd> {
    let mut likely = CompletionLogprobs::of_choices(model, shape.echo.len());
    let mut usage = Usage { n_prompt: shape.n_prompt, ..Usage::default() };
    let mut cached = vec![0; shape.echo.len() / shape.n];
    for (index, echo) in shape.echo.iter().enumerate().filter(|(_, echo)| !echo.is_empty()) {
        out.data(&shape.object(json!([choice(index, echo, Value::Null, None)]))).await?;
    }
    while let Some((index, event)) = out.wait(jobs.next()).await?? {
        match event {
            JobEvent::Piece(piece) if !piece.text.is_empty() || shape.logprobs => {
                likely[index].push(model, &piece.logprobs);
                let likely = likely[index].take();
                out.data(&shape.object(json!([choice(index, &piece.text, likely, None)]))).await?;
            }
            JobEvent::Done(finished) => {
                shape.add(&mut usage, &mut cached, index, &finished);
                let finish = finish_reason(&finished.reply.stop, false);
                out.data(&shape.object(json!([choice(index, "", Value::Null, Some(finish))]))).await?;
            }
            JobEvent::Failed(error) => return Err(ApiError::from(error).into()),
            _ => {}
        }
    }
    if shape.include_usage {
        let mut last = shape.object(json!([]));
        last["usage"] = usage.to_json();
        out.data(&last).await?;
    }
    Ok(out.done().await?)
}
