//! A bundle's calibration here: measured step times on one backend and machine, for planning by cost.
//!
//! Written atomically. It is used only with the same backend and build, on the same machine, for the same context binaries
//! and variants.

use std::path::PathBuf;
use std::sync::Arc;

use engine::calibrate::{Measured, median};
use genie_bundle::calibration::{Calibration, CalibrationMismatch, FORMAT, Machine, ServingCost, StepCost, VERSION};
use genie_bundle::{BackendId, CALIBRATION_FILE};
use genie_types::Variant;
use kvmanager::plan::{CostTable, Variants};
use qnn_api::Backend;
use session_store::ModelHash;

use crate::Error;
use crate::model::Bundle;

/// What a calibration must match to be used: backend, machine, context binaries.
#[derive(Clone, Debug)]
pub struct CalibrationContext {
    folder: PathBuf,
    backend: BackendId,
    machine: Machine,
    binaries: String,
}

impl CalibrationContext {
    pub(crate) fn new(bundle: &Bundle, backend: &Arc<Backend>) -> Result<Self, Error> {
        let library = backend.library();
        let build_id = library.build_id().unwrap_or_else(|_| "unknown".into());
        let fingerprint = ModelHash::of_binaries(&bundle.config().engine().ctx_bins)?;
        Ok(Self {
            folder: bundle.config().base().to_owned(),
            backend: BackendId { name: library.provider().to_owned(), build_id },
            machine: Machine::here(),
            binaries: genie_bundle::hash::hex(&fingerprint.0),
        })
    }

    /// The library that runs the graphs.
    pub fn backend(&self) -> &BackendId {
        &self.backend
    }

    /// This machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The file, whether or not it exists.
    pub fn path(&self) -> PathBuf {
        self.folder.join(CALIBRATION_FILE)
    }

    /// What speaks against the times in the bundle's calibration; empty without one.
    pub fn doubts(&self) -> Vec<String> {
        Calibration::read(&self.folder).map_or_else(|_| Vec::new(), |file| file.doubts())
    }

    /// Writes measured step times into the bundle; returns the file's path.
    ///
    /// # Errors
    /// [`Error::WriteCalibration`]; what was there before stays.
    pub fn write(&self, measured: &Measured, threads: Option<usize>) -> Result<PathBuf, Error> {
        let steps = measured.steps.iter().map(|s| StepCost {
            ar: s.spec.ar().get() as u32,
            cl: s.spec.cl().get() as u32,
            median_us: median(&s.us),
            min_us: s.us.iter().copied().fold(f64::INFINITY, f64::min),
            max_us: s.us.iter().copied().fold(0.0, f64::max),
            runs: s.us.len(),
        });
        let serving = measured.serving.iter().map(|s| ServingCost {
            width: s.width,
            median_us: median(&s.us),
            median_empty_us: median(&s.us_empty),
        });
        let file = Calibration {
            format: FORMAT.into(),
            version: VERSION,
            build: env!("CARGO_PKG_VERSION").into(),
            backend: self.backend.clone(),
            machine: self.machine.clone(),
            threads,
            binaries: self.binaries.clone(),
            steps: steps.collect(),
            switch_us: measured.switch_us,
            switch_us_per_row: measured.switch_us_per_row,
            serving: serving.collect(),
        };
        let path = self.path();
        file_io::write_bytes(&path, file.to_json().as_bytes())
            .map_err(|source| Error::WriteCalibration { folder: self.folder.clone(), source })?;
        Ok(path)
    }

    /// The measured costs of these variants.
    ///
    /// # Errors
    /// Why they cannot be used.
    pub fn costs(&self, variants: &Variants) -> Result<CostTable, CalibrationMismatch> {
        self.accept(&Calibration::read(&self.folder)?, variants)
    }

    /// The measured steps of many requests; none in the files of earlier builds.
    ///
    /// # Errors
    /// Why they cannot be used.
    pub fn serving(&self) -> Result<Vec<ServingCost>, CalibrationMismatch> {
        let file = Calibration::read(&self.folder)?;
        file.check(&self.backend, &self.machine, &self.binaries)?;
        Ok(file.serving)
    }

    fn accept(&self, file: &Calibration, variants: &Variants) -> Result<CostTable, CalibrationMismatch> {
        file.check(&self.backend, &self.machine, &self.binaries)?;
        let spec = |s: &StepCost| Some((Variant::new(s.ar, s.cl).ok()?, s.median_us));
        let steps: Vec<_> = file.steps.iter().filter_map(spec).collect();
        if let Some(missing) = variants.all().iter().find(|s| steps.iter().all(|(known, _)| known != *s)) {
            return Err(CalibrationMismatch::Stale(format!("it has no time for {missing}")));
        }
        CostTable::new(steps, file.switch_us, file.switch_us_per_row)
            .map_err(|e| CalibrationMismatch::Unreadable(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use engine::calibrate::{ServingStep, StepTimes};
    use kvmanager::plan::KvForm;

    use std::path::Path;

    use super::*;

    fn spec(ar: u32, cl: u32) -> Variant {
        Variant::new(ar, cl).unwrap()
    }

    fn here(folder: &Path) -> CalibrationContext {
        CalibrationContext {
            folder: folder.to_owned(),
            backend: BackendId { name: "HOST".into(), build_id: "1".into() },
            machine: Machine { platform: "linux x".into(), cpu: "c".into(), cores: 2 },
            binaries: "ab".into(),
        }
    }

    #[test]
    fn a_calibration_is_used_where_it_was_measured_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let here = here(folder.path());
        let variants = |specs: &[Variant]| Variants::new(specs.iter().copied(), KvForm::Concat, None).unwrap();
        let known = variants(&[spec(1, 16), spec(4, 16)]);
        assert_eq!(here.costs(&known).unwrap_err(), CalibrationMismatch::Missing);
        let steps = vec![
            StepTimes { spec: spec(1, 16), us: vec![30.0, 10.0, 11.0] },
            StepTimes { spec: spec(4, 16), us: vec![25.0] },
        ];
        let serving = vec![ServingStep { width: 4, us: vec![9.0, 8.0, 7.0], us_empty: vec![3.0] }];
        let path = here.write(&Measured { steps, switch_us: 2.0, switch_us_per_row: 0.5, serving }, Some(2)).unwrap();
        let stored = ServingCost { width: 4, median_us: 8.0, median_empty_us: 3.0 };
        assert_eq!(here.serving().unwrap(), [stored]);
        let table = here.costs(&known).unwrap();
        assert_eq!((table.step_us(spec(1, 16)), table.step_us(spec(4, 16))), (Some(11.0), Some(25.0)));
        assert_eq!(table.switch_us(10), 7.0);

        let text = std::fs::read_to_string(path).unwrap();
        let accept = |bytes: &[u8], variants: &Variants| here.accept(&Calibration::parse(bytes)?, variants);
        let cases = [
            (text.replace("\"1\"", "\"2\""), "it was measured with another backend: `HOST 2`, here it is `HOST 1`"),
            (
                text.replace("\"c\"", "\"d\""),
                "it was measured with another machine: `linux x, d with 2 cores`, here it is `linux x, c with 2 cores`",
            ),
            (text.replace("\"ab\"", "\"cd\""), "it is out of date: the context binaries have changed"),
            (text.replace("\"version\": 1", "\"version\": 9"), "its version 9 is newer than this program reads (1)"),
            (text.replace(FORMAT, "other"), "it cannot be read: format `other`, expected `open-genie-calibration`"),
            (
                text.replace("\"switch-us\": 2.0", "\"switch-us\": -2.0"),
                "it cannot be read: cost of switch_us is -2: expected a finite number of at least 0",
            ),
        ];
        for (changed, want) in cases {
            assert_ne!(changed, text, "{want}");
            assert_eq!(accept(changed.as_bytes(), &known).unwrap_err().to_string(), want);
        }
        let more = variants(&[spec(1, 16), spec(4, 16), spec(4, 32)]);
        let why = accept(text.as_bytes(), &more).unwrap_err().to_string();
        assert_eq!(why, "it is out of date: it has no time for ar4_cl32");
        let torn = accept(&text.as_bytes()[..text.len() / 2], &known).unwrap_err().to_string();
        assert!(torn.starts_with("it cannot be read: EOF"), "{torn}");
    }
}
