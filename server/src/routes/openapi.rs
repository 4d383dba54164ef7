//! `GET /openapi.json`: what the routes take and give. Schemas of requests come from the types that read them.
//!
//! *Invariant*: each path of the router is a row of [`ROWS`] and the other way round; a test compares them.

use axum::Json;
use serde_json::{Map, Value, json};

use super::{completion, completions};
use crate::openai::response_format::Formats;
use crate::openai::sampling::Keys;
use crate::openai::stages::Stages;
use crate::schema::JsonSchema;
use crate::{anthropic, openai, responses};

/// A route as the document has it.
pub(super) struct Row {
    pub(super) method: &'static str,
    /// As the router writes it, except for `{*id}`.
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    /// Where the document has the schema of its body; empty for routes without one.
    body: &'static str,
    /// Of a good answer; empty where there is none.
    reply: &'static str,
    /// Statuses of errors beside those that every route has.
    errors: &'static [u16],
}

const NO_ERRORS: &[u16] = &[];
/// Of a route that asks a model's thread.
const THREAD: &[u16] = &[404, 503];
/// Of a route that reads a body with a model's name.
const BODY: &[u16] = &[404, 408, 413, 503];
/// Of a route that runs the model.
const RUNS: &[u16] = &[404, 408, 413, 429, 500, 503, 504];

/// All of them. Those below `/v1` answer without it too.
pub(super) const ROWS: &[Row] = &[
    row("post", "/v1/chat/completions", "Answers a chat", "ChatRequest", "ChatCompletion", RUNS),
    row("post", "/v1/completions", "Goes on with texts", "CompletionRequest", "Completion", RUNS),
    row("post", "/v1/responses", "Answers a chat, in OpenAI's newer form", "ResponsesRequest", "Response", RUNS),
    row("post", "/v1/messages", "Answers a chat, in Anthropic's form", "MessagesRequest", "Message", RUNS),
    row("post", "/v1/messages/count_tokens", "Counts a chat's tokens", "MessagesRequest", "TokenCount", BODY),
    row(
        "post",
        "/v1/embeddings",
        "Refused by name: the graphs give logits only",
        "EmbeddingsRequest",
        "",
        &[404, 408, 413, 501, 503],
    ),
    row("get", "/v1/models", "Lists the models", "", "ModelList", &[503]),
    row("get", "/v1/models/{id}", "Shows a model", "", "Model", THREAD),
    row(
        "post",
        "/completion",
        "Goes on with a text, in llama.cpp's form",
        "OwnCompletionRequest",
        "OwnCompletion",
        RUNS,
    ),
    row("post", "/tokenize", "Turns text into tokens", "TokenizeRequest", "Tokens", BODY),
    row("post", "/detokenize", "Turns tokens into text", "DetokenizeRequest", "Content", BODY),
    row("post", "/apply-template", "Shows the prompt of a chat", "ChatRequest", "Prompt", BODY),
    row("get", "/props", "Shows what llama.cpp's clients ask for", "", "Object", THREAD),
    row("get", "/slots", "Lists the sequences of the cache", "", "SlotList", THREAD),
    row(
        "post",
        "/slots/{id}",
        "Saves, restores or erases an idle slot",
        "SlotFile",
        "Object",
        &[404, 408, 413, 501, 503],
    ),
    row("get", "/metrics", "Counts for Prometheus", "", "text", THREAD),
    row("get", "/health", "Whether requests are taken", "", "Health", THREAD),
    row("get", "/v1/health", "Whether requests are taken", "", "Health", THREAD),
    row("get", "/engine/state", "What there is now", "", "Object", THREAD),
    row("get", "/engine/events", "Each step as it runs, without an end", "", "events", &[404, 429, 503]),
    row("get", "/openapi.json", "This document", "", "Object", NO_ERRORS),
];

const fn row(
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    body: &'static str,
    reply: &'static str,
    errors: &'static [u16],
) -> Row {
    Row { method, path, summary, body, reply, errors }
}

pub(crate) async fn document() -> Json<Value> {
    Json(build())
}

/// The whole document.
pub(super) fn build() -> Value {
    let mut paths = Map::new();
    for row in ROWS {
        let item = paths.entry(row.path).or_insert_with(|| json!({}));
        item[row.method] = operation(row);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "open-genie", "version": env!("CARGO_PKG_VERSION"), "license": {"name": "MIT OR Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    })
}

fn operation(row: &Row) -> Value {
    let mut answers = Map::new();
    let json_of = |name: &str| json!({"application/json": {"schema": reference(name)}});
    match row.reply {
        "" => {}
        kind @ ("text" | "events") => {
            let kind = if kind == "text" { "text/plain" } else { "text/event-stream" };
            let schema = if kind == "text/plain" { json!({"type": "string"}) } else { reference("Event") };
            let content = json!({kind: {"schema": schema}});
            answers.insert("200".into(), json!({"description": "done", "content": content}));
        }
        name => {
            let mut content = json_of(name);
            if ["ChatCompletion", "Completion", "Response", "Message", "OwnCompletion"].contains(&name) {
                content["text/event-stream"] = json!({"schema": reference("Event")});
            }
            answers.insert("200".into(), json!({"description": "done", "content": content}));
        }
    }
    let error = if row.path.starts_with("/v1/messages") { "AnthropicError" } else { "Error" };
    for status in [400, 401, 403].iter().chain(row.errors) {
        // What stands before the routes answers in OpenAI's form.
        let schema = match (error, status) {
            ("AnthropicError", 401 | 403) => json!({"anyOf": [reference("Error"), reference(error)]}),
            _ => reference(error),
        };
        let answer = json!({"description": word(*status), "content": {"application/json": {"schema": schema}}});
        answers.insert(status.to_string(), answer);
    }
    let mut operation = json!({"summary": row.summary, "responses": answers});
    let mut parameters = Vec::new();
    if row.path.ends_with("{id}") {
        parameters
            .push(json!({"name": "id", "in": "path", "required": true, "schema": {"type": "string", "minLength": 1}}));
    }
    if row.path.starts_with("/slots/") {
        let schema = json!({"type": "string", "enum": ["save", "restore", "erase"]});
        parameters.push(json!({"name": "action", "in": "query", "required": true, "schema": schema}));
    }
    if ["/props", "/slots", "/engine/state", "/engine/events"].contains(&row.path) {
        parameters.push(json!({"name": "model", "in": "query", "schema": {"type": "string"}}));
    }
    if row.path == "/engine/events" {
        parameters.push(json!({"name": "mask", "in": "query", "schema": {"type": "integer", "enum": [0, 1]}}));
    }
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if !row.body.is_empty() {
        operation["requestBody"] = json!({"required": true, "content": json_of(row.body)});
    }
    operation
}

fn word(status: u16) -> &'static str {
    match status {
        400 => "a value that cannot be taken",
        401 => "no key, or a wrong one",
        403 => "another host or origin than those allowed",
        404 => "no such model",
        408 => "the body did not arrive in time",
        413 => "the body is too large",
        429 => "the queue is full",
        500 => "the server has failed",
        501 => "not supported",
        503 => "the server shuts down, the model cannot be loaded, or its thread has ended",
        _ => "the reply took too long",
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn all_of(parts: Vec<Value>) -> Value {
    json!({ "allOf": parts })
}

/// An object with these keys at least.
fn object(required: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = required.iter().map(|(name, _)| *name).collect();
    let properties: Map<String, Value> =
        required.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({"type": "object", "required": names, "properties": properties})
}

fn schemas() -> Value {
    let (text, whole) = (json!({"type": "string"}), json!({"type": "integer"}));
    let (any, list) = (json!({"type": "object"}), json!({"type": "array"}));
    let name = json!({"type": "object", "properties": {"model": {"type": "string"}}});
    let sampling = || vec![Keys::schema(), Stages::schema(), name.clone()];
    let with = |fields: Value, more: Value| all_of([vec![fields, more], sampling()].concat());
    let prompt = json!({"anyOf": [
        {"type": "string"}, {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "array"}]}},
    ]});
    let list_of = |schema: &Value| json!({"type": "array", "items": schema});
    let error = object(&[("message", text.clone()), ("type", text.clone())]);
    json!({
        "Object": any,
        "ChatRequest": all_of(vec![
            with(openai::chat_request::Fields::schema(), object(&[("messages", list_of(&any))])), Formats::schema(),
        ]),
        "ResponsesRequest": with(responses::request::Fields::schema(), object(&[("input", json!({"type": ["string", "array"]}))])),
        "MessagesRequest": with(
            anthropic::request::Fields::schema(),
            object(&[("messages", list_of(&any)), ("max_tokens", json!({"type": "integer", "minimum": 1}))]),
        ),
        "CompletionRequest": all_of(vec![
            with(object(&[("prompt", prompt.clone())]), Formats::schema()), completions::Fields::schema(),
        ]),
        "OwnCompletionRequest": all_of(vec![with(object(&[("prompt", prompt)]), Formats::schema()), completion::Fields::schema()]),
        "EmbeddingsRequest": object(&[("input", json!({"type": ["string", "array"]}))]),
        "TokenizeRequest": object(&[("content", text.clone())]),
        "DetokenizeRequest": object(&[("tokens", list_of(&whole))]),
        "SlotFile": {"type": "object", "properties": {"filename": {"type": "string"}}},
        "ChatCompletion": object(&[("id", text.clone()), ("choices", list.clone()), ("usage", any.clone())]),
        "Completion": object(&[("id", text.clone()), ("choices", list.clone()), ("usage", any.clone())]),
        "Response": object(&[("id", text.clone()), ("status", text.clone()), ("output", list.clone()), ("usage", any.clone())]),
        "Message": object(&[("id", text.clone()), ("role", text.clone()), ("content", list.clone()), ("usage", any.clone())]),
        "OwnCompletion": object(&[("content", text.clone()), ("stop", json!({"type": "boolean"})), ("timings", any.clone())]),
        "TokenCount": object(&[("input_tokens", whole.clone())]),
        "Tokens": object(&[("tokens", list)]),
        "Content": object(&[("content", text.clone())]),
        "Prompt": object(&[("prompt", text.clone())]),
        "Model": object(&[("id", text.clone()), ("object", text.clone()), ("created", whole.clone())]),
        "ModelList": object(&[("data", list_of(&reference("Model")))]),
        "SlotList": list_of(&object(&[("id", whole.clone()), ("state", text.clone()), ("n_past", whole)])),
        // Of a stream: what stands behind `data:`, JSON or `[DONE]`.
        "Event": object(&[("data", text.clone())]),
        "Health": object(&[("status", text)]),
        "Error": object(&[("error", error.clone())]),
        "AnthropicError": object(&[("type", json!({"const": "error"})), ("error", error)]),
    })
}
