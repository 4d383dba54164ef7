//! `genie serve` as tests start it: on a free port and one thread, asked over a socket, killed when the test is over.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::with_users_cache;

/// A server that listens; killed when it is dropped, by a failed test too.
pub struct Server {
    pub child: Child,
    pub address: String,
    /// What it wrote before it listened.
    pub said: Vec<String>,
    /// Reads what it writes after that: a full pipe would stop the server.
    log: Option<JoinHandle<Vec<String>>>,
}

/// `genie serve`, to which a test adds its flags.
pub fn serve() -> Command {
    with_users_cache(&["serve", "--port", "0", "--threads", "1"])
}

impl Server {
    pub fn start(command: &mut Command) -> Self {
        let io = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = io.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut said = Vec::new();
        let address = lines.by_ref().find_map(|line| {
            let address = line.strip_prefix("serving on http://").map(str::to_owned);
            said.push(line);
            address
        });
        let address = address.unwrap_or_else(|| panic!("it says where it listens: {said:?}"));
        let log = std::thread::spawn(move || lines.collect());
        Self { child, address, said, log: Some(log) }
    }

    /// A request whose reply is still to be read; `None` if nothing listens any more.
    pub fn send(&self, method: &str, path: &str, body: &str) -> Option<TcpStream> {
        let mut socket = TcpStream::connect(&self.address).ok()?;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        write!(socket, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).ok()?;
        Some(socket)
    }

    /// Status and body; `None` if the server went away meanwhile.
    pub fn try_ask(&self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        let mut text = String::new();
        self.send(method, path, body)?.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// Status and body.
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        self.try_ask(method, path, &body.to_string()).unwrap_or_else(|| panic!("{method} {path}: no whole reply"))
    }

    /// The body of a reply that must be whole and well.
    pub fn json(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, text) = self.ask(method, path, body);
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    pub fn post(&self, path: &str, body: &Value) -> Value {
        self.json("POST", path, body)
    }

    /// Sends it a signal: `-TERM`, `-KILL`.
    pub fn signal(&self, name: &str) {
        let done = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    /// Its exit code, and what it wrote while it served; waits for its end.
    pub fn end(mut self) -> (Option<i32>, Vec<String>) {
        let status = self.child.wait().unwrap();
        (status.code(), self.log.take().unwrap().join().unwrap())
    }
}

/// Whether a recorded step has left all slots idle.
pub fn leaves_all_idle(step: &Value) -> bool {
    step["slots"].as_array().is_some_and(|slots| slots.iter().all(|slot| slot["state"] == "idle"))
}

/// The steps in a file of `--record`, once the last one is there: a step is written after its tokens are sent.
pub fn recorded(file: &Path, is_last: impl Fn(&Value) -> bool) -> Vec<Value> {
    let began = Instant::now();
    loop {
        let text = std::fs::read_to_string(file).unwrap();
        let steps: Vec<Value> = text.lines().skip(1).filter_map(|line| serde_json::from_str(line).ok()).collect();
        if steps.last().is_some_and(&is_last) {
            return steps;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
