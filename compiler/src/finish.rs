//! The end of a context's composition: its graphs are finalized, then it is written, stage by stage.
//!
//! *Traps*: a backend prepares a graph in one call, within which nothing is reported and no stop is heard. So does a library that is not
//! the embedded backend with a context binary: its stage begins, and ends, around the call.

use crate::progress::{Amount, Progress, Stage, go_on};
use crate::target::TargetContext;
use crate::{CompileError, Result};
use qnn_api::{SavePart, SaveReport};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

/// Finalizes graphs, each with its name.
///
/// # Errors
/// Those of the backend, a cancelled compilation.
pub(crate) fn finalize<C: TargetContext>(
    context: &mut C,
    graphs: Vec<(String, C::Graph)>,
    stage: &Stage,
    progress: &mut dyn Progress,
) -> Result<()> {
    progress.begin(stage, Amount { items: graphs.len() as u64, bytes: 0 });
    for (name, graph) in graphs {
        go_on(progress)?;
        progress.working(&name);
        let began = Instant::now();
        context.finalize(graph)?;
        progress.timed(&name, began.elapsed());
        progress.item(&name, 0);
    }
    progress.end(stage);
    go_on(progress)
}

/// Writes a context binary.
///
/// # Errors
/// Those of the backend and of the disk, a cancelled compilation; no file is left.
pub(crate) fn save<C: TargetContext>(context: C, path: &Path, progress: &mut dyn Progress) -> Result<()> {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut stages = SaveStages { file, progress, open: None };
    let saved = context.save(path, &mut |report| stages.tell(report));
    // Whatever the backend says of it.
    go_on(stages.progress)?;
    saved?;
    stages.close();
    Ok(())
}

/// A stage for each part of saving.
struct SaveStages<'p> {
    file: String,
    progress: &'p mut dyn Progress,
    /// The last report, of a part whose stage is open.
    open: Option<SaveReport>,
}

impl SaveStages<'_> {
    fn stage(&self, part: SavePart) -> Stage {
        let file = self.file.clone();
        match part {
            SavePart::LayOut => Stage::LayOut { file },
            SavePart::Write => Stage::Write { file },
            SavePart::Flush => Stage::Flush { file },
        }
    }

    fn tell(&mut self, report: SaveReport) -> ControlFlow<()> {
        if self.progress.cancelled() {
            return ControlFlow::Break(());
        }
        let done = match self.open {
            Some(last) if last.part == report.part => last.done_bytes,
            _ => {
                self.close();
                self.progress.begin(&self.stage(report.part), Amount { items: 1, bytes: report.total_bytes });
                0
            }
        };
        if report.done_bytes > done {
            self.progress.advanced(report.done_bytes - done);
        }
        self.open = Some(report);
        ControlFlow::Continue(())
    }

    fn close(&mut self) {
        if let Some(last) = self.open.take() {
            self.progress.item(&self.file, last.total_bytes);
            self.progress.end(&self.stage(last.part));
        }
    }
}

/// A stop that a watch asked for, in this crate's words.
pub(crate) fn of_watched(error: qnn_api::Error) -> CompileError {
    match error {
        qnn_api::Error::Stopped { .. } | qnn_api::Error::ConstantStopped { .. } => CompileError::Cancelled,
        error => error.into(),
    }
}
