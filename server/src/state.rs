//! What all routes share, and what the routes of a model get.

use std::sync::Arc;

use open_genie::serving::Server;
use tokio::task::spawn_blocking;

use crate::error::{ApiError, ServerError};
use crate::events::Listeners;
use crate::metrics::Metrics;
use crate::models::{Held, Models};
use crate::options::ServerOptions;
use crate::served_model::ServedModel;
use crate::shutdown::Shutdown;

/// What all routes share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) models: Arc<Models>,
    pub(crate) options: Arc<ServerOptions>,
    pub(crate) shutdown: Shutdown,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) listeners: Listeners,
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
        })
    }

    /// With the model of that name, loaded where it has to be.
    pub(crate) async fn with_model(&self, name: Option<&str>) -> Result<State, ApiError> {
        let Held { name, model } = self.models.get(name, &self.options, &self.metrics).await?;
        let Self { options, shutdown, metrics, listeners, .. } = self.clone();
        Ok(State { name, model, options, shutdown, metrics, listeners })
    }
}

impl State {
    /// The model's name in replies.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Asks the model's thread, which answers between two steps.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Server) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let model = Arc::clone(&self.model);
        let asked = spawn_blocking(move || what(model.server())).await;
        asked.map_err(|_| ApiError::Internal("the model's thread could not be asked".into()))
    }
}
