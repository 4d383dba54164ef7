//! `cargo xtask clients`: official clients, in pinned versions, against `genie serve` on the demo model; and schemathesis on the
//! server's own OpenAPI document.
//!
//! Packages go below `target/clients`: a venv for Python's (`xtask/clients/requirements.txt`), a folder for Node's
//! (`xtask/clients/package.json`). They are fetched when those files change.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::{program, root, sh};

/// The key that the server asks for.
const KEY: &str = "clients-key";

/// What fetches Python's packages.
pub const UV: &str = "uv==0.13.9";

/// Which of them.
#[derive(clap::Args)]
pub struct ClientsArgs {
    /// Only these: `python`, `node`, `fuzz`; several are parted by commas.
    #[arg(long, value_delimiter = ',', default_values_t = ["python", "node", "fuzz"].map(String::from))]
    only: Vec<String>,
    /// Only checks whose names begin like this, such as `openai` or `anthropic_tools`.
    checks: Vec<String>,
    /// Requests that schemathesis makes up for each route.
    #[arg(long, value_name = "N", default_value_t = 40)]
    examples: u32,
    /// A built `genie` [default: builds one].
    #[arg(long, value_name = "FILE")]
    program: Option<std::path::PathBuf>,
}

/// Fetches what is missing, starts the server, and runs the clients.
pub fn run(args: &ClientsArgs) -> Result<()> {
    if let Some(word) = args.only.iter().find(|word| !["python", "node", "fuzz"].contains(&word.as_str())) {
        bail!("`{word}`: expected `python`, `node` or `fuzz`");
    }
    let wants = |name: &str| args.only.iter().any(|word| word == name);
    let (scripts, place) = (root().join("xtask/clients"), root().join("target/clients"));
    fs::create_dir_all(&place)?;
    if wants("python") || wants("fuzz") {
        fetch_python(&scripts, &place)?;
    }
    if wants("node") {
        fetch_node(&scripts, &place)?;
    }
    let program = match &args.program {
        Some(program) => program.clone(),
        None => program("genie")?,
    };
    let mut failed = Vec::new();
    if wants("python") || wants("node") {
        let server = Serving::start(&program, &["--max-tokens", "200"])?;
        let env = [("GENIE_URL", server.url.as_str()), ("GENIE_KEY", KEY)];
        let mut each = |name: &'static str, program: &Path, script: &Path| {
            let mut line = vec![text(script)];
            line.extend(args.checks.iter().cloned());
            let line: Vec<&str> = line.iter().map(String::as_str).collect();
            if sh(&text(program), &line, &env).is_err() {
                failed.push(name);
            }
        };
        if wants("python") {
            each("python", &place.join("venv/bin/python"), &scripts.join("clients.py"));
        }
        if wants("node") {
            // Node looks for packages beside the script.
            let script = place.join("node/clients.mjs");
            fs::copy(scripts.join("clients.mjs"), &script)?;
            each("node", Path::new("node"), &script);
        }
    }
    if wants("fuzz") && fuzz(&program, &place, args.examples).is_err() {
        failed.push("fuzz");
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Schemathesis makes requests up from `/openapi.json`: no answer may be a fault of the server, or one that the document does not know.
fn fuzz(program: &Path, place: &Path, examples: u32) -> Result<()> {
    let slots = tempfile::tempdir()?;
    let server = Serving::start(program, &["--max-tokens", "8", "--slot-save-path", &text(slots.path())])?;
    let config = place.join("schemathesis.toml");
    // Embeddings are refused by name.
    fs::write(&config, "[checks.not_a_server_error]\nexpected-statuses = [\"2xx\", \"4xx\", \"501\"]\n")?;
    let (url, examples) = (format!("{}/openapi.json", server.url), examples.to_string());
    let (key, config) = (format!("Authorization: Bearer {KEY}"), text(&config));
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
    let line = [
        "--config-file",
        &config,
        "run",
        &url,
        "--checks",
        checks,
        "--max-examples",
        &examples,
        "--header",
        &key,
        "--phases",
        "examples,coverage,fuzzing",
        "--continue-on-failure",
        "--suppress-health-check",
        "all",
        "--request-timeout",
        "60",
    ];
    // In its own folder: it keeps what it has found below the working one.
    eprintln!("$ schemathesis {}", line.join(" "));
    let status = Command::new(place.join("venv/bin/schemathesis")).args(line).current_dir(place).status();
    let status = status.context("cannot start schemathesis")?;
    ensure!(status.success(), "schemathesis has found faults: {status}");
    Ok(())
}

fn fetch_python(scripts: &Path, place: &Path) -> Result<()> {
    let list = scripts.join("requirements.txt");
    let venv = place.join("venv");
    fetched(&list, &place.join("requirements.fetched"), || {
        if !venv.join("bin/pip").is_file() {
            sh("python3", &["-m", "venv", &text(&venv)], &[])?;
        }
        // uv reads a list of this length in seconds.
        sh(&text(&venv.join("bin/pip")), &["install", "-q", "--disable-pip-version-check", UV], &[])?;
        let python = text(&venv.join("bin/python"));
        sh(&text(&venv.join("bin/uv")), &["pip", "install", "-q", "--python", &python, "-r", &text(&list)], &[])
    })
}

fn fetch_node(scripts: &Path, place: &Path) -> Result<()> {
    let (list, folder) = (scripts.join("package.json"), place.join("node"));
    fs::create_dir_all(&folder)?;
    fetched(&list, &place.join("package.fetched"), || {
        fs::copy(&list, folder.join("package.json"))?;
        sh("npm", &["install", "--no-audit", "--no-fund", "--prefix", &text(&folder)], &[])
    })
}

/// Runs something unless it was run for the same list before.
fn fetched(list: &Path, mark: &Path, fetch: impl FnOnce() -> Result<()>) -> Result<()> {
    let wanted = fs::read_to_string(list).with_context(|| format!("cannot read `{}`", list.display()))?;
    if fs::read_to_string(mark).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    fetch()?;
    Ok(fs::write(mark, wanted)?)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A server that runs until it is dropped.
struct Serving {
    child: Child,
    url: String,
    // Its messages go nowhere, but a closed pipe would be an error.
    _messages: BufReader<ChildStderr>,
}

impl Serving {
    fn start(program: &Path, more: &[&str]) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["serve", "--port", "0", "--no-access-log", "--api-key", KEY]).args(more);
        let mut child = command.stderr(Stdio::piped()).spawn().context("cannot start `genie serve`")?;
        let mut messages = BufReader::new(child.stderr.take().context("its messages are piped")?);
        let mut line = String::new();
        loop {
            line.clear();
            if messages.read_line(&mut line)? == 0 {
                let _ = child.kill();
                bail!("`genie serve` ended before it listened");
            }
            if let Some(url) = line.trim().strip_prefix("serving on ") {
                return Ok(Self { child, url: url.to_owned(), _messages: messages });
            }
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself, which the clients have noticed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
