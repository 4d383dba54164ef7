//! The access log: a line of JSON a request, and the request's id, which the reply carries too.

use std::time::Instant;

use axum::extract::{Request, State as Extract};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use serde_json::json;

use crate::ids;
use crate::state::App;

const ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest id that a client may choose.
const LONGEST: usize = 128;

/// Gives each request an id, unless it has one, and writes it down once its answer begins.
pub(crate) async fn log(Extract(app): Extract<App>, request: Request, next: Next) -> Response {
    let given = request.headers().get(&ID).filter(|id| id.len() <= LONGEST && id.to_str().is_ok()).cloned();
    let id = given.or_else(|| HeaderValue::from_str(&ids::new("req_")).ok());
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let began = Instant::now();
    let mut response = next.run(request).await;
    app.metrics.answered(response.status().as_u16());
    if let Some(sink) = &app.options.access_log {
        let line = json!({
            "time": jiff::Timestamp::now().to_string(),
            "id": id.as_ref().and_then(|id| id.to_str().ok()),
            "method": method,
            "path": path,
            "status": response.status().as_u16(),
            "ms": began.elapsed().as_secs_f64() * 1e3,
        });
        sink.write(&line.to_string());
    }
    if let Some(id) = id {
        response.headers_mut().insert(ID, id);
    }
    response
}
