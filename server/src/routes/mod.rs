//! The routes, one file each, and what stands before all of them.

mod chat;
mod completion;
mod completions;
mod embeddings;
mod health;
mod messages;
mod metrics;
mod models;
mod openapi;
mod props;
mod responses;
mod slots;
mod tokens;

use axum::Router;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use tower_http::catch_panic::CatchPanicLayer;

use crate::error::ApiError;
use crate::state::App;
use crate::{events, guard, page};

/// The routes of OpenAI's API, with `/v1` and without.
fn api() -> Vec<(&'static str, MethodRouter<App>)> {
    vec![
        ("/chat/completions", post(chat::create)),
        ("/completions", post(completions::create)),
        ("/embeddings", post(embeddings::create)),
        ("/messages", post(messages::create)),
        ("/messages/count_tokens", post(messages::count)),
        ("/responses", post(responses::create)),
        ("/models", get(models::list)),
        ("/models/{*id}", get(models::one)),
    ]
}

/// The others.
fn own() -> Vec<(&'static str, MethodRouter<App>)> {
    vec![
        ("/health", get(health::health)),
        ("/v1/health", get(health::health)),
        ("/completion", post(completion::create)),
        ("/tokenize", post(tokens::tokenize)),
        ("/detokenize", post(tokens::detokenize)),
        ("/apply-template", post(tokens::apply_template)),
        ("/props", get(props::props)),
        ("/slots", get(slots::list)),
        ("/slots/{id}", post(slots::act)),
        ("/metrics", get(metrics::metrics)),
        ("/engine/state", get(events::state)),
        ("/engine/events", get(events::events)),
        ("/openapi.json", get(openapi::document)),
    ]
}

/// All of them, and what stands before them.
pub(crate) fn all(app: App) -> Router {
    let add = |router: Router<App>, (path, route)| router.route(path, route);
    let api = api().into_iter().fold(Router::new(), add);
    let router = own().into_iter().fold(Router::new(), add);
    router
        .merge(api.clone())
        .nest("/v1", api)
        .merge(page::routes())
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(app.clone(), guard::check))
        .layer(guard::cors(&app.options))
        .layer(from_fn_with_state(app.clone(), guard::log))
        .with_state(app)
}

async fn no_route(request: Request) -> Response {
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    ApiError::NoRoute { method, path }.into_response()
}

async fn wrong_method(request: Request) -> Response {
    if request.method() == Method::OPTIONS {
        return StatusCode::NO_CONTENT.into_response();
    }
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    ApiError::Method { method, path }.into_response()
}

fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    ApiError::Internal("the server has failed at this request".into()).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_document_has_every_route_and_no_other() {
        let api = api().into_iter().map(|(path, _)| format!("/v1{}", path.replace("{*id}", "{id}")));
        let routed: BTreeSet<String> = api.chain(own().into_iter().map(|(path, _)| path.to_owned())).collect();
        let documented: BTreeSet<String> = openapi::ROWS.iter().map(|row| row.path.to_owned()).collect();
        assert_eq!(routed, documented);
    }
}
