//! Connections: accepted, bounded in number, in time for a head and for what is not read, and drained at the end.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};

use crate::shutdown::Shutdown;
use crate::state::App;
use crate::tls::Acceptor;
use crate::write_timeout::WriteTimeout;

/// How long to wait where the system gives no connection: too many files are open.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts until the shutdown; returns when all connections are closed, or after the time to drain.
pub(crate) async fn serve(listener: TcpListener, tls: Option<Acceptor>, routes: Router, app: &App) {
    let places = Arc::new(Semaphore::new(app.options.max_connections.max(1)));
    // Each connection holds a sender: once all are gone the receiver knows.
    let (alive, mut all_gone) = mpsc::channel::<()>(1);
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            () = app.shutdown.begun() => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = app.shutdown.begun() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // Tokens are small and should not wait for more.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps its delay");
        }
        let stream = WriteTimeout::new(stream, app.options.write_timeout);
        let (routes, shutdown, alive) = (routes.clone(), app.shutdown.clone(), alive.clone());
        let read_timeout = app.options.read_timeout;
        let tls = tls.clone();
        tokio::spawn(async move {
            match tls {
                None => serve_connection(stream, routes, &shutdown, read_timeout).await,
                // A handshake has as much time as a head.
                Some(tls) => match tokio::time::timeout(read_timeout, tls.accept(stream)).await {
                    Ok(Ok(stream)) => serve_connection(stream, routes, &shutdown, read_timeout).await,
                    Ok(Err(error)) => tracing::debug!(%error, "a handshake failed"),
                    Err(_) => tracing::debug!("a handshake took too long"),
                },
            }
            drop((place, alive));
        });
    }
    drop((listener, alive));
    if tokio::time::timeout(app.options.drain, all_gone.recv()).await.is_err() {
        tracing::warn!("replies were cut off: they were not finished in time");
    }
}

/// Answers the requests of one connection.
async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    routes: Router,
    shutdown: &Shutdown,
    read_timeout: Duration,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(read_timeout);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.begun() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
