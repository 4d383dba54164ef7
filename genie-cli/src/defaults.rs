//! Defaults of flags from `genie.toml` and from the environment.
//!
//! A flag of the command line counts first, then `GENIE_<FLAG>`, then the command's section of the file, then the file's top, then
//! what the program or the bundle's config has. The file is the one that `GENIE_TOML` names, else `genie.toml` in the working
//! folder, else the one in the folder `genie` of the user's settings. docs/environment.md lists the keys.
//!
//! A default is given to clap as one, so that it takes part in no conflict of flags.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, Command};
use toml::{Table, Value};

use crate::failure::UserError;

/// Names the file of defaults.
pub const FILE_VARIABLE: &str = "GENIE_TOML";
/// Flags that say how a model runs, and not what is done: those can have defaults.
const FLAGS: &[&str] = &[
    "backend",
    "backend-lib",
    "system-lib",
    "soc",
    "perf",
    "threads",
    "pin",
    "policy",
    "shared-memory",
    "long-context",
    "reserved-tokens",
    "spec",
    "temp",
    "top-k",
    "top-p",
    "min-p",
    "typical",
    "top-nsigma",
    "seed",
    "greedy",
    "repetition-penalty",
    "presence-penalty",
    "frequency-penalty",
    "penalize-last-n",
    "dry-multiplier",
    "dry-base",
    "dry-allowed-length",
    "dry-penalty-last-n",
    "dry-sequence-breaker",
    "xtc-probability",
    "xtc-threshold",
    "dynatemp-range",
    "dynatemp-exp",
    "mirostat",
    "mirostat-lr",
    "mirostat-ent",
    "samplers",
    "max-tokens",
    "stop",
    "ignore-eos",
    "stats",
    "raw",
    "escape",
    "system",
    "chat-template",
    "prefix-cache-mib",
    "weights",
    "precision",
    "ar",
    "cl",
    "reps",
    "window",
    "json",
    "default-model",
];

/// Variables that are read elsewhere, as flags would be called: `GENIE_MODELS` is not that of `--models`.
const OTHER_VARIABLES: &[&str] = &["models", "cache", "toml", "log", "amx", "bf16", "sme", "op-package-dir"];

/// The file's key and the variable of the model that is used where none is named.
const MODEL: (&str, &str) = ("model", "default-model");

/// What the file and the environment say.
#[derive(Debug, Default)]
pub struct Defaults {
    file: Table,
    path: PathBuf,
    environment: Vec<(String, OsString)>,
    /// Other variables of the form `GENIE_<NAME>` that say something.
    others: Vec<String>,
}

impl Defaults {
    /// Reads the file, if there is one, and the variables.
    pub fn read() -> Result<Self> {
        let named = std::env::var_os(FILE_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let is_named = named.is_some();
        let found = named.or_else(|| places().into_iter().find(|path| path.is_file()));
        let (mut environment, mut others) = (Vec::new(), Vec::new());
        for (name, value) in std::env::vars_os().filter(|(_, value)| !value.is_empty()) {
            let Some((name, flag)) = name.to_str().and_then(|name| Some((name, flag_of(name)?))) else { continue };
            let flag = if flag == MODEL.0 { MODEL.1.to_owned() } else { flag };
            match FLAGS.contains(&flag.as_str()) {
                true => environment.push((flag, value)),
                false => others.push(name.to_owned()),
            }
        }
        let Some(path) = found else { return Ok(Self { environment, others, ..Self::default() }) };
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read the defaults `{}`", path.display()))
            .map_err(|error| {
                if is_named {
                    error.context(format!("`{FILE_VARIABLE}` names no file that can be read"))
                } else {
                    error
                }
            })?;
        let file: Table =
            text.parse().with_context(|| format!("the defaults `{}` are not in the form of TOML", path.display()))?;
        Ok(Self { file, path, environment, others })
    }

    /// Gives each flag of the commands its default.
    ///
    /// # Errors
    /// A key that is no flag of any command, or not of its section's; a value that is no text, number, truth value or list of these.
    pub fn apply(&self, command: Command) -> Result<Command> {
        self.check(&command)?;
        let names: Vec<String> = command.get_subcommands().map(|c| c.get_name().to_owned()).collect();
        names.iter().try_fold(command, |command, name| {
            let mut failed = None;
            let command = command.mut_subcommand(name, |sub| {
                sub.mut_args(|arg| match self.of(name, &arg) {
                    Ok(Some(values)) => with_default(arg, values),
                    Ok(None) => arg,
                    Err(error) => {
                        failed = Some(error);
                        arg
                    }
                })
            });
            failed.map_or(Ok(command), Err)
        })
    }

    /// Whether a variable may need a warning: the commands need not be built again to look for its flag where none does.
    pub fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// A warning of each variable that is called as a flag of this command is, and is not read.
    pub fn warnings(&self, command: &Command) -> Vec<String> {
        let warning = |name: &String| {
            let flag = flag_of(name).filter(|flag| !OTHER_VARIABLES.contains(&flag.as_str()))?;
            let is_named = |arg: &&Arg| {
                arg.get_long() == Some(&flag) || arg.get_all_aliases().is_some_and(|names| names.contains(&&*flag))
            };
            let long = command.get_arguments().find(is_named)?.get_long()?;
            let instead = match FLAGS.contains(&long) {
                true => format!("`GENIE_{}` sets `--{long}`", long.to_uppercase().replace('-', "_")),
                false => format!("`--{long}` is set on the command line alone"),
            };
            Some(format!("warning: `{name}` is not read: {instead}"))
        };
        self.others.iter().filter_map(warning).collect()
    }

    /// The default of a command's flag.
    fn of(&self, command: &str, arg: &Arg) -> Result<Option<Vec<OsString>>> {
        let Some(flag) = arg.get_long().filter(|flag| FLAGS.contains(flag)) else { return Ok(None) };
        if let Some((_, value)) = self.environment.iter().find(|(name, _)| name == flag) {
            return Ok(Some(split(arg, value.clone())));
        }
        let key = if flag == MODEL.1 { MODEL.0 } else { flag };
        let section = self.file.get(command).and_then(Value::as_table);
        let Some(value) = section.and_then(|table| table.get(key)).or_else(|| self.file.get(key)) else {
            return Ok(None);
        };
        texts(value).map(Some).ok_or_else(|| {
            let found = value.type_str();
            self.wrong(
                format!("`{key}` is a {found}, expected a text, a number, `true`, `false` or a list of these"),
                None,
            )
        })
    }

    /// Refuses keys that nothing would read.
    fn check(&self, command: &Command) -> Result<()> {
        let commands: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        let known = |of: Option<&str>| -> Vec<&str> {
            let subs = command.get_subcommands().filter(|sub| of.is_none_or(|name| sub.get_name() == name));
            let flags = subs.flat_map(Command::get_arguments).filter_map(Arg::get_long).filter(|f| FLAGS.contains(f));
            flags.map(|flag| if flag == MODEL.1 { MODEL.0 } else { flag }).collect()
        };
        for (key, value) in &self.file {
            match value.as_table() {
                Some(section) if commands.contains(&key.as_str()) => {
                    let flags = known(Some(key));
                    if let Some(wrong) = section.keys().find(|inner| !flags.contains(&inner.as_str())) {
                        return Err(
                            self.wrong(format!("unknown key `{wrong}` in section `{key}`"), near(wrong, &flags))
                        );
                    }
                }
                Some(_) => return Err(self.wrong(format!("unknown section `{key}`"), near(key, &commands))),
                None => {
                    let flags = known(None);
                    if !flags.contains(&key.as_str()) {
                        return Err(self.wrong(format!("unknown key `{key}`"), near(key, &flags)));
                    }
                }
            }
        }
        Ok(())
    }

    fn wrong(&self, what: String, near: Option<&str>) -> anyhow::Error {
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "docs/environment.md lists the keys: flags without their dashes".to_owned(),
        };
        UserError::error(format!("{what} of `{}`", self.path.display()), hint)
    }
}

/// The flag that a variable is called as.
fn flag_of(variable: &str) -> Option<String> {
    Some(variable.strip_prefix("GENIE_")?.to_lowercase().replace('_', "-"))
}

fn places() -> Vec<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let settings = folder("XDG_CONFIG_HOME").or_else(|| folder("HOME").map(|home| home.join(".config")));
    let user = settings.map(|settings| settings.join("genie/genie.toml"));
    std::iter::once(PathBuf::from("genie.toml")).chain(user).collect()
}

/// The nearest of some names, if one is near.
pub fn near<'n>(found: &str, names: &[&'n str]) -> Option<&'n str> {
    let best = names.iter().min_by_key(|name| strsim::damerau_levenshtein(found, name))?;
    (strsim::damerau_levenshtein(found, best) <= (found.len() / 3).clamp(1, 3)).then_some(best)
}

/// A variable's value: a list where the flag takes one that is separated.
fn split(arg: &Arg, value: OsString) -> Vec<OsString> {
    match (arg.get_value_delimiter(), value.to_str()) {
        (Some(delimiter), Some(text)) => text.split(delimiter).map(OsString::from).collect(),
        _ => vec![value],
    }
}

fn texts(value: &Value) -> Option<Vec<OsString>> {
    let one = |value: &Value| match value {
        Value::String(text) => Some(OsString::from(text)),
        Value::Integer(n) => Some(n.to_string().into()),
        Value::Float(n) => Some(n.to_string().into()),
        Value::Boolean(b) => Some(b.to_string().into()),
        _ => None,
    };
    value.as_array().map_or_else(|| one(value).map(|text| vec![text]), |list| list.iter().map(one).collect())
}

fn with_default(arg: Arg, values: Vec<OsString>) -> Arg {
    let values = values.into_iter().map(clap::builder::OsStr::from);
    match arg.get_action() {
        ArgAction::SetTrue | ArgAction::Set | ArgAction::Append => arg.default_values(values),
        _ => arg,
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::*;
    use crate::cli::Cli;
    use crate::commands;

    fn defaults(file: &str, environment: &[(&str, &str)]) -> Defaults {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        Defaults { file: file.parse().unwrap(), path: "genie.toml".into(), environment, others: Vec::new() }
    }

    fn run_args(defaults: &Defaults, line: &str) -> Box<commands::RunArgs> {
        let command = defaults.apply(Cli::command()).unwrap();
        let matches = command.try_get_matches_from(line.split(' ')).unwrap();
        match Cli::from_arg_matches(&matches).unwrap().command {
            commands::Command::Run(args) => args,
            _ => unreachable!("the line is of `run`"),
        }
    }

    #[test]
    fn a_flag_counts_before_a_variable_a_section_and_the_top() {
        let file = "temp = 0.5\ntop-k = 9\nmodel = 'demo'\n[run]\ntemp = 0.6\nstats = true\nstop = ['a', 'b,c']\n";
        let plain = run_args(&defaults(file, &[]), "genie run -p x");
        assert_eq!((plain.sampler.temp, plain.sampler.top_k, plain.stats), (Some(0.6), Some(9), true));
        assert_eq!(
            (plain.stops.stop.clone(), plain.bundle.default_model.clone()),
            (vec!["a".to_owned(), "b,c".to_owned()], Some("demo".to_owned()))
        );
        let by_variable = defaults(file, &[("temp", "0.7")]);
        assert_eq!(run_args(&by_variable, "genie run -p x").sampler.temp, Some(0.7));
        assert_eq!(run_args(&by_variable, "genie run -p x --temp 0.8").sampler.temp, Some(0.8));
    }

    #[test]
    fn variables_that_are_not_read_are_named_with_what_is() {
        let command = Cli::command();
        let names = ["GENIE_N_PREDICT", "GENIE_SAVE", "GENIE_PORT", "GENIE_MODELS", "GENIE_GOLDEN_DIR"];
        let defaults = Defaults { others: names.map(str::to_owned).to_vec(), ..Defaults::default() };
        let of = |name| defaults.warnings(command.find_subcommand(name).unwrap());
        let max_tokens = "warning: `GENIE_N_PREDICT` is not read: `GENIE_MAX_TOKENS` sets `--max-tokens`";
        let alone = |name, flag| format!("warning: `{name}` is not read: `{flag}` is set on the command line alone");
        assert_eq!(of("run"), [max_tokens.to_owned(), alone("GENIE_SAVE", "--save")]);
        assert_eq!(of("tokenize"), [""; 0]);
        #[cfg(feature = "server")]
        assert!(of("serve").contains(&alone("GENIE_PORT", "--port")), "{:?}", of("serve"));
    }

    #[test]
    fn the_sample_of_the_documents_is_read() {
        let sample = defaults(include_str!("../../docs/genie.toml"), &[]);
        assert_eq!(run_args(&sample, "genie run -p x").stops.stop, ["USER:", "SYSTEM:"]);
    }

    /// One key at the top is for every command that has the flag: each has to take its values.
    #[test]
    fn no_limit_at_the_top_is_for_every_command() {
        let command = defaults("max-tokens = -1", &[]).apply(Cli::command()).unwrap();
        for line in ["genie run -p x", "genie chat", "genie serve"] {
            let matches = command.clone().try_get_matches_from(line.split(' '));
            assert!(matches.is_ok(), "{line}: {matches:?}");
        }
    }

    #[test]
    fn keys_that_nothing_reads_are_refused() {
        let refused = |file| {
            let error = defaults(file, &[]).apply(Cli::command()).unwrap_err();
            (error.to_string(), crate::hints::of(&error))
        };
        assert_eq!(refused("temprature = 1").0, "unknown key `temprature` of `genie.toml`");
        let (text, hint) = refused("[run]\ntmep = 1");
        assert_eq!(text, "unknown key `tmep` in section `run` of `genie.toml`");
        assert_eq!(hint.as_deref(), Some("did you mean `temp`?"));
        assert!(refused("[rnu]\ntemp = 1").0.starts_with("unknown section `rnu`"));
        assert!(refused("temp = { a = 1 }").0.starts_with("unknown section `temp`"));
    }

    #[test]
    fn every_name_is_a_flag_of_some_command() {
        let command = Cli::command();
        let all: Vec<&str> =
            command.get_subcommands().flat_map(Command::get_arguments).filter_map(Arg::get_long).collect();
        let unknown: Vec<_> = FLAGS.iter().filter(|flag| !all.contains(flag)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
