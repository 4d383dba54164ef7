//! Everything that can be said of a config's text at once: problems, missing features and files, warnings, versions.

use std::path::Path;

use serde_json::Value;

use super::api_versions::{GenieApi, oldest_accepting, rejected_by};
use super::ignored_keys::{self, Target};
use super::problem::{ConfigError, Origin, Problem};
use super::{GenieConfig, support, text, validate};

/// What is to be said of a config, by kind. Nothing in the first four lists: it can be used.
#[derive(Clone, Debug, Default)]
pub struct Examination {
    /// Violations of Genie's schema and rules, and values that nothing can use.
    pub problems: Vec<Problem>,
    /// Valid, but not supported here.
    pub unsupported: Vec<Problem>,
    /// Files that it names and that cannot be used.
    pub files: Vec<Problem>,
    /// What the asked version of Genie's API rejects.
    pub rejected: Vec<Problem>,
    /// Keys without effect, and the like.
    pub warnings: Vec<Problem>,
    /// Keys without effect on the embedded backend.
    pub on_embedded: Vec<Problem>,
    /// The oldest API that accepts the config; `None` where it is not valid.
    pub oldest: Option<GenieApi>,
}

impl Examination {
    /// Whether the config can be used, and the asked API accepts it.
    pub fn is_usable(&self) -> bool {
        [&self.problems, &self.unsupported, &self.files, &self.rejected].iter().all(|list| list.is_empty())
    }
}

/// Examines a config's text for a version of the API. `base` is where its relative paths start; without one, files are not looked at.
///
/// # Errors
/// Not JSON.
pub fn examine(json: &str, base: Option<&Path>, api: GenieApi) -> Result<Examination, ConfigError> {
    let document = text::parse(json).map_err(|source| ConfigError::Syntax { origin: Origin::Text, source })?;
    let mut found = Examination { problems: validate(&document), ..Examination::default() };
    if !found.problems.is_empty() {
        return Ok(found);
    }
    found.rejected = rejected_by(&document, api);
    found.oldest = oldest_accepting(&document);
    match GenieConfig::from_json(json, base.unwrap_or(Path::new(""))) {
        Ok(config) => {
            found.warnings = config.warnings().to_vec();
            found.on_embedded = config.warnings_on(Target::Embedded).to_vec();
            if base.is_some()
                && let Err(error) = config.check_files()
            {
                found.files = error.problems().to_vec();
            }
        }
        Err(ConfigError::Unsupported { problems, .. }) => {
            found.unsupported = problems;
            found.warnings = warnings(&document);
            found.on_embedded = ignored_keys::on(&document, Target::Embedded);
        }
        Err(other) => found.problems = other.problems().to_vec(),
    }
    Ok(found)
}

fn warnings(document: &Value) -> Vec<Problem> {
    let mut out = support::warnings(&super::node::Node::root(document));
    out.extend(ignored_keys::everywhere(document));
    out
}
