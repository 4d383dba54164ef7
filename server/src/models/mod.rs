//! The models of a server: one that is always there, or those of a folder, which are loaded when a request names them.

mod loaded;
mod source;

use std::sync::Arc;
use std::time::Duration;

use crate::error::ApiError;
use crate::ids;
use crate::metrics::Metrics;
use crate::options::ServerOptions;
use crate::parked;
use crate::served_model::ServedModel;
use loaded::Loader;

pub use source::{LoadLimits, ModelEntry, ModelSource, OpenError};

/// What a server serves.
#[derive(Debug)]
pub struct Models(Kind);

#[derive(Debug)]
enum Kind {
    One { model: Arc<ServedModel>, created: u64 },
    Loader(Arc<Loader>),
}

impl From<ServedModel> for Models {
    fn from(model: ServedModel) -> Self {
        Self(Kind::One { model: Arc::new(model), created: ids::now() })
    }
}

/// A model that answers a request. While it is held it is not unloaded.
#[derive(Clone, Debug)]
pub(crate) struct NamedModel {
    /// As replies call it.
    pub(crate) name: Arc<str>,
    pub(crate) model: Arc<ServedModel>,
}

/// A model as `GET /v1/models` shows it.
pub(crate) struct Row {
    pub(crate) name: Arc<str>,
    /// Where it is loaded.
    pub(crate) model: Option<Arc<ServedModel>>,
    pub(crate) created: u64,
    pub(crate) bytes: Option<u64>,
}

impl Models {
    /// Those of a source: each is loaded at the first request that names it, and unloaded where another one needs its room.
    pub fn on_demand(source: impl ModelSource, limits: LoadLimits) -> Self {
        Self(Kind::Loader(Arc::new(Loader::new(Arc::new(source), limits))))
    }

    /// Whether it is one model, whatever requests call it.
    pub(crate) fn is_one(&self) -> bool {
        matches!(self.0, Kind::One { .. })
    }

    /// The only model, where there is only one.
    pub(crate) fn one(&self) -> Option<&Arc<ServedModel>> {
        match &self.0 {
            Kind::One { model, .. } => Some(model),
            Kind::Loader(_) => None,
        }
    }

    /// The model of that name, loaded where it has to be. Without a name: the one that was asked last, else the first.
    pub(crate) async fn get(
        &self,
        name: Option<&str>,
        options: &Arc<ServerOptions>,
        metrics: &Arc<Metrics>,
    ) -> Result<NamedModel, ApiError> {
        match &self.0 {
            Kind::One { model, .. } => {
                let name = options.alias.as_deref().unwrap_or(model.name());
                Ok(NamedModel { name: name.into(), model: Arc::clone(model) })
            }
            Kind::Loader(loader) => loader.get(name, options, metrics).await,
        }
    }

    /// All there are, by name.
    pub(crate) async fn rows(&self, options: &ServerOptions) -> Result<Vec<Row>, ApiError> {
        match &self.0 {
            Kind::One { model, created } => {
                let name = options.alias.as_deref().unwrap_or(model.name()).into();
                Ok(vec![Row { name, model: Some(Arc::clone(model)), created: *created, bytes: None }])
            }
            Kind::Loader(loader) => loader.rows().await,
        }
    }

    /// Those that are loaded.
    pub(crate) fn loaded(&self) -> Vec<NamedModel> {
        match &self.0 {
            Kind::One { model, .. } => vec![NamedModel { name: model.name().into(), model: Arc::clone(model) }],
            Kind::Loader(loader) => loader.loaded(),
        }
    }

    /// Reads the slots of the last run, where the options keep them.
    pub(crate) fn restore_slots(&self, options: &ServerOptions) {
        if let (Kind::One { model, .. }, Some(folder)) = (&self.0, parked::folder(options, None)) {
            let n_slots = parked::restore(model, &folder);
            tracing::info!(n_slots, "slots of the last run");
        }
    }

    /// Writes the slots for the next run, where the options keep them.
    pub(crate) fn save_slots(&self, options: &ServerOptions) {
        for held in self.loaded() {
            let name = (!self.is_one()).then_some(&*held.name);
            if let Some(folder) = parked::folder(options, name) {
                let n_slots = parked::save(&held.model, &folder);
                tracing::info!(n_slots, model = &*held.name, "slots for the next run");
            }
        }
    }
}

/// How often a loader looks whether a model has become idle.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
