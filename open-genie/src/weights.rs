//! The check of a bundle's weights: whatever their size, once per file, before anything that depends on them is kept.
//!
//! | file | compared with | when |
//! |---|---|---|
//! | of the embedded backend, up to 64 MiB | its own checksums | whenever it is loaded, by the backend |
//! | of the embedded backend, larger | its own checksums (xxh3) | once per file |
//! | of another backend, token embeddings | the manifest (SHA-256) | once per file |
//! | of another backend, without manifest | nothing there is; said in the log | |
//!
//! *Once per file*: a stamp in the cache folder remembers it, see [`genie_bundle::stamps`]. *When*: from the first token of
//! the first reply on, in a thread of the lowest priority; whoever needs the answer (the second prompt, saving) does the
//! rest at once, so that no one waits for a thread that the system does not run. Files are opened before the graphs
//! are loaded: a bundle that is compiled again meanwhile raises no alarm.
//!
//! *Trap*: a file that is changed while it is mapped gives other tokens at once, and the change may come after its bytes
//! were compared. Nothing can be done about that from here.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use dialog::DialogConfig;
use genie_bundle::stamps::{FileIdentity, Known, Stamps};
use genie_bundle::{BundleError, FileCheck, MANIFEST_FILE, Manifest};
use qnn_host::container::{SumsError, WeightSums};

use crate::Error;

/// Bytes between two looks at whether to stop.
const STEP: usize = 256 << 10;

/// What is wrong with a file of weights.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightFault {
    /// It differs from the manifest, or cannot be read.
    #[error(transparent)]
    Manifest(#[from] Arc<BundleError>),
    /// It differs from the checksums in it, or cannot be read.
    #[error(transparent)]
    Checksums(#[from] SumsError),
}

/// How much is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// What neither the backend has compared nor a stamp vouches for.
    Unknown,
    /// Every file, and the manifest's hash of each if it has one.
    All,
}

/// A file to compare.
enum Job {
    Manifest(Box<FileCheck>),
    Checksums(Box<SumsJob>),
}

/// A file with checksums of its own.
struct SumsJob {
    path: PathBuf,
    sums: WeightSums,
    identity: Option<(FileIdentity, Stamps)>,
    began: Option<SystemTime>,
}

/// The check of a bundle, which may be going on.
pub(crate) struct WeightCheck {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    work: Mutex<Work>,
    /// The thread is to leave the rest.
    stop: AtomicBool,
    /// Nothing is left, or a file is damaged.
    over: AtomicBool,
}

struct Work {
    jobs: VecDeque<Job>,
    outcome: Result<(), (PathBuf, WeightFault)>,
}

impl WeightCheck {
    /// Opens the files that are to be compared; reads nothing of them but headers.
    pub(crate) fn of(config: &DialogConfig, cache_folder: Option<&Path>) -> Self {
        let stamps = cache_folder.map(Stamps::in_folder).or_else(Stamps::of_user);
        Self::with(config, Extent::Unknown, stamps)
    }

    /// Compares every file of the weights with the manifest's hash and with its own checksums, now.
    pub(crate) fn in_full(config: &DialogConfig) -> Result<(), Error> {
        Self::with(config, Extent::All, None).finish()
    }

    fn with(config: &DialogConfig, extent: Extent, stamps: Option<Stamps>) -> Self {
        let manifest = manifest(config.base());
        let mut work = Work { jobs: VecDeque::new(), outcome: Ok(()) };
        let engine = config.engine();
        let files = engine.ctx_bins.iter().chain(engine.embedding.as_ref().map(|table| &table.path));
        for path in files {
            // A file that is not there, or whose header is damaged, is refused by whoever loads it.
            if let Err(fault) = work.add(path, config.base(), manifest.as_ref(), extent, stamps.as_ref()) {
                tracing::debug!("`{}` is left to its loader: {fault}", path.display());
            }
        }
        let over = AtomicBool::new(work.jobs.is_empty());
        Self { shared: Arc::new(Shared { work: Mutex::new(work), stop: AtomicBool::new(false), over }), thread: None }
    }

    /// Goes on in a thread of its own, if there is anything to do.
    pub(crate) fn start(&mut self) {
        if self.thread.is_some() || self.shared.over.load(Ordering::Acquire) {
            return;
        }
        let shared = self.shared.clone();
        let run = move || {
            lowest_priority();
            loop {
                if shared.stop.load(Ordering::Relaxed) || shared.step() {
                    return;
                }
            }
        };
        match std::thread::Builder::new().name("weight-check".into()).spawn(run) {
            Ok(thread) => self.thread = Some(thread),
            // Whoever needs the answer does it then.
            Err(error) => tracing::debug!("the weights are checked later: no thread: {error}"),
        }
    }

    /// Does what is left, and says whether the weights are right.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        if !self.shared.over.load(Ordering::Acquire) {
            let began = Instant::now();
            self.shared.stop.store(true, Ordering::Relaxed);
            while !self.shared.step() {}
            tracing::debug!("the rest of the weights was checked in {:?}", began.elapsed());
        }
        let work = self.shared.work.lock().unwrap_or_else(PoisonError::into_inner);
        match &work.outcome {
            Ok(()) => Ok(()),
            Err((path, source)) => Err(Error::DamagedWeights { path: path.clone(), source: source.clone() }),
        }
    }
}

impl Drop for WeightCheck {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It ends after its step; a panic there was logged, and the lock says nothing is known.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for WeightCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WeightCheck").field("over", &self.shared.over).finish_non_exhaustive()
    }
}

impl Shared {
    /// Compares a little more; returns whether nothing is left.
    fn step(&self) -> bool {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let over = work.step();
        if over {
            self.over.store(true, Ordering::Release);
        }
        over
    }
}

impl Work {
    fn add(
        &mut self,
        path: &Path,
        base: &Path,
        manifest: Option<&Manifest>,
        extent: Extent,
        stamps: Option<&Stamps>,
    ) -> Result<(), WeightFault> {
        let entry = manifest.and_then(|manifest| FileCheck::entry(manifest, base, path));
        let file = File::open(path).map_err(SumsError::from)?;
        let identity = FileIdentity::of(&file).zip(stamps.cloned());
        let sums = WeightSums::open(file)?;
        let hashed = |entry| FileCheck::open(path, entry, stamps.cloned()).map_err(Arc::new);
        let by_sums = sums.is_some();
        if let Some(sums) = sums {
            let known = || identity.as_ref().is_some_and(|(file, stamps)| stamps.known(file).checksums);
            if extent == Extent::All || !(sums.are_compared_on_load() || known()) {
                let job = SumsJob { path: path.to_owned(), sums, identity, began: None };
                self.jobs.push_back(Job::Checksums(Box::new(job)));
            }
        }
        match entry {
            Some(entry) if extent == Extent::All || !by_sums => {
                self.jobs.push_back(Job::Manifest(Box::new(hashed(entry)?)))
            }
            None if !by_sums => {
                tracing::info!("`{}` is in no manifest: its content cannot be checked", path.display());
            }
            _ => {}
        }
        Ok(())
    }

    fn step(&mut self) -> bool {
        let Some(job) = self.jobs.front_mut() else { return true };
        match job.step() {
            Ok(false) => {}
            Ok(true) => {
                tracing::debug!("the weights in `{}` are as they were written", job.path().display());
                self.jobs.pop_front();
            }
            Err(fault) => {
                self.outcome = Err((job.path().to_owned(), fault));
                self.jobs.clear();
            }
        }
        self.jobs.is_empty()
    }
}

impl Job {
    fn path(&self) -> &Path {
        match self {
            Self::Manifest(check) => check.path(),
            Self::Checksums(job) => &job.path,
        }
    }

    fn step(&mut self) -> Result<bool, WeightFault> {
        match self {
            Self::Manifest(check) => Ok(check.step(STEP).map_err(Arc::new)?),
            Self::Checksums(job) => Ok(job.step()?),
        }
    }
}

impl SumsJob {
    fn step(&mut self) -> Result<bool, SumsError> {
        let began = *self.began.get_or_insert_with(SystemTime::now);
        let over = self.sums.step(STEP)?;
        if let (true, Some((identity, stamps))) = (over, &self.identity)
            && identity.is_settled(began)
            && FileIdentity::of(self.sums.file()).as_ref() == Some(identity)
        {
            stamps.learn(identity, Known { sha256: None, checksums: true });
        }
        Ok(over)
    }
}

/// The manifest of a bundle; one that is there and cannot be read is logged.
fn manifest(base: &Path) -> Option<Manifest> {
    match Manifest::read(base) {
        Ok(manifest) => Some(manifest),
        Err(_) if !base.join(MANIFEST_FILE).exists() => None,
        Err(error) => {
            tracing::warn!("the manifest is not used: {error}");
            None
        }
    }
}

/// Lets everything else run first. Where the system refuses, the thread only takes its share.
fn lowest_priority() {
    // On Linux this is the calling thread alone, elsewhere it would be the whole program.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = rustix::process::setpriority_process(None, 19);
}
