//! A server on the demo model, and clients for it: `ureq` for plain calls, a bare socket where a client misbehaves.

#![allow(dead_code)] // each test binary uses a part

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use open_genie::chat_template::ChatTemplate;
use open_genie::serving::ServeOptions;
use open_genie::{Bundle, Options, SamplerCallback, TokenId, demo};
use serde_json::Value;
use server::{HttpServer, Models, ServedModel, ServerOptions, Shutdown};

/// A server that runs until it is dropped.
pub struct Running {
    pub address: SocketAddr,
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
}

/// The demo model.
pub fn demo_model(serve: ServeOptions, template: Option<&str>) -> ServedModel {
    let bundle = Bundle::read(demo::bundle().unwrap()).unwrap();
    let serving = bundle.open(&Options::new().threads(1)).unwrap().into_serving(serve).unwrap();
    let template = template.map(|source| ChatTemplate::new(source).unwrap());
    ServedModel::start(serving, template).unwrap()
}

/// The demo model with a sampler that panics at its n-th token, from 1 on, and with it the model's thread.
pub fn faulty_model(n: usize) -> ServedModel {
    let mut n_left = n;
    let sampler = SamplerCallback::new(move |_| {
        n_left -= 1;
        assert!(n_left > 0, "the sampler has a fault, as this test wants");
        TokenId(100)
    });
    model_of_sampler(ServeOptions::default(), sampler)
}

/// The demo model with a sampler that takes that long for each token: what runs does not end while a test does something.
pub fn slow_model(serve: ServeOptions, each: Duration) -> ServedModel {
    let sampler = SamplerCallback::new(move |_| {
        std::thread::sleep(each);
        TokenId(100)
    });
    model_of_sampler(serve, sampler)
}

fn model_of_sampler(serve: ServeOptions, sampler: SamplerCallback) -> ServedModel {
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(demo::bundle().unwrap()).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let config = folder.path().join("genie_config.json");
    let mut changed: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    changed["dialog"]["sampler"] = serde_json::json!({"version": 1, "type": "custom", "callback-name": "of the test"});
    std::fs::write(&config, changed.to_string()).unwrap();
    let options = Options::new().threads(1).sampler_callback("of the test", sampler);
    let opened = Bundle::read(folder.path()).unwrap().open(&options).unwrap();
    ServedModel::start(opened.into_serving(serve).unwrap(), None).unwrap()
}

/// On a free port.
pub fn start(options: ServerOptions, serve: ServeOptions, template: Option<&str>) -> Running {
    start_models(options, demo_model(serve, template))
}

/// Those models on a free port.
pub fn start_models(options: ServerOptions, models: impl Into<Models>) -> Running {
    let server = HttpServer::bind(models, ServerOptions { port: 0, ..options }).unwrap();
    let (address, shutdown) = (server.address(), server.shutdown());
    let thread = std::thread::spawn(move || server.run().unwrap());
    Running { address, shutdown, thread: Some(thread) }
}

/// With the usual options.
pub fn plain() -> Running {
    start(ServerOptions::default(), ServeOptions::default(), None)
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.begin();
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Running {
    /// Asks it to end, without waiting.
    pub fn begin_shutdown(&self) {
        self.shutdown.begin();
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Status and text of a call with headers.
    pub fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        let config = ureq::Agent::config_builder().http_status_as_error(false).build();
        let agent = ureq::Agent::new_with_config(config);
        let mut reply = if method == "GET" {
            let request =
                headers.iter().fold(agent.get(self.url(path)), |request, (key, value)| request.header(*key, *value));
            request.call().unwrap()
        } else {
            let request = agent.post(self.url(path)).header("content-type", "application/json");
            let request = headers.iter().fold(request, |request, (key, value)| request.header(*key, *value));
            request.send(body).unwrap()
        };
        (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap())
    }

    pub fn get(&self, path: &str) -> (u16, Value) {
        let (status, text) = self.call("GET", path, &[], "");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = self.call("POST", path, &[], &body.to_string());
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// The reply to a good request.
    pub fn ok(&self, path: &str, body: &Value) -> Value {
        let (status, reply) = self.post(path, body);
        assert_eq!(status, 200, "{reply}");
        reply
    }

    /// The data of all events of a stream; `[DONE]` as a string. Comments are left out.
    pub fn events(&self, path: &str, body: &Value) -> Vec<Value> {
        let (status, text) = self.call("POST", path, &[], &body.to_string());
        assert_eq!(status, 200, "{text}");
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap_or_else(|_| Value::String(data.into()))).collect()
    }

    /// A socket that has asked with GET.
    pub fn raw_get(&self, path: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        socket
    }

    /// A socket that has sent the head and body of a POST.
    pub fn raw(&self, path: &str, body: &Value) -> TcpStream {
        let body = body.to_string();
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(
            socket,
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        socket
    }
}

/// Reads until the text appears; returns all that came.
pub fn read_until(socket: &mut TcpStream, text: &str) -> String {
    let (mut all, mut piece) = (Vec::new(), [0; 1024]);
    while !String::from_utf8_lossy(&all).contains(text) {
        match socket.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(n) => all.extend(&piece[..n]),
        }
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// The text of a chat's chunks, content only.
pub fn content_of(events: &[Value]) -> String {
    events.iter().filter_map(|event| event.pointer("/choices/0/delta/content")?.as_str()).collect()
}
