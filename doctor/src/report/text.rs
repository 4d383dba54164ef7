//! The report as text: the machine, the bundle, each finding, and a last line with the counts.

use core::fmt;

use qnn_api::{BinaryInfo, Soc};

use super::Report;
use crate::facts::{Binary, Build, FileState, LibraryFile};
use crate::{Fix, Severity};

/// Libraries with a line each; the others are counted.
const SHOWN: [&str; 3] = ["libQnnHtp.so", "libQnnSystem.so", "libGenie.so"];

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.machine(f)?;
        self.bundle(f)?;
        for finding in self.findings {
            f.write_str("\n")?;
            finding.write(f, &(self.wording)(&finding.fix))?;
            f.write_str("\n")?;
        }
        let (errors, warnings) = (self.count(Severity::Error), self.count(Severity::Warning));
        match (errors, warnings) {
            (0, 0) => f.write_str("\nno problems found"),
            _ => write!(f, "\n{}, {}", counted(errors, "error"), counted(warnings, "warning")),
        }
    }
}

fn counted(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

impl Report<'_> {
    fn machine(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.facts.machine;
        writeln!(f, "machine {}", machine.arch)?;
        let first = |library: &&LibraryFile| machine.library(&library.name).is_some_and(|l| l.path == library.path);
        let used: Vec<&LibraryFile> = machine.libraries.iter().filter(first).collect();
        for library in used.iter().filter(|library| SHOWN.contains(&library.name.as_str())) {
            let build = library.build.map_or_else(String::new, |build| format!(", {build}"));
            let api = match library.name.as_str() {
                "libQnnHtp.so" => match &machine.htp {
                    Some(Ok(v)) => format!(", core API {}, HTP API {}", v.core, v.backend),
                    _ => String::new(),
                },
                "libQnnSystem.so" => match &machine.system {
                    // Only the first one for this processor was opened.
                    Some(Ok(v)) if library.native => format!(", system API {v}"),
                    _ => String::new(),
                },
                _ => self.facts.genie_api.map_or_else(String::new, |api| format!(", API {api}")),
            };
            writeln!(f, "  {} ({}{build}{api})", library.path.display(), library.place.label())?;
        }
        let others = used.iter().filter(|library| !SHOWN.contains(&library.name.as_str())).count();
        match (used.len(), others) {
            (0, _) => writeln!(f, "  no QNN libraries: bundles run on the embedded backend only")?,
            (_, 0) => {}
            (_, n) => writeln!(f, "  and {}", counted(n, "more QNN library").replace("librarys", "libraries"))?,
        }
        if let Some(adsp) = &machine.adsp {
            writeln!(f, "  ADSP_LIBRARY_PATH {}", adsp.raw)?;
        }
        match self.facts.device {
            Some(device) => {
                let Soc { name, dsp_arch, vtcm_mb, .. } = device.soc;
                let whose = if device.here { "this machine" } else { "as asked" };
                writeln!(f, "device {name}, V{dsp_arch}, {vtcm_mb} MB of VTCM ({whose})")
            }
            None => writeln!(f, "device unknown: {}", (self.wording)(&Fix::NameDevice)),
        }
    }

    fn bundle(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(bundle) = &self.facts.bundle else { return Ok(()) };
        writeln!(f, "bundle {}", bundle.path.display())?;
        for binary in &bundle.binaries {
            writeln!(f, "  {}", binary_line(binary))?;
        }
        Ok(())
    }
}

fn binary_line(binary: &Binary) -> String {
    let name = &binary.written;
    let bytes = match binary.file {
        FileState::Present { bytes } => bytes,
        _ => return format!("{name}: cannot be read"),
    };
    let size = format!("{:.1} MB", bytes as f64 / 1e6);
    match binary.info() {
        Some(info) => format!("{name}: {size}, {}{}", counted(info.graphs.len(), "graph"), made(info)),
        None => format!("{name}: {size}, not read"),
    }
}

fn made(info: &BinaryInfo) -> String {
    let soc = info.soc.map(|id| Soc::by_id(id).map_or_else(|| format!("SoC {id}"), |soc| soc.name.to_owned()));
    let soc = soc.map_or_else(String::new, |soc| format!(", for {soc}"));
    let arch = info.dsp_arch.map_or_else(String::new, |arch| format!(" V{arch}"));
    let vtcm = info.htp_graphs.iter().flatten().map(|graph| graph.vtcm_bytes).max();
    let vtcm = vtcm.map_or_else(String::new, |bytes| format!(", {} MB of VTCM", bytes.div_ceil(1 << 20)));
    let build = Build::parse(&info.build_id).map_or_else(|| info.build_id.clone(), |build| build.to_string());
    format!("{soc}{arch}{vtcm}, by {build}")
}
