//! The server as a program has it: bound to an address, run until its shutdown.

use std::fs::File;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use crate::error::ServerError;
use crate::events::Recording;
use crate::models::Models;
use crate::options::ServerOptions;
use crate::shutdown::Shutdown;
use crate::state::App;
use crate::tls::Acceptor;
use crate::{connection, parked, routes};

/// Threads that may wait in blocking calls: each request in the making has one.
const BLOCKING: usize = 2048;

/// A server that listens.
pub struct HttpServer {
    runtime: Runtime,
    listener: tokio::net::TcpListener,
    address: SocketAddr,
    tls: Option<Acceptor>,
    app: App,
    /// The lock of the folder in which slots are kept.
    kept: Option<File>,
}

impl std::fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl HttpServer {
    /// Listens, and answers nothing yet.
    ///
    /// # Errors
    /// The options are open to everyone, or do not go with several models; the address is taken.
    pub fn bind(models: impl Into<Models>, options: ServerOptions) -> Result<Self, ServerError> {
        options.check()?;
        let tls = options.tls.as_ref().map(Acceptor::new).transpose()?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(BLOCKING)
            .thread_name("http")
            .enable_all()
            .build()
            .map_err(ServerError::Runtime)?;
        let wanted = SocketAddr::new(options.host, options.port);
        let failed = |source| ServerError::Listen { address: wanted.to_string(), source };
        let listener = runtime.block_on(tokio::net::TcpListener::bind(wanted)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let app = App::new(models.into(), options)?;
        let kept = parked::lock(&app.options)?;
        app.models.restore_slots(&app.options);
        Ok(Self { runtime, listener, address, tls, app, kept })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What ends it.
    pub fn shutdown(&self) -> Shutdown {
        self.app.shutdown.clone()
    }

    /// Answers until its shutdown, and finishes the replies that are in the making then.
    ///
    /// # Errors
    /// The recording that the options want cannot begin.
    pub fn run(self) -> Result<(), ServerError> {
        let Self { runtime, listener, tls, app, kept, .. } = self;
        let (models, options) = (Arc::clone(&app.models), Arc::clone(&app.options));
        let recording = Recording::begin(&app)?;
        runtime.block_on(connection::serve(listener, tls, routes::all(app.clone()), &app));
        drop(app);
        // What is left hangs in calls whose clients are gone; the model's thread ends below.
        runtime.shutdown_timeout(options.drain.min(std::time::Duration::from_secs(1)));
        models.save_slots(&options);
        drop(models);
        drop(kept);
        // With the model its steps end: the last of them are written now.
        drop(recording);
        Ok(())
    }
}
