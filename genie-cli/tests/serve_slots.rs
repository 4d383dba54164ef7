//! `genie serve` killed while it saves a slot: the file is the old one or the new one, and nothing else is left in the folder.

#![cfg(all(unix, feature = "server"))]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use assert_cmd::cargo::CommandCargoExt;
use serde_json::{Value, json};

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Path) -> Self {
        let mut command = Command::cargo_bin("genie").unwrap();
        command.args(["serve", "--port", "0", "--threads", "1", "--no-access-log", "--slot-save-path"]).arg(folder);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address =
            lines.by_ref().find_map(|line| Some(line.unwrap().strip_prefix("serving on http://")?.to_owned()));
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address: address.expect("it says where it listens") }
    }

    /// `None` if the server went away meanwhile.
    fn post(&self, path: &str, body: &Value) -> Option<Value> {
        let body = body.to_string();
        let mut socket = TcpStream::connect(&self.address).ok()?;
        write!(
            socket,
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .ok()?;
        let mut text = String::new();
        socket.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        assert!(head.starts_with("HTTP/1.1 200"), "{text}");
        serde_json::from_str(body).ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_kill_during_a_save_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let prompt = json!({"prompt": "Now is the winter of our discontent ".repeat(8), "n_predict": 2, "temperature": 0});
    let file = json!({"filename": "one"});
    let mut n_past = None;
    for round in 0..4 {
        let mut server = Server::start(folder.path());
        if let Some(n_past) = &n_past {
            let restored = server.post("/slots/0?action=restore", &file).expect("the file is whole");
            assert_eq!(&restored["n_restored"], n_past, "round {round}");
        } else {
            server.post("/completion", &prompt).unwrap();
            n_past = server.post("/slots/0?action=save", &file).map(|saved| saved["n_saved"].clone());
        }
        std::thread::scope(|scope| {
            let address = server.address.clone();
            let file = &file;
            let saver = scope.spawn(move || {
                let other = Server { child: Command::new("true").spawn().unwrap(), address };
                while other.post("/slots/0?action=save", file).is_some() {}
            });
            // At another moment of a save each time; whichever it is, the file has to be whole.
            std::thread::sleep(Duration::from_micros(30_000 + 1_700 * round));
            server.child.kill().unwrap();
            server.child.wait().unwrap();
            saver.join().unwrap();
        });
    }
    let server = Server::start(folder.path());
    assert_eq!(Some(server.post("/slots/0?action=restore", &file).unwrap()["n_restored"].clone()), n_past);
    // The next save sweeps what the killed ones have left.
    server.post("/slots/0?action=save", &file).unwrap();
    let names: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["one"]);
}
