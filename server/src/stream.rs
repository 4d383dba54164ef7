//! Server-sent events: a task writes them, the connection reads them, and the task ends when the connection does.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::error::ApiError;
use crate::state::State;

/// Writes events. Each call fails once the client is gone. Clones write to the same client.
#[derive(Clone)]
pub(crate) struct EventSender {
    out: mpsc::Sender<Bytes>,
    write_timeout: Duration,
    keep_alive: Duration,
}

/// The client reads no more.
#[derive(Debug)]
pub(crate) struct ClientGone;

/// What ends a stream early.
pub(crate) enum StreamEnd {
    Gone,
    Error(ApiError),
}

impl From<ClientGone> for StreamEnd {
    fn from(_: ClientGone) -> Self {
        Self::Gone
    }
}

impl From<ApiError> for StreamEnd {
    fn from(error: ApiError) -> Self {
        Self::Error(error)
    }
}

struct Pieces(mpsc::Receiver<Bytes>);

impl Stream for Pieces {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|piece| piece.map(Ok))
    }
}

impl EventSender {
    async fn send(&self, text: String) -> Result<(), ClientGone> {
        match tokio::time::timeout(self.write_timeout, self.out.send(text.into())).await {
            Ok(Ok(())) => Ok(()),
            // Gone, or as good as gone.
            Ok(Err(_)) | Err(_) => Err(ClientGone),
        }
    }

    /// An event without a name.
    pub(crate) async fn data(&self, value: &Value) -> Result<(), ClientGone> {
        self.send(format!("data: {value}\n\n")).await
    }

    /// An event with a name.
    pub(crate) async fn event(&self, name: &str, value: &Value) -> Result<(), ClientGone> {
        self.send(format!("event: {name}\ndata: {value}\n\n")).await
    }

    /// OpenAI's last line.
    pub(crate) async fn done(&self) -> Result<(), ClientGone> {
        self.send("data: [DONE]\n\n".into()).await
    }

    /// Waits for something while the client is there; comments fill long silences.
    pub(crate) async fn wait<T>(&self, what: impl Future<Output = T>) -> Result<T, ClientGone> {
        let mut what = std::pin::pin!(what);
        loop {
            tokio::select! {
                biased;
                done = &mut what => return Ok(done),
                () = self.out.closed() => return Err(ClientGone),
                () = tokio::time::sleep(self.keep_alive) => self.send(": keep-alive\n\n".into()).await?,
            }
        }
    }
}

/// An event that ends a stream with an error.
pub(crate) struct ErrorEvent {
    /// Its name, where the interface gives events names.
    pub(crate) name: Option<&'static str>,
    pub(crate) data: Value,
}

impl ErrorEvent {
    /// In OpenAI's form and llama.cpp's, without a name.
    pub(crate) fn of_openai(error: &ApiError) -> Self {
        Self { name: None, data: error.to_json() }
    }
}

/// Answers with a stream of replies that `write` fills. Status and headers are out before an error is known, so it becomes an event,
/// in the form that `error_event` gives it.
pub(crate) fn reply<F, Fut>(state: &State, error_event: fn(&ApiError) -> ErrorEvent, write: F) -> Response
where
    F: FnOnce(EventSender) -> Fut + Send + 'static,
    Fut: Future<Output = Result<(), StreamEnd>> + Send + 'static,
{
    respond(state, move |out| async move {
        let end = out.clone();
        if let Err(StreamEnd::Error(error)) = write(out).await {
            error.log();
            let ErrorEvent { name, data } = error_event(&error);
            let sent = match name {
                Some(name) => end.event(name, &data).await,
                None => end.data(&data).await,
            };
            if sent.is_err() {
                tracing::debug!(%error, "a client was gone before its error");
            }
        }
    })
}

/// Answers with a stream that `write` fills.
pub(crate) fn respond<F, Fut>(state: &State, write: F) -> Response
where
    F: FnOnce(EventSender) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let (out, pieces) = mpsc::channel(16);
    let options = &state.options;
    let sender = EventSender { out, write_timeout: options.write_timeout, keep_alive: options.keep_alive };
    tokio::spawn(write(sender));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(Pieces(pieces))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The client is connected, and reads nothing: once what may lie about is full, it counts as gone.
    #[tokio::test]
    async fn a_client_that_does_not_read_is_gone() {
        let (out, unread) = mpsc::channel(2);
        let sender = EventSender { out, write_timeout: Duration::from_millis(1), keep_alive: Duration::from_secs(60) };
        let event = Value::from("x");
        assert!(sender.data(&event).await.is_ok() && sender.data(&event).await.is_ok());
        assert!(sender.data(&event).await.is_err());
        drop(unread);
        assert!(sender.wait(std::future::pending::<()>()).await.is_err());
    }

    #[tokio::test]
    async fn silence_is_filled() {
        let (out, mut read) = mpsc::channel(2);
        let sender = EventSender { out, write_timeout: Duration::from_secs(60), keep_alive: Duration::from_millis(1) };
        let reader = async {
            let first = read.recv().await;
            drop(read);
            first
        };
        let (waited, first) = tokio::join!(sender.wait(std::future::pending::<()>()), reader);
        assert!(waited.is_err());
        assert_eq!(first.as_deref(), Some(b": keep-alive\n\n".as_slice()));
    }
}
