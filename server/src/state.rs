//! What all routes share, and what the routes of a model get.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::error::{ApiError, ServerError};
use crate::events::Listeners;
use crate::metrics::Metrics;
use crate::models::{Models, NamedModel};
use crate::options::ServerOptions;
use crate::served_model::ServedModel;
use crate::shutdown::Shutdown;

/// Requests that are prepared at a time: templates rendered, texts turned into tokens. More would take cores from the model.
const PREPARED_AT_ONCE: usize = 4;

/// What all routes share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) models: Arc<Models>,
    pub(crate) options: Arc<ServerOptions>,
    pub(crate) shutdown: Shutdown,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) listeners: Listeners,
    preparing: Arc<Semaphore>,
}

/// The same with the model that a request is for. Cheap to clone.
#[derive(Clone)]
pub(crate) struct State {
    name: Arc<str>,
    pub(crate) model: Arc<ServedModel>,
    pub(crate) options: Arc<ServerOptions>,
    pub(crate) shutdown: Shutdown,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) listeners: Listeners,
    preparing: Arc<Semaphore>,
}

impl App {
    /// Before the first request.
    pub(crate) fn new(models: Models, options: ServerOptions) -> Result<Self, ServerError> {
        if let Some(path) = &options.slot_folder {
            let failed = |source| ServerError::SlotFolder { path: path.clone(), source };
            std::fs::create_dir_all(path).map_err(failed)?;
        }
        let (models, options) = (Arc::new(models), Arc::new(options));
        Ok(Self {
            models,
            options,
            shutdown: Shutdown::new(),
            metrics: Arc::default(),
            listeners: Listeners::default(),
            preparing: Arc::new(Semaphore::new(PREPARED_AT_ONCE)),
        })
    }

    /// With the model of that name, loaded where it has to be.
    pub(crate) async fn with_model(&self, name: Option<&str>) -> Result<State, ApiError> {
        let NamedModel { name, model } = self.models.get(name, &self.options, &self.metrics).await?;
        let Self { options, shutdown, metrics, listeners, preparing, .. } = self.clone();
        Ok(State { name, model, options, shutdown, metrics, listeners, preparing })
    }
}

impl State {
    /// The model's name in replies.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Asks the model's thread, which answers between two steps.
    ///
    /// # Errors
    /// What is asked has panicked.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        what: impl FnOnce(&ServedModel) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let model = Arc::clone(&self.model);
        let asked = spawn_blocking(move || what(&model)).await;
        asked.map_err(|_| ApiError::Internal("the model's thread could not be asked".into()))
    }

    /// Does work that takes a processor long (templates, tokens) on a thread that serves no connection, so that no stream waits for
    /// it. A client that goes before its turn leaves no work behind.
    ///
    /// # Errors
    /// Those of the work; it has panicked.
    pub(crate) async fn prepare<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let failed = || ApiError::Internal("the request could not be prepared".into());
        let place = Arc::clone(&self.preparing).acquire_owned().await.map_err(|_| failed())?;
        let state = self.clone();
        let done = spawn_blocking(move || {
            let done = work(&state);
            drop(place);
            done
        });
        done.await.map_err(|_| failed())?
    }
}
