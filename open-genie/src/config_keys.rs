//! What keys of the config do beside the model: cores of the cache's threads, numbers that are compared with the graphs, and
//! warnings for keys that the chosen backend cannot honour.

use engine::Engine;
use genie_bundle::config::{HtpExtensions, Target};

use crate::model::Bundle;
use crate::options::{BackendChoice, Options};

impl Bundle {
    /// Keys of the config and of its backend extension configs without effect on the backend that the options select, as lines;
    /// [`Bundle::warnings`] are among them. Files that cannot be read are left to [`Bundle::open`].
    pub fn warnings_for(&self, options: &Options) -> Vec<String> {
        let config = self.config();
        let shown = |problem: &dyn std::fmt::Display| format!("{}: {problem}", self.path().display());
        let mut lines: Vec<String> = config.warnings().iter().map(|p| shown(p)).collect();
        let Ok(options) = options.clone().for_binaries(&config.engine().ctx_bins) else { return lines };
        let extensions = &config.backend().extensions;
        if options.backend == BackendChoice::Embedded {
            lines.extend(config.warnings_on(Target::Embedded).iter().map(|p| shown(p)));
            let unused =
                |path: &std::path::PathBuf| format!("{}: ignored: the embedded backend has no chip", path.display());
            lines.extend(extensions.iter().map(unused));
        } else if let Ok(found) = HtpExtensions::from_files(extensions) {
            lines.extend(found.ignored);
        }
        lines
    }
}

/// Logs where the config contradicts the graphs, which count.
pub(crate) fn compare(bundle: &Bundle, engine: &Engine) {
    let (n_vocab, found) = (bundle.config().context().n_vocab, engine.layout().vocab_size);
    if n_vocab != found {
        tracing::warn!("`context/n-vocab` of the config is {n_vocab}, the graphs give {found} logits");
    }
    let widths = engine.layout().splits.iter().flat_map(|split| split.kv.iter().map(|kv| kv.tensor.head_dim));
    if let (Some(kv_dim), Some(found)) = (bundle.config().backend().kv_dim, widths.max())
        && kv_dim != found
    {
        tracing::warn!("`QnnHtp/kv-dim` of the config is {kv_dim}, the graphs' cache has rows of {found}");
    }
}

/// Keeps the calling thread, and those that it starts, on some cores until it is dropped: threads inherit the cores that they may
/// run on.
#[derive(Debug)]
pub(crate) struct OnCores {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    before: Option<rustix::thread::CpuSet>,
}

impl OnCores {
    /// The cores of a config's `cpu-mask`, as far as this process may use them; 0, and cores that are all missing, change nothing.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn of_mask(mask: u64) -> Self {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let none = Self { before: None };
        if mask == 0 {
            return none;
        }
        let Ok(before) = sched_getaffinity(None) else { return none };
        let mut wanted = CpuSet::new();
        (0..64).filter(|core| mask >> core & 1 == 1 && before.is_set(*core)).for_each(|core| wanted.set(core));
        if wanted.count() == 0 {
            tracing::info!("none of the cores of `cpu-mask` {mask:#x} is there: threads run on any");
            return none;
        }
        match sched_setaffinity(None, &wanted) {
            Ok(()) => Self { before: Some(before) },
            Err(error) => {
                tracing::info!("cannot keep threads on the cores of `cpu-mask` {mask:#x}: {error}");
                none
            }
        }
    }

    /// Other systems have no such call that is safe here.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn of_mask(_mask: u64) -> Self {
        Self {}
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Drop for OnCores {
    fn drop(&mut self) {
        if let Some(before) = self.before
            && let Err(error) = rustix::thread::sched_setaffinity(None, &before)
        {
            tracing::warn!("cannot give the thread its cores back: {error}");
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::OnCores;

    fn cores() -> Vec<usize> {
        let set = rustix::thread::sched_getaffinity(None).expect("Linux lists them");
        (0..64).filter(|core| set.is_set(*core)).collect()
    }

    #[test]
    fn threads_that_are_started_meanwhile_stay_on_the_cores() {
        let before = cores();
        let last = *before.last().expect("one at least");
        let guard = OnCores::of_mask(1 << last);
        let (stay, started) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            started.recv().expect("sent below");
            cores()
        });
        drop(guard);
        assert_eq!(cores(), before, "the caller has its cores back");
        stay.send(()).expect("it waits");
        assert_eq!(thread.join().expect("no panic"), [last]);
        // A mask for another machine changes nothing.
        let missing = (0..64).rev().find(|core| !before.contains(core)).expect("fewer than 64 cores");
        let _guard = OnCores::of_mask(1 << missing);
        assert_eq!(cores(), before);
    }
}
