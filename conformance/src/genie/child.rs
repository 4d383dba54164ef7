//! A session in a process of its own, with a cleared heap and the library's folder on the search path.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::GenieError;
use super::session::{Outcome, Session};

/// The program of this crate that plays a session from its standard input.
const PROGRAM: &str = "libgenie";
/// Fresh heap memory then holds the complement of this byte: zeros.
const CLEARED: &str = "255";
/// Bytes of a failed process's standard error that the error contains.
const LAST_WORDS: usize = 2000;

/// A session that was played.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it answered.
    pub outcome: Outcome,
    /// What the libraries printed.
    pub log: String,
}

impl Run {
    /// Tokens of each query that was answered with some.
    pub fn tokens(&self) -> Vec<&[u32]> {
        super::tokens_of(&self.outcome.replies)
    }

    /// The status of each act.
    pub fn codes(&self) -> Vec<i32> {
        self.outcome.replies.iter().map(|reply| reply.code).collect()
    }

    /// The graphs that ran, in order, from a verbose log.
    pub fn executed(&self) -> Vec<&str> {
        let after = |line| str::split_once(line, "Executing graph ").and_then(|(_, rest)| rest.split_once(" - "));
        self.log.lines().filter_map(after).map(|(_, graph)| graph.trim()).collect()
    }
}

impl Session {
    /// Plays the session in a process of its own.
    ///
    /// # Errors
    /// The process does not start, or ends without an outcome; the error has the end of its standard error.
    pub fn run(&self) -> Result<Run, GenieError> {
        self.run_with(&[])
    }

    /// As [`Session::run`], with more environment variables.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_with(&self, variables: &[(&str, &str)]) -> Result<Run, GenieError> {
        let program = program()?;
        let failed = |source| GenieError::File { path: program.clone(), source };
        let mut child = Command::new(&program)
            .env("MALLOC_PERTURB_", CLEARED)
            // Libraries open one another by bare name; what stands beside the library is meant.
            .env("LD_LIBRARY_PATH", self.library.parent().unwrap_or(Path::new(".")))
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let request =
            serde_json::to_vec(self).map_err(|source| GenieError::Json { what: "the session".into(), source })?;
        // A child that dies early closes the pipe; how it ended tells more than that.
        let _ = child.stdin.take().expect("piped above").write_all(&request);
        let output = child.wait_with_output().map_err(failed)?;
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            return Err(GenieError::Died { status: output.status.to_string(), words: end_of(&log) });
        }
        let outcome = serde_json::from_slice(&output.stdout)
            .map_err(|source| GenieError::Json { what: format!("the answer of `{PROGRAM}`"), source })?;
        Ok(Run { outcome, log })
    }
}

/// The program, which cargo builds along with this crate's tests.
fn program() -> Result<PathBuf, GenieError> {
    let name = format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX);
    let here = std::env::current_exe().unwrap_or_default();
    let found = here.ancestors().skip(1).take(3).map(|folder| folder.join(&name)).find(|path| path.is_file());
    found.ok_or(GenieError::NoProgram { name, beside: here })
}

fn end_of(log: &str) -> String {
    let from = log.len().saturating_sub(LAST_WORDS);
    let from = (from..=log.len()).find(|&at| log.is_char_boundary(at)).unwrap_or(log.len());
    log[from..].trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_are_read_from_the_log() {
        let log = "Genie: 1.0ms [VERBOSE] Executing graph 0 - ar32_cl128_1_of_1\nother\n\
                   Genie: 2.0ms [VERBOSE] Executing graph 1 - ar1_cl128_2_of_2 \n";
        let outcome = Outcome { version: [1, 21, 0], replies: Vec::new(), profile: serde_json::Value::Null };
        let run = Run { outcome, log: log.into() };
        assert_eq!(run.executed(), ["ar32_cl128_1_of_1", "ar1_cl128_2_of_2"]);
    }

    #[test]
    fn last_words_are_cut_at_a_character() {
        let long = "ä".repeat(LAST_WORDS);
        assert!(end_of(&long).chars().all(|c| c == 'ä'));
        assert_eq!(end_of(" short \n"), "short");
    }
}
