//! Loads models when they are asked for, one after the other, and unloads those that were not asked for longest.
//!
//! *Invariants*: a model is unloaded only while the loader alone holds it: no request runs on it, and none can begin, since it is
//! handed out under the same lock. Models are loaded and unloaded one at a time, also where the client that it was for has gone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::{LoadLimits, ModelEntry, ModelSource, NamedModel, OpenError, POLL_INTERVAL, Row};
use crate::error::{ApiError, with_causes};
use crate::metrics::{self, Metrics};
use crate::options::ServerOptions;
use crate::{ids, parked};

/// Models of a source, some of them loaded.
pub(super) struct Loader {
    source: Arc<dyn ModelSource>,
    limits: LoadLimits,
    loaded: Mutex<Vec<Loaded>>,
    /// NamedModel while a model is loaded: two at once could take more memory than there is.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Counts requests, for which model was asked last.
    clock: AtomicU64,
}

/// The right to load or unload.
type Turn = OwnedMutexGuard<()>;

#[derive(Clone, Debug)]
struct Loaded {
    held: NamedModel,
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
        let (loaded, turn, clock) = (Mutex::default(), Arc::default(), AtomicU64::new(0));
        Self { source, limits, loaded, turn, clock }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Loaded>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn loaded(&self) -> Vec<NamedModel> {
        self.all().iter().map(|loaded| loaded.held.clone()).collect()
    }

    /// One that is loaded; without a name the one that was asked last. One whose thread has ended is not: it is loaded again.
    fn ready(&self, name: Option<&str>) -> Option<NamedModel> {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut all = self.all();
        let ended: Vec<Loaded> = all.extract_if(.., |loaded| !loaded.held.model.is_running()).collect();
        if !ended.is_empty() {
            // What is left of them may take a while to let go.
            spawn_blocking(move || drop(ended));
        }
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

    /// The model of that name, loaded where it has to be. A client that goes meanwhile waits for nothing any more; what it has begun
    /// to load is loaded.
    ///
    /// # Errors
    /// There is no such model, it cannot be loaded, or its turn and room for it did not come within the time of a reply.
    pub(super) async fn get(
        self: &Arc<Self>,
        name: Option<&str>,
        options: &Arc<ServerOptions>,
        metrics: &Arc<Metrics>,
    ) -> Result<NamedModel, ApiError> {
        let deadline = options.reply_deadline();
        if let Some(held) = self.ready(name) {
            return Ok(held);
        }
        let entry = self.entry(name).await?;
        let Ok(turn) = timeout_at(deadline, Arc::clone(&self.turn).lock_owned()).await else {
            let message = format!("`{}` cannot be loaded yet: other models are being loaded", entry.name);
            return Err(ApiError::NotLoaded(message));
        };
        // Another request may have had it loaded meanwhile.
        if let Some(held) = self.ready(Some(&entry.name)) {
            return Ok(held);
        }
        let turn = self.make_room(turn, &entry, deadline, options, metrics).await?;
        self.load(turn, entry, options, metrics).await
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
        mut turn: Turn,
        entry: &ModelEntry,
        deadline: Instant,
        options: &Arc<ServerOptions>,
        metrics: &Arc<Metrics>,
    ) -> Result<Turn, ApiError> {
        if !self.limits.fit(entry.bytes, [].into_iter()) {
            let (name, bytes) = (&entry.name, entry.bytes);
            let most = self.limits.bytes.unwrap_or_default();
            let message =
                format!("`{name}` takes {bytes} bytes, which is more than all models may: expected at most {most}");
            return Err(ApiError::NotLoaded(message));
        }
        loop {
            let idle = {
                let mut all = self.all();
                let sizes: Vec<u64> = all.iter().map(|loaded| loaded.bytes).collect();
                if self.limits.fit(entry.bytes, sizes.into_iter()) {
                    return Ok(turn);
                }
                let idle = all.iter().enumerate().filter(|(_, loaded)| Arc::strong_count(&loaded.held.model) == 1);
                idle.min_by_key(|(_, loaded)| loaded.asked).map(|(at, _)| at).map(|at| all.swap_remove(at))
            };
            match idle {
                Some(loaded) => turn = unload(turn, loaded, options, metrics).await?,
                None if Instant::now() >= deadline => {
                    let message = format!("no room for `{}`: requests run on all models that are loaded", entry.name);
                    return Err(ApiError::NotLoaded(message));
                }
                None => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }

    async fn load(
        self: &Arc<Self>,
        turn: Turn,
        entry: ModelEntry,
        options: &Arc<ServerOptions>,
        metrics: &Arc<Metrics>,
    ) -> Result<NamedModel, ApiError> {
        let (this, options, metrics, name) =
            (Arc::clone(self), Arc::clone(options), Arc::clone(metrics), entry.name.clone());
        let opened = spawn_blocking(move || {
            let opened = this.open(entry, &options, &metrics);
            drop(turn);
            opened
        });
        let failed = |why: String| ApiError::NotLoaded(format!("`{name}` cannot be loaded: {why}"));
        let opened = opened.await.map_err(|_| failed("it has failed".into()))?;
        opened.map_err(|error| failed(with_causes(&*error)))
    }

    /// Opens a model and hands it out from then on.
    fn open(&self, entry: ModelEntry, options: &ServerOptions, metrics: &Metrics) -> Result<NamedModel, OpenError> {
        let model = self.source.open(&entry.name)?;
        if let Some(folder) = parked::folder(options, Some(&entry.name)) {
            parked::restore(&model, &folder);
        }
        tracing::info!(model = entry.name, "a model is loaded");
        metrics::add(&metrics.loaded, 1);
        let held = NamedModel { name: entry.name.into(), model: Arc::new(model) };
        let asked = self.clock.fetch_add(1, Ordering::Relaxed);
        self.all().push(Loaded { held: held.clone(), bytes: entry.bytes, created: ids::now(), asked });
        Ok(held)
    }
}

/// Lets a model go, and keeps its slots where the options say so. The turn is given back once it is gone.
async fn unload(
    turn: Turn,
    loaded: Loaded,
    options: &Arc<ServerOptions>,
    metrics: &Arc<Metrics>,
) -> Result<Turn, ApiError> {
    let (options, metrics) = (Arc::clone(options), Arc::clone(metrics));
    let unloaded = spawn_blocking(move || {
        let name = Arc::clone(&loaded.held.name);
        if let Some(folder) = parked::folder(&options, Some(&name)) {
            parked::save(&loaded.held.model, &folder);
        }
        if let Ok(counts) = loaded.held.model.server().counts() {
            metrics.keep(&counts);
        }
        drop(loaded);
        tracing::info!(model = &*name, "a model is unloaded");
        metrics::add(&metrics.unloaded, 1);
        turn
    });
    unloaded.await.map_err(|_| ApiError::NotLoaded("a model could not be unloaded".into()))
}
