//! Loads models when they are asked for, one after the other, and unloads those that were not asked for longest.
//!
//! *Invariant*: a model is unloaded only while the loader alone holds it: no request runs on it, and none can begin, since it is
//! handed out under the same lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::task::spawn_blocking;

use super::{Held, LOOK, LoadLimits, ModelEntry, ModelSource, Row};
use crate::error::{ApiError, with_causes};
use crate::metrics::{self, Metrics};
use crate::options::ServerOptions;
use crate::{ids, parked};

/// Models of a source, some of them loaded.
pub(super) struct Loader {
    source: Arc<dyn ModelSource>,
    limits: LoadLimits,
    loaded: Mutex<Vec<Loaded>>,
    /// Held while a model is loaded: two at once could take more memory than there is.
    turn: tokio::sync::Mutex<()>,
    /// Counts requests, for which model was asked last.
    clock: AtomicU64,
}

#[derive(Clone, Debug)]
struct Loaded {
    held: Held,
    bytes: u64,
    created: u64,
    /// The clock when it was asked for.
    asked: u64,
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader")
            .field("limits", &self.limits)
            .field("loaded", &self.all().len())
            .finish_non_exhaustive()
    }
}

impl Loader {
    pub(super) fn new(source: Arc<dyn ModelSource>, limits: LoadLimits) -> Self {
        let (loaded, turn, clock) = (Mutex::default(), tokio::sync::Mutex::default(), AtomicU64::new(0));
        Self { source, limits, loaded, turn, clock }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Loaded>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn loaded(&self) -> Vec<Held> {
        self.all().iter().map(|loaded| loaded.held.clone()).collect()
    }

    /// One that is loaded; without a name the one that was asked last.
    fn ready(&self, name: Option<&str>) -> Option<Held> {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut all = self.all();
        let found = match name {
            Some(name) => all.iter_mut().find(|loaded| &*loaded.held.name == name),
            None => all.iter_mut().max_by_key(|loaded| loaded.asked),
        };
        found.map(|loaded| {
            loaded.asked = now;
            loaded.held.clone()
        })
    }

    async fn entries(&self) -> Result<Vec<ModelEntry>, ApiError> {
        let source = Arc::clone(&self.source);
        let listed = spawn_blocking(move || source.list()).await;
        let listed = listed.map_err(|_| ApiError::NotLoaded("the models cannot be listed".into()))?;
        listed.map_err(|error| ApiError::NotLoaded(format!("the models cannot be listed: {}", with_causes(&*error))))
    }

    /// All there are; of those that are loaded also what is known of them.
    pub(super) async fn rows(&self) -> Result<Vec<Row>, ApiError> {
        let entries = self.entries().await?;
        let all = self.all();
        let row = |entry: ModelEntry| {
            let loaded = all.iter().find(|loaded| *loaded.held.name == entry.name);
            Row {
                name: entry.name.into(),
                model: loaded.map(|loaded| Arc::clone(&loaded.held.model)),
                created: loaded.map_or(0, |loaded| loaded.created),
                bytes: Some(entry.bytes),
            }
        };
        Ok(entries.into_iter().map(row).collect())
    }

    pub(super) async fn get(
        self: &Arc<Self>,
        name: Option<&str>,
        options: &Arc<ServerOptions>,
        metrics: &Arc<Metrics>,
    ) -> Result<Held, ApiError> {
        if let Some(held) = self.ready(name) {
            return Ok(held);
        }
        let entry = self.entry(name).await?;
        let (this, options, metrics) = (Arc::clone(self), Arc::clone(options), Arc::clone(metrics));
        // A task of its own: a client that goes leaves no load behind that nothing waits for.
        let brought = tokio::spawn(async move { this.bring(entry, &options, &metrics).await });
        brought.await.map_err(|_| ApiError::NotLoaded("the model could not be loaded".into()))?
    }

    /// Loads a model at its turn.
    async fn bring(
        &self,
        entry: ModelEntry,
        options: &Arc<ServerOptions>,
        metrics: &Arc<Metrics>,
    ) -> Result<Held, ApiError> {
        let _turn = self.turn.lock().await;
        // Another request may have had it loaded meanwhile.
        if let Some(held) = self.ready(Some(&entry.name)) {
            return Ok(held);
        }
        self.make_room(&entry, options, metrics).await?;
        self.load(entry, options, metrics).await
    }

    async fn entry(&self, name: Option<&str>) -> Result<ModelEntry, ApiError> {
        let mut entries = self.entries().await?;
        let at = match name {
            Some(name) => entries.iter().position(|entry| entry.name == name),
            None => (!entries.is_empty()).then_some(0),
        };
        match at {
            Some(at) => Ok(entries.swap_remove(at)),
            None => {
                let names: Vec<String> = entries.into_iter().map(|entry| format!("`{}`", entry.name)).collect();
                let served = if names.is_empty() { "no model".to_owned() } else { names.join(", ") };
                Err(ApiError::NoModel { model: name.unwrap_or_default().to_owned(), served })
            }
        }
    }

    /// Unloads idle models, the one that was not asked for longest first, until the new one fits.
    async fn make_room(
        &self,
        entry: &ModelEntry,
        options: &Arc<ServerOptions>,
        metrics: &Arc<Metrics>,
    ) -> Result<(), ApiError> {
        if !self.limits.fit(entry.bytes, [].into_iter()) {
            let (name, bytes) = (&entry.name, entry.bytes);
            let most = self.limits.bytes.unwrap_or_default();
            let message =
                format!("`{name}` takes {bytes} bytes, which is more than all models may: expected at most {most}");
            return Err(ApiError::NotLoaded(message));
        }
        let deadline = Instant::now() + options.reply_timeout;
        loop {
            let idle = {
                let mut all = self.all();
                let sizes: Vec<u64> = all.iter().map(|loaded| loaded.bytes).collect();
                if self.limits.fit(entry.bytes, sizes.into_iter()) {
                    return Ok(());
                }
                let idle = all.iter().enumerate().filter(|(_, loaded)| Arc::strong_count(&loaded.held.model) == 1);
                idle.min_by_key(|(_, loaded)| loaded.asked).map(|(at, _)| at).map(|at| all.swap_remove(at))
            };
            match idle {
                Some(loaded) => self.unload(loaded, options, metrics).await?,
                None if Instant::now() >= deadline => {
                    let message = format!("no room for `{}`: requests run on all models that are loaded", entry.name);
                    return Err(ApiError::NotLoaded(message));
                }
                None => tokio::time::sleep(LOOK).await,
            }
        }
    }

    async fn unload(
        &self,
        loaded: Loaded,
        options: &Arc<ServerOptions>,
        metrics: &Arc<Metrics>,
    ) -> Result<(), ApiError> {
        let (options, metrics) = (Arc::clone(options), Arc::clone(metrics));
        let unloaded = spawn_blocking(move || {
            let name = &loaded.held.name;
            if let Some(folder) = parked::folder(&options, Some(name)) {
                parked::save(&loaded.held.model, &folder);
            }
            if let Ok(counts) = loaded.held.model.server().counts() {
                metrics.keep(&counts);
            }
            tracing::info!(model = &**name, "a model is unloaded");
            metrics::add(&metrics.unloaded, 1);
        });
        unloaded.await.map_err(|_| ApiError::NotLoaded("a model could not be unloaded".into()))
    }

    async fn load(
        &self,
        entry: ModelEntry,
        options: &Arc<ServerOptions>,
        metrics: &Arc<Metrics>,
    ) -> Result<Held, ApiError> {
        let (source, options, name) = (Arc::clone(&self.source), Arc::clone(options), entry.name.clone());
        let opened = spawn_blocking(move || {
            let model = source.open(&name)?;
            if let Some(folder) = parked::folder(&options, Some(&name)) {
                parked::restore(&model, &folder);
            }
            Ok(model)
        });
        let failed = |why: String| ApiError::NotLoaded(format!("`{}` cannot be loaded: {why}", entry.name));
        let opened: Result<_, super::OpenError> = opened.await.map_err(|_| failed("it has failed".into()))?;
        let model = Arc::new(opened.map_err(|error| failed(with_causes(&*error)))?);
        tracing::info!(model = entry.name, "a model is loaded");
        metrics::add(&metrics.loaded, 1);
        let held = Held { name: entry.name.into(), model };
        let asked = self.clock.fetch_add(1, Ordering::Relaxed);
        self.all().push(Loaded { held: held.clone(), bytes: entry.bytes, created: ids::now(), asked });
        Ok(held)
    }
}
