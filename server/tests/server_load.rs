//! Many clients on few slots, of which some go and some read slowly: each reply is the one that its request has alone.

use std::io::Read;
use std::time::Duration;

use open_genie::serving::ServeOptions;
use serde_json::{Value, json};
use server::ServerOptions;

use crate::client::{read_until, start};

const CLIENTS: usize = 64;

fn body(n: usize, stream: bool, temperature: f32) -> Value {
    let names = ["ROMEO:", "JULIET:", "First Citizen:", "KING RICHARD III:", "O", "What light", "My lord,", "Enter"];
    json!({
        "prompt": format!("{} {}", names[n % names.len()], n / names.len()), "max_tokens": 6 + n % 9,
        "temperature": temperature, "seed": n, "stream": stream,
    })
}

fn said(text: &str) -> String {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    events.filter_map(|event| event.pointer("/choices/0/text")?.as_str().map(str::to_owned)).collect()
}

#[test]
fn sixty_four_clients_on_eight_slots() {
    serve_all(0.0);
}

/// The rows of a prompt that is cached were computed in steps of other widths, beside other rows: they have the same bits.
#[test]
fn sixty_four_sampled_clients_on_eight_slots() {
    serve_all(0.8);
}

fn serve_all(temperature: f32) {
    let server = start(ServerOptions::default(), ServeOptions::default(), None);
    let alone: Vec<String> = (0..CLIENTS)
        .map(|n| {
            server.ok("/v1/completions", &body(n, false, temperature))["choices"][0]["text"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    std::thread::scope(|scope| {
        for (n, alone) in alone.iter().enumerate() {
            let server = &server;
            scope.spawn(move || match n % 4 {
                // Goes before, or in the midst of, its reply.
                0 => {
                    let mut socket = server.raw("/v1/completions", &body(n, n % 8 == 0, temperature));
                    if n % 16 == 0 {
                        read_until(&mut socket, "data: ");
                    }
                }
                // Reads a little at a time.
                1 => {
                    let mut socket = server.raw("/v1/completions", &body(n, true, temperature));
                    let (mut all, mut piece) = (Vec::new(), [0; 200]);
                    while !String::from_utf8_lossy(&all).contains("[DONE]") {
                        std::thread::sleep(Duration::from_millis(5));
                        let n = socket.read(&mut piece).unwrap();
                        assert!(n > 0);
                        all.extend(&piece[..n]);
                    }
                    // Chunks of HTTP lie between the lines: each event is in one.
                    assert_eq!(said(&String::from_utf8(all).unwrap()), *alone, "client {n}");
                }
                2 => {
                    let reply = server.ok("/v1/completions", &body(n, false, temperature));
                    assert_eq!(reply["choices"][0]["text"], alone.as_str(), "client {n}");
                }
                _ => {
                    let (_, text) =
                        server.call("POST", "/v1/completions", &[], &body(n, true, temperature).to_string());
                    assert_eq!(said(&text), *alone, "client {n}");
                }
            });
        }
    });
    // Nothing is left behind: no request runs or waits once the last client is served.
    let mut left = String::new();
    for _ in 0..200 {
        left = server.call("GET", "/metrics", &[], "").1;
        if left.contains("genie_requests_processing 0\n") && left.contains("genie_requests_deferred 0\n") {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{left}");
}
