//! Compiling for a Hexagon chip: which one, and what its architecture requires.
//!
//! *Units*: VTCM in MB. *Source*: the chips' numbers and architectures are [`qnn_api::soc`]'s, measured on the HTP library.
//!
//! *Traps*: the x86 library composes for any chip, but writes binaries that share weights between graphs and cannot load
//! them again; so sharing is off unless asked for.

use crate::{CompileError, Precision, Result, Weights};
use qnn_api::soc::{FIRST_FLOAT16_ARCH, SOCS};
use qnn_api::{Backend, BackendOptions, ContextOptions, HtpGraphOptions, Library, PerfPolicy, Soc};
use std::path::Path;
use std::sync::Arc;

/// How every HTP library names itself.
const PROVIDER: &str = "HTP_";
/// Longest context binary that every loader accepts: 2 GiB less one byte, the largest signed 32-bit length.
pub const FILE_LIMIT: u64 = (1 << 31) - 1;
/// The default of the library's own tools: the most thorough search for a schedule.
const OPTIMIZATION: u32 = 3;

/// A chip to compile for and how to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HtpOptions {
    /// The chip.
    pub soc: &'static Soc,
    /// Requested performance; written into the bundle's backend config.
    pub performance: PerfPolicy,
    /// Graphs of one file refer to one copy of the weights. Devices load such files, the x86 emulator does not.
    pub share_weights: bool,
    /// No context binary may be longer, in bytes.
    pub file_limit: u64,
    /// Cut the model further than asked where a file would be too long, instead of refusing it.
    pub cut_to_fit: bool,
}

impl HtpOptions {
    /// Burst, each graph with its own weights, for the chip of that name (`sm8650`, `x-elite`).
    ///
    /// # Errors
    /// A name that no chip with an HTP has.
    pub fn for_target(name: &str) -> Result<Self> {
        let soc = Soc::by_name(name).filter(|soc| soc.id.is_some());
        let soc = soc.ok_or_else(|| CompileError::UnknownTarget { name: name.into(), known: names() })?;
        let (performance, file_limit) = (PerfPolicy::Burst, FILE_LIMIT);
        Ok(Self { soc, performance, share_weights: false, file_limit, cut_to_fit: false })
    }

    /// Options to open a backend with, so that it prepares graphs for this chip.
    pub fn backend_options(&self) -> BackendOptions {
        BackendOptions { soc: self.soc.id, ..BackendOptions::default() }
    }

    /// Loads an HTP library and opens it for this chip.
    ///
    /// # Errors
    /// A file that is not a library or not for HTPs; errors of the library.
    pub fn open(&self, library: &Path) -> Result<Arc<Backend>> {
        let library = Library::open(library)?;
        self.check_library(&library)?;
        Ok(Backend::new(&library, &self.backend_options())?)
    }

    /// The short name: `sm8650`.
    pub fn target(&self) -> String {
        target_name(self.soc)
    }

    /// Refuses formats that the chip cannot run. All graphs of this compiler have float activations.
    pub(crate) fn check(&self, precision: Precision, weights: Weights) -> Result<()> {
        if self.soc.dsp_arch < FIRST_FLOAT16_ARCH {
            return Err(CompileError::NoFloat16 { target: self.target(), arch: self.soc.dsp_arch });
        }
        match (precision, weights) {
            (Precision::F16, Weights::Float | Weights::W8) => Ok(()),
            (Precision::F16, weights) => Err(CompileError::HtpWeights { target: self.target(), weights }),
            (Precision::F32, _) => Err(CompileError::HtpPrecision { target: self.target() }),
        }
    }

    fn check_library(&self, library: &Library) -> Result<()> {
        if library.provider().starts_with(PROVIDER) {
            return Ok(());
        }
        let (library, provider) = (library.display_name().into(), library.provider().into());
        Err(CompileError::NotHtp { target: self.target(), library, provider })
    }

    /// Refuses a library that does not compile for HTPs, or was opened for another chip.
    pub(crate) fn check_backend(&self, backend: &Backend) -> Result<()> {
        self.check_library(backend.library())?;
        let found = backend.device().and_then(qnn_api::Device::soc);
        if found != self.soc.id {
            return Err(CompileError::OtherDevice {
                target: self.target(),
                expected: self.soc.id.unwrap_or_default(),
                found: found.map_or("no chip at all".into(), |id| format!("chip {id}")),
            });
        }
        Ok(())
    }

    /// Refuses a file above the limit, whatever was predicted.
    pub(crate) fn check_file(&self, file: &str, path: &Path) -> Result<()> {
        let bytes = crate::fs::length(path)?;
        if bytes <= self.file_limit {
            return Ok(());
        }
        Err(CompileError::TooLong { file: file.into(), bytes, limit: self.file_limit })
    }

    pub(crate) fn context_options(&self) -> ContextOptions {
        ContextOptions { htp_weight_sharing: self.share_weights, ..ContextOptions::default() }
    }

    pub(crate) fn graph_options(&self) -> HtpGraphOptions {
        HtpGraphOptions {
            float16: true,
            vtcm_mb: Some(self.soc.vtcm_mb),
            optimization: Some(OPTIMIZATION),
            ..HtpGraphOptions::default()
        }
    }
}

/// The shortest common name: the alias of a chip that has one, else its part number.
fn target_name(soc: &Soc) -> String {
    match soc.aliases.first().filter(|alias| alias.contains('-')) {
        Some(alias) => (*alias).into(),
        None => soc.name.to_lowercase(),
    }
}

/// Every target that this compiler makes graphs for.
fn names() -> Vec<String> {
    SOCS.iter().filter(|soc| soc.id.is_some() && soc.dsp_arch >= FIRST_FLOAT16_ARCH).map(target_name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testmodel::TestModel;
    use crate::{CompileOptions, Family, Hint};

    #[test]
    fn targets_are_found_by_name() {
        for (name, id, arch) in [
            ("sm8350", 30, 68),
            ("sm8550", 43, 73),
            ("sm8650", 57, 75),
            ("SM8750", 69, 79),
            ("sm8850", 87, 81),
            ("x-elite", 60, 73),
        ] {
            let htp = HtpOptions::for_target(name).unwrap();
            assert_eq!((htp.backend_options().soc, htp.soc.dsp_arch), (Some(id), arch), "{name}");
            assert_eq!(htp.target(), name.to_lowercase());
            let graph = htp.graph_options();
            assert_eq!((graph.float16, graph.vtcm_mb), (true, Some(if arch == 68 { 4 } else { 8 })), "{name}");
        }
    }

    #[test]
    fn unsupported_targets_are_refused_with_the_reason() {
        struct Case {
            target: &'static str,
            precision: Precision,
            message: &'static str,
            hint: Hint,
        }
        let cases = [
            Case {
                target: "sm8350",
                precision: Precision::F16,
                message: "target `sm8350` cannot run these graphs: its HTP is a V68, which has no float16 arithmetic",
                hint: Hint::ChipWithFloat16 { arch: 68 },
            },
            Case {
                target: "sm8650",
                precision: Precision::F32,
                message: "precision f32 for target `sm8650`: its HTP computes in float16",
                hint: Hint::DefaultPrecisionOrNoChip,
            },
        ];
        for case in cases {
            let mut options = CompileOptions::new("m", "o");
            options.htp = Some(HtpOptions::for_target(case.target).unwrap());
            options.precision = case.precision;
            let error = options.check().unwrap_err();
            assert_eq!(error.to_string(), case.message);
            assert_eq!(error.hint(), Some(case.hint));
        }
        for name in ["sm9999", "sdm845", ""] {
            let error = HtpOptions::for_target(name).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("unknown target `{name}`: expected one of `sm8550`, `sm8650`")),
                "{error}"
            );
            assert!(error.contains("`x-elite`") && !error.contains("sm8350"), "{error}");
        }
    }

    #[test]
    fn other_backends_do_not_compile_for_a_chip() {
        let place = tempfile::tempdir().unwrap();
        TestModel::tiny(Family::Llama).write(&place.path().join("model")).unwrap();
        let mut options = CompileOptions::new(place.path().join("model"), place.path().join("bundle"));
        options.htp = Some(HtpOptions::for_target("sm8650").unwrap());
        let library = Library::linked(qnn_host::providers()).unwrap();
        let backend = Backend::new(&library, &BackendOptions::default()).unwrap();
        let error = crate::compile(&options, &backend, &mut crate::Silent).unwrap_err();
        let message = "library `linked in` does not compile for target `sm8650`: it is `HOST_OPEN_GENIE`, expected an HTP \
                       backend";
        assert_eq!(error.to_string(), message);
        let error = options.htp.unwrap().open(Path::new("/nowhere/libQnnHtp.so")).unwrap_err();
        assert_eq!(error.to_string(), "cannot load library `/nowhere/libQnnHtp.so`");
        assert!(!place.path().join("bundle").exists());
    }
}
