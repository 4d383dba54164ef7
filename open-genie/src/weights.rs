//! The check of a bundle's weights: whatever their size, once per file, before anything that depends on them is kept.
//!
//! | file | compared with | when |
//! |---|---|---|
//! | in the manifest | its length there | before the first token |
//! | the same, 2 MiB of such files | its SHA-256 there | before the first token |
//! | the same, larger | its SHA-256 there | once per file |
//! | in no manifest, of the embedded backend, up to 64 MiB | its own checksums | whenever it is loaded, by the backend |
//! | in no manifest, of the embedded backend, larger | its own checksums (xxh3) | once per file |
//! | in no manifest, of another backend, token embeddings | nothing there is; said in the log | |
//!
//! *Once per file*: a stamp in the cache folder remembers it, see [`genie_bundle::stamps`]. *When*: from the first token of
//! the first reply on, in a thread of the lowest priority; whoever needs the answer (the second prompt, saving) does the
//! rest at once, so that no one waits for a thread that the system does not run. The files are opened as soon as the graphs
//! are loaded: a bundle that is compiled again later raises no alarm.
//!
//! *Trap*: a file that is changed while it is mapped gives other tokens at once, and the change may come after its bytes
//! were compared. Nothing can be done about that from here.

mod fault;
mod job;

pub use fault::WeightFault;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use dialog::DialogConfig;
use genie_bundle::stamps::Stamps;
use genie_bundle::{FileCheck, MANIFEST_FILE, Manifest};

use crate::Error;
use job::{Checksums, Finding, Job, SumsJob};

/// Bytes that are compared with the manifest before the first token, all files together: a few milliseconds.
const AT_ONCE: u64 = 2 << 20;
/// Times that a manifest is read which changes while the files are opened.
const MOST_READS: usize = 4;

/// How much is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// What neither the backend has compared nor a stamp vouches for.
    Unknown,
    /// Every file, with the manifest's hash and its own checksums, as far as it has them.
    All,
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
    outcome: Result<(), Finding>,
}

impl WeightCheck {
    /// Opens the files that are to be compared, and compares with the manifest what takes no time: lengths, small files, and
    /// files that a stamp knows.
    ///
    /// # Errors
    /// [`Error::DamagedWeights`], [`Error::OtherWeights`].
    pub(crate) fn begin(config: &DialogConfig, cache_folder: Option<&Path>) -> Result<Self, Error> {
        let stamps = cache_folder.map(Stamps::in_folder).or_else(Stamps::of_user);
        let mut work = Work::of(config, Extent::Unknown, stamps.as_ref());
        work.compare_small().map_err(|finding| finding.error())?;
        Ok(Self::new(work))
    }

    /// Both checks as one. Neither may have begun.
    pub(crate) fn join(self, other: Self) -> Self {
        let mut work = Work { jobs: VecDeque::new(), outcome: Ok(()) };
        for check in [&self, &other] {
            let mut its = check.shared.work.lock().unwrap_or_else(PoisonError::into_inner);
            work.jobs.append(&mut its.jobs);
            if let Err(finding) = std::mem::replace(&mut its.outcome, Ok(())) {
                work.outcome = Err(finding);
            }
        }
        Self::new(work)
    }

    /// Compares every file of the weights with the manifest's hash and with its own checksums, now.
    pub(crate) fn in_full(config: &DialogConfig) -> Result<(), Error> {
        Self::new(Work::of(config, Extent::All, None)).finish()
    }

    fn new(work: Work) -> Self {
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
            Err(finding) => Err(finding.error()),
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
    /// Opens what is to be compared; reads nothing of it but headers.
    fn of(config: &DialogConfig, extent: Extent, stamps: Option<&Stamps>) -> Self {
        let engine = config.engine();
        let files: Vec<&Path> = engine
            .ctx_bins
            .iter()
            .chain(engine.embedding.as_ref().map(|table| &table.path))
            .map(AsRef::as_ref)
            .collect();
        let mut listed = manifest(config.base());
        for _ in 0..MOST_READS {
            let mut work = Self { jobs: VecDeque::new(), outcome: Ok(()) };
            for path in &files {
                // A file that is not there, or whose header is damaged, is refused by whoever loads it.
                if let Err(fault) = work.add(path, config.base(), listed.as_ref(), extent, stamps) {
                    tracing::debug!("`{}` is left to its loader: {fault}", path.display());
                }
            }
            // A bundle that was replaced meanwhile: the files are of one, the manifest of the other.
            let now = Manifest::read(config.base()).ok();
            if now == listed {
                return work;
            }
            listed = now;
        }
        tracing::warn!("the weights are not checked: `{MANIFEST_FILE}` changes all the time");
        Self { jobs: VecDeque::new(), outcome: Ok(()) }
    }

    fn add(
        &mut self,
        path: &Path,
        base: &Path,
        manifest: Option<&Manifest>,
        extent: Extent,
        stamps: Option<&Stamps>,
    ) -> Result<(), WeightFault> {
        let entry = manifest.and_then(|manifest| FileCheck::entry(manifest, base, path));
        let is_listed = entry.is_some();
        if extent == Extent::All || !is_listed {
            match SumsJob::of(path, stamps, extent == Extent::All)? {
                Checksums::Open(job) => self.jobs.push_back(job),
                Checksums::Compared => {}
                Checksums::None if is_listed => {}
                Checksums::None => {
                    tracing::info!("`{}` is in no manifest: its content cannot be checked", path.display());
                }
            }
        }
        if let Some(entry) = entry {
            self.jobs.push_back(Job::listed(path, entry, stamps.cloned())?);
        }
        Ok(())
    }

    /// Compares what can be compared before the first token. What was read for it stays in the list, for its stamp: writing
    /// that takes longer.
    fn compare_small(&mut self) -> Result<(), Finding> {
        let mut room = AT_ONCE;
        for mut job in std::mem::take(&mut self.jobs) {
            job.compare_length()?;
            let n_bytes = job.n_bytes();
            if let Some(left) = room.checked_sub(n_bytes) {
                room = left;
                job.finish()?;
            }
            if n_bytes > 0 {
                self.jobs.push_back(job);
            }
        }
        Ok(())
    }

    fn step(&mut self) -> bool {
        let Some(job) = self.jobs.front_mut() else { return true };
        match job.step() {
            Ok(false) => return false,
            Ok(true) => {
                tracing::debug!("the weights in `{}` are as they were written", job.path().display());
                job.leave_stamp();
                self.jobs.pop_front();
            }
            Err(finding) => {
                job.leave_stamp();
                self.outcome = Err(finding);
                self.jobs.clear();
            }
        }
        self.jobs.is_empty()
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
