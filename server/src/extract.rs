//! What routes take of a request: its body, its query, its path, and the model that it names.

use axum::RequestPartsExt;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::body::JsonBody;
use crate::error::ApiError;
use crate::state::{App, State};

/// A body, and the model that its `model` names.
pub(crate) struct ModelRequest {
    pub(crate) state: State,
    pub(crate) body: Value,
}

/// The model that the query's `model` names.
pub(crate) struct QueryModel(pub(crate) State);

/// The query; one that cannot be read is refused as a body is.
pub(crate) struct QueryParams<T>(pub(crate) T);

/// The part of the path that a route leaves open.
pub(crate) struct PathTail(pub(crate) String);

#[derive(Deserialize)]
struct ModelName {
    model: Option<String>,
}

impl FromRequest<App> for ModelRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let JsonBody(body) = JsonBody::from_request(request, app).await?;
        // Where there is one model, it answers whatever it is called.
        let name = match body.get("model") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name.as_str()),
            Some(_) if app.models.is_one() => None,
            Some(_) => return Err(ApiError::invalid("model", "`model`: expected a name")),
        };
        Ok(Self { state: app.with_model(name).await?, body })
    }
}

impl FromRequestParts<App> for QueryModel {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let QueryParams(ModelName { model }) = parts.extract_with_state(app).await?;
        Ok(Self(app.with_model(model.as_deref()).await?))
    }
}

impl<T: DeserializeOwned + 'static> FromRequestParts<App> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        // Numbers in a query are texts: what is wrong with one is said without its key, so the query is shown.
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let read = Query::<T>::try_from_uri(&parts.uri);
        let Query(value) = read.map_err(|error| {
            let why = error.body_text();
            ApiError::invalid("", format!("the query `{}` cannot be read: {why}", query.escape_debug()))
        })?;
        Ok(Self(value))
    }
}

impl FromRequestParts<App> for PathTail {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        let read = parts.extract::<Path<String>>().await;
        let Path(tail) = read.map_err(|error| ApiError::invalid("id", format!("the path: {}", error.body_text())))?;
        Ok(Self(tail))
    }
}
