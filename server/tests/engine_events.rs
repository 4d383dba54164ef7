//! The steps as events: slots, rows, cells and masks say what the requests did; a recording says the same.

use std::io::Read;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use open_genie::serving::ServeOptions;
use serde_json::{Value, json};
use server::{LineSink, ServerOptions};

use crate::client::{plain, read_until, start};

/// Reads until a whole event says that the only slot is idle again: the request's last step.
fn until_idle(socket: &mut TcpStream) -> String {
    let (mut text, mut piece) = (String::new(), [0; 1024]);
    while !text.rsplit_once("\n\n").is_some_and(|(whole, _)| whole.contains("\"state\":\"idle\"")) {
        let n = socket.read(&mut piece).expect("the stream goes on");
        assert!(n > 0, "the stream ended: {text}");
        text.push_str(std::str::from_utf8(&piece[..n]).expect("events are ASCII here"));
    }
    text
}

/// The whole events of a text; the last one may be cut.
fn events_of(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

fn request() -> Value {
    json!({"prompt": "Now is the winter of our discontent", "n_predict": 5, "temperature": 0})
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
}

/// The cells that a mask's row sees, one by one.
fn seen(row: &Value) -> Vec<u64> {
    let runs = row["cells"].as_array().unwrap().iter().map(numbers);
    runs.flat_map(|run| run[0]..run[0] + run[1]).collect()
}

#[test]
fn each_step_is_an_event() {
    let server = plain();
    let mut socket = server.raw_get("/engine/events?mask=1");
    let head = read_until(&mut socket, "\"type\":\"engine\"");
    assert!(head.contains("200 OK") && head.contains("text/event-stream"), "{head}");
    let reply = server.ok("/completion", &request());
    let n_prompt = reply["tokens_evaluated"].as_u64().unwrap();
    let text = until_idle(&mut socket);
    let ticks: Vec<Value> = events_of(&text).into_iter().filter(|event| event["type"] == "tick").collect();
    let prefill: u64 = rows(&ticks, "prefill").iter().map(|row| row["n"].as_u64().unwrap()).sum();
    let decode: u64 = rows(&ticks, "decode").iter().map(|row| row["n"].as_u64().unwrap()).sum();
    assert_eq!((prefill, decode), (n_prompt, 4));
    for (number, tick) in ticks.iter().enumerate() {
        assert_eq!(tick["tick"], number + 1);
        let n_rows: u64 = tick["rows"].as_array().unwrap().iter().map(|row| row["n"].as_u64().unwrap()).sum();
        assert_eq!(n_rows + tick["padding"].as_u64().unwrap(), tick["width"].as_u64().unwrap(), "{tick}");
        assert!(!tick["graphs"].as_array().unwrap().is_empty() && tick["us"].as_u64().unwrap() > 0, "{tick}");
        assert!(tick["us_predicted"].as_f64().unwrap() > 0.0 && tick["dropped"] == 0, "{tick}");
        let slot = &tick["slots"][0];
        // The cells of the only slot are as many as the tokens it has, and those that are in use.
        let cells: u64 = tick["cells"][0]["runs"].as_array().unwrap().iter().map(|run| run[1].as_u64().unwrap()).sum();
        assert_eq!((Some(cells), &slot["n_past"]), (tick["rows_used"].as_u64(), &cells.into()), "{tick}");
        assert_eq!(tick["cells"][0]["runs"][0][3], json!([slot["id"]]));
        // A causal mask: as many cells as there are positions up to the row's own.
        for row in tick["mask"].as_array().unwrap() {
            assert_eq!(seen(row).len() as u64, row["pos"].as_u64().unwrap() + 1, "{row}");
        }
        assert_eq!(tick["mask"].as_array().unwrap().len() as u64, n_rows);
    }
}

fn rows(ticks: &[Value], kind: &str) -> Vec<Value> {
    let all = ticks.iter().flat_map(|tick| tick["rows"].as_array().unwrap().clone());
    all.filter(|row| row["kind"] == kind).collect()
}

/// Two requests that begin alike own the same cells, and neither sees those of the other's own tokens.
#[test]
fn shared_cells_have_two_owners() {
    let server = plain();
    let text = "Now is the winter of our discontent made glorious summer by this sun of York";
    let body = |end: &str| json!({"prompt": format!("{text}{end}"), "n_predict": 2, "temperature": 0});
    server.ok("/completion", &body("; and"));
    server.ok("/completion", &body(", the"));
    let state = server.get("/engine/state").1;
    let runs = state["cells"][0]["runs"].as_array().unwrap();
    assert!(runs.iter().any(|run| run[3] == json!([0, 1])), "{state}");
    assert!(runs.iter().any(|run| run[3] == json!([0])) && runs.iter().any(|run| run[3] == json!([1])), "{state}");
    assert_eq!((&state["type"], &state["version"], &state["n_slots"]), (&"engine".into(), &1.into(), &8.into()));
    assert_eq!(state["predicted_by"], "assumed");
    assert!(!state["widths"].as_array().unwrap().is_empty());
}

#[test]
fn masks_are_sent_to_those_who_ask() {
    let server = plain();
    let mut socket = server.raw_get("/engine/events");
    read_until(&mut socket, "\"type\":\"engine\"");
    server.ok("/completion", &request());
    let text = until_idle(&mut socket);
    assert!(text.contains("\"type\":\"tick\"") && !text.contains("\"mask\""), "{text}");
    for wrong in ["2", "abc", "-1", "%ff"] {
        let (status, reply) = server.get(&format!("/engine/events?mask={wrong}"));
        assert_eq!((status, &reply["error"]["type"]), (400, &"invalid_request_error".into()), "{wrong}: {reply}");
    }
}

/// A listener that does not read holds no request up, and no shutdown either.
#[test]
fn listeners_hold_nothing_up() {
    let server = plain();
    let mut sockets: Vec<_> = (0..16).map(|_| server.raw_get("/engine/events?mask=1")).collect();
    for socket in &mut sockets {
        assert!(read_until(socket, "\"type\":\"engine\"").contains("200 OK"));
    }
    // The seventeenth is refused.
    assert_eq!(server.get("/engine/events").0, 429);
    for _ in 0..4 {
        server.ok("/completion", &request());
    }
    server.begin_shutdown();
    for socket in &mut sockets {
        let mut rest = String::new();
        socket.read_to_string(&mut rest).unwrap();
    }
}

#[test]
fn a_recording_has_each_step() {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let into = Arc::clone(&lines);
    let record = Some(LineSink::new(move |line| into.lock().unwrap().push(line.into())));
    let server = start(ServerOptions { record, ..Default::default() }, ServeOptions::default(), None);
    server.ok("/completion", &request());
    drop(server);
    let lines = lines.lock().unwrap();
    let objects: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects[0]["type"], "engine");
    let decode = rows(&objects[1..], "decode").len();
    assert_eq!((decode, objects.last().unwrap()["tick"].as_u64()), (4, Some(objects.len() as u64 - 1)));
}

#[test]
fn the_page_is_open_and_its_data_is_not() {
    let options = ServerOptions { api_keys: vec!["s3cret".into()], ..Default::default() };
    let server = start(options, ServeOptions::default(), None);
    for path in ["/", "/page/main.js", "/page/style.css"] {
        let mut socket = server.raw_get(path);
        let text = read_until(&mut socket, "\r\n\r\n");
        assert!(text.contains("200 OK") && text.contains("default-src 'none'; script-src 'self'"), "{path}: {text}");
    }
    assert_eq!(
        (server.get("/engine/events").0, server.get("/engine/state").0, server.get("/page/x").0),
        (401, 401, 401)
    );
    assert_eq!(server.call("GET", "/engine/state", &[("authorization", "Bearer s3cret")], "").0, 200);
}
