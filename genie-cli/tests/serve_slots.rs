//! `genie serve` killed while it saves a slot: the file is the old one or the new one, and nothing else is left in the folder.

#![cfg(all(unix, feature = "server"))]

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::served::{Server, serve};

fn start(folder: &Path) -> Server {
    Server::start(serve().args(["--no-access-log", "--slot-save-path"]).arg(folder))
}

#[test]
fn a_kill_during_a_save_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let prompt = json!({"prompt": "Now is the winter of our discontent ".repeat(8), "n_predict": 2, "temperature": 0});
    let file = json!({"filename": "one"});
    let mut n_past = None;
    for round in 0..4 {
        let server = start(folder.path());
        if let Some(n_past) = &n_past {
            let restored = server.post("/slots/0?action=restore", &file);
            assert_eq!(&restored["n_restored"], n_past, "round {round}");
        } else {
            server.post("/completion", &prompt);
            n_past = Some(server.post("/slots/0?action=save", &file)["n_saved"].clone());
        }
        std::thread::scope(|scope| {
            let saver = scope.spawn(|| {
                let save = || server.try_ask("POST", "/slots/0?action=save", &file.to_string());
                while let Some((status, text)) = save() {
                    assert_eq!(status, 200, "{text}");
                }
            });
            // At another moment of a save each time; whichever it is, the file has to be whole.
            std::thread::sleep(Duration::from_micros(30_000 + 1_700 * round));
            server.signal("-KILL");
            saver.join().unwrap();
        });
    }
    let server = start(folder.path());
    assert_eq!(Some(server.post("/slots/0?action=restore", &file)["n_restored"].clone()), n_past);
    // The next save sweeps what the killed ones have left.
    server.post("/slots/0?action=save", &file);
    let names: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["one"]);
}
