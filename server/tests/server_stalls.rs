//! What could hold others up and does not: a client that never reads, prompts that take long to turn into tokens.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use open_genie::serving::ServeOptions;
use serde_json::json;
use server::ServerOptions;

use crate::client;
use crate::client::{plain, read_until, start};

/// Asks for a file of the page 4000 times, 42 MB in all, which is more than the system keeps for a client, and reads nothing.
fn never_reads(server: &client::Running) -> TcpStream {
    let mut socket = TcpStream::connect(server.address).unwrap();
    let requests = "GET /page/panels.js HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(4000);
    socket.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    // The server takes all of them, waits with some, or has given up already.
    let _ = socket.write_all(requests.as_bytes());
    socket
}

/// Only one connection at a time: the next client has its turn once the one that does not read is given up.
#[test]
fn a_client_that_never_reads_gives_its_place_back() {
    let options = ServerOptions { max_connections: 1, write_timeout: Duration::from_millis(300), ..Default::default() };
    let server = start(options, ServeOptions::default(), None);
    let unread = never_reads(&server);
    let mut next = server.raw_get("/health");
    next.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let reply = read_until(&mut next, "ok");
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply:?}");
    drop(unread);
}

/// More long texts than threads for connections: a short question is answered before any of them.
#[test]
fn long_texts_hold_no_other_request_up() {
    let server = plain();
    let long = json!({"content": "To be, or not to be, that is the question: ".repeat(50_000)});
    let sockets: Vec<TcpStream> = (0..4).map(|_| server.raw("/tokenize", &long)).collect();
    // Their bodies have arrived by then.
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..3 {
        assert_eq!(server.get("/health").0, 200);
    }
    for mut socket in sockets {
        socket.set_nonblocking(true).unwrap();
        let found = socket.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(found, Err(ErrorKind::WouldBlock), "a text was short: this test needs a longer one");
    }
}

/// They are counted before any of them is looked at.
#[test]
fn too_many_prompts_are_refused_unread() {
    let server = plain();
    let mut prompts = vec![json!("O"); 70];
    prompts.push(json!({"no": "prompt"}));
    for (path, n) in [("/v1/completions", 71), ("/completion", 71)] {
        let (status, reply) = server.post(path, &json!({"prompt": prompts, "max_tokens": 1}));
        let expected = format!("`prompt`: expected 1 to 64 prompts, found {n}");
        assert_eq!((status, &reply["error"]["message"]), (400, &expected.into()), "{path}");
        let (_, reply) = server.post(path, &json!({"prompt": [], "max_tokens": 1}));
        assert_eq!(reply["error"]["message"], "`prompt`: expected 1 to 64 prompts, found 0", "{path}");
    }
}
