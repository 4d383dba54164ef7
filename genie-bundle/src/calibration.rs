//! `calibration.json`: what a bundle's steps cost on one backend and machine, for planning by cost.
//!
//! *Units*: microseconds; AR and CL in tokens. *Invariant*: [`Calibration::check`] accepts it only with the same backend and
//! build, on the same machine, for the same context binaries.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{BackendId, CALIBRATION_FILE};

/// Value of [`Calibration::format`].
pub const FORMAT: &str = "open-genie-calibration";
/// Version written by this build, and the newest one it reads.
pub const VERSION: u32 = 1;

/// Longest file that is read: above what any number of variants takes.
const MAX_BYTES: u64 = 16 << 20;

/// Times of one step that differ by more than this were not taken on an idle machine.
const MOST_SPREAD: f64 = 2.0;

/// The whole file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Calibration {
    /// Always [`FORMAT`].
    pub format: String,
    /// See [`VERSION`].
    pub version: u32,
    /// Version of the program that measured.
    pub build: String,
    /// The library that ran the graphs.
    pub backend: BackendId,
    /// Where it ran.
    pub machine: Machine,
    /// Threads of the embedded backend; none means all cores.
    pub threads: Option<usize>,
    /// Fingerprint of the context binaries, lower-case hex.
    pub binaries: String,
    /// Each variant's cost.
    pub steps: Vec<StepCost>,
    /// Change of the cache's variant: the fixed part.
    pub switch_us: f64,
    /// Change of the cache's variant: the part for each row in the cache.
    pub switch_us_per_row: f64,
    /// Steps of many requests, by width; none in files of earlier builds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serving: Vec<ServingCost>,
}

/// The times of a step of many requests, head included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ServingCost {
    /// Rows.
    pub width: usize,
    /// With a full cache: the middle of the runs.
    pub median_us: f64,
    /// With an empty one.
    pub median_empty_us: f64,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Operating system and architecture.
    pub platform: String,
    /// The processor, as the system names it.
    pub cpu: String,
    /// Threads that can run at once.
    pub cores: usize,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let line =
            |key: &str| info.lines().find(|l| l.starts_with(key))?.split_once(':').map(|(_, v)| v.trim().to_owned());
        let cpu = line("model name").or_else(|| line("Hardware")).unwrap_or_else(|| "unknown processor".into());
        Self { platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH), cpu, cores }
    }
}

/// The times of one variant's step, all splits together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct StepCost {
    /// Input width.
    pub ar: u32,
    /// Context length.
    pub cl: u32,
    /// Middle of the runs.
    pub median_us: f64,
    /// Fastest run.
    pub min_us: f64,
    /// Slowest run.
    pub max_us: f64,
    /// Number of runs.
    pub runs: usize,
}

/// Why a calibration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalibrationMismatch {
    /// The bundle has none.
    #[error("the file does not exist")]
    Missing,
    /// Not a file that was written here, with the reason.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// Written by a newer version of this crate.
    #[error("its version {0} is newer than this program reads ({VERSION})")]
    Newer(u32),
    /// Measured elsewhere.
    #[error("it was measured with another {what}: `{measured}`, here it is `{here}`")]
    Foreign {
        /// `backend` or `machine`.
        what: &'static str,
        /// The one in the file.
        measured: String,
        /// The one here.
        here: String,
    },
    /// The bundle has changed, with the way it has.
    #[error("it is out of date: {0}")]
    Stale(String),
}

impl Calibration {
    /// Reads the calibration of a bundle's folder.
    ///
    /// # Errors
    /// [`CalibrationMismatch::Missing`], or those of [`Self::parse`].
    pub fn read(folder: &Path) -> Result<Self, CalibrationMismatch> {
        let bytes = match file_io::read_file_up_to(&folder.join(CALIBRATION_FILE), MAX_BYTES) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(CalibrationMismatch::Missing),
            read => read.map_err(|e| CalibrationMismatch::Unreadable(e.to_string()))?,
        };
        Self::parse(&bytes)
    }

    /// Reads the content of the file.
    ///
    /// # Errors
    /// Not JSON, another format, a newer version.
    pub fn parse(bytes: &[u8]) -> Result<Self, CalibrationMismatch> {
        /// The part that every version has.
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let unreadable = |e: serde_json::Error| CalibrationMismatch::Unreadable(e.to_string());
        let head: Head = serde_json::from_slice(bytes).map_err(unreadable)?;
        if head.format != FORMAT {
            let why = format!("format `{}`, expected `{FORMAT}`", head.format);
            return Err(CalibrationMismatch::Unreadable(why));
        }
        if head.version > VERSION {
            return Err(CalibrationMismatch::Newer(head.version));
        }
        serde_json::from_slice(bytes).map_err(unreadable)
    }

    /// What speaks against the times, in words: the machine may have been busy. Empty for times that agree.
    pub fn doubts(&self) -> Vec<String> {
        let name = |s: &StepCost| format!("ar{}_cl{}", s.ar, s.cl);
        let wide = self
            .steps
            .iter()
            .filter(|s| s.median_us > MOST_SPREAD * s.min_us || s.max_us > MOST_SPREAD.powi(2) * s.median_us);
        let wide = wide.map(|s| {
            let (min, median, max) = (s.min_us, s.median_us, s.max_us);
            format!("{} took {min:.0} to {max:.0} us, the median is {median:.0}", name(s))
        });
        let pairs = self.steps.iter().flat_map(|a| self.steps.iter().map(move |b| (a, b)));
        let order = pairs.filter(|(a, b)| a.ar == b.ar && a.cl < b.cl && a.median_us > MOST_SPREAD * b.median_us);
        let order = order.map(|(a, b)| {
            format!("{} took {:.0} us, the longer {} only {:.0}", name(a), a.median_us, name(b), b.median_us)
        });
        wide.chain(order).collect()
    }

    /// The file's content.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data becomes JSON") + "\n"
    }

    /// Checks that it was measured here and for these binaries.
    ///
    /// # Errors
    /// [`CalibrationMismatch::Foreign`] or [`CalibrationMismatch::Stale`].
    pub fn check(&self, backend: &BackendId, machine: &Machine, binaries: &str) -> Result<(), CalibrationMismatch> {
        let library = |b: &BackendId| format!("{} {}", b.name, b.build_id);
        let named = |m: &Machine| format!("{}, {} with {} cores", m.platform, m.cpu, m.cores);
        let pairs =
            [("backend", library(&self.backend), library(backend)), ("machine", named(&self.machine), named(machine))];
        if let Some((what, measured, here)) = pairs.into_iter().find(|(_, measured, here)| measured != here) {
            return Err(CalibrationMismatch::Foreign { what, measured, here });
        }
        if self.binaries != binaries {
            return Err(CalibrationMismatch::Stale("the context binaries have changed".into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_long_for_a_calibration_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join(CALIBRATION_FILE)).unwrap();
        file.set_len(3 << 40).unwrap();
        let said = Calibration::read(folder.path()).unwrap_err().to_string();
        assert_eq!(said, "it cannot be read: expected at most 16777216 bytes, found 3298534883328");
    }

    /// D12: times of a busy machine are not taken for truth.
    #[test]
    fn times_that_do_not_agree_are_doubted() {
        let step = |cl, min_us, median_us, max_us| StepCost { ar: 1, cl, median_us, min_us, max_us, runs: 5 };
        let doubts = |steps: Vec<StepCost>| {
            let machine = Machine { platform: "x".into(), cpu: "y".into(), cores: 2 };
            let (format, build, binaries) = (FORMAT.into(), String::new(), String::new());
            let backend = BackendId::default();
            let (version, threads, switch_us, switch_us_per_row) = (VERSION, None, 0.0, 0.0);
            Calibration {
                format,
                version,
                build,
                backend,
                machine,
                threads,
                binaries,
                steps,
                switch_us,
                switch_us_per_row,
                serving: Vec::new(),
            }
            .doubts()
        };
        assert!(doubts(vec![step(512, 180.0, 190.0, 300.0), step(2048, 700.0, 720.0, 1000.0)]).is_empty());
        let spread = doubts(vec![step(512, 190.0, 900.0, 28367.0)]);
        assert_eq!(spread, ["ar1_cl512 took 190 to 28367 us, the median is 900"]);
        let order = doubts(vec![step(512, 44000.0, 44461.0, 45000.0), step(2048, 1500.0, 1530.0, 1600.0)]);
        assert_eq!(order, ["ar1_cl512 took 44461 us, the longer ar1_cl2048 only 1530"]);
    }
}
