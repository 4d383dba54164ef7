//! HTTPS: a client that trusts the certificate of `tests/tls` is answered, whole and streamed; one that speaks plain HTTP is not, and holds
//! nothing up.
//!
//! *Source*: `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 -subj /CN=localhost -addext
//! subjectAltName=DNS:localhost,IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE -keyout key.pem -out cert.pem`

mod client;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::{Running, demo_model, start};
use open_genie::serving::ServeOptions;
use serde_json::json;
use server::{HttpServer, ServerError, ServerOptions, TlsFiles};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
}

fn files() -> TlsFiles {
    TlsFiles { cert: file("cert.pem"), key: file("key.pem") }
}

fn https(server: &Running, request: &str) -> String {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("cert.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let config = Arc::new(config.with_no_client_auth());
    let connection = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(server.address).unwrap());
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_client_that_trusts_the_certificate_is_answered() {
    let server = start(ServerOptions { tls: Some(files()), ..Default::default() }, ServeOptions::default(), None);
    let mut plain = server.raw_get("/health");
    let mut text = Vec::new();
    // Refused, or closed.
    let _ = plain.read_to_end(&mut text);
    assert!(!String::from_utf8_lossy(&text).contains("200 OK"));
    let health = https(&server, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(health.starts_with("HTTP/1.1 200") && health.contains("{\"status\":\"ok\"}"), "{health}");
    let body = json!({"prompt": "O", "max_tokens": 3, "stream": true}).to_string();
    let n = body.len();
    let head = format!("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {n}");
    assert!(https(&server, &format!("{head}\r\n\r\n{body}")).contains("data: [DONE]"));
}

#[test]
fn files_of_no_use_are_named() {
    for (cert, key, wrong) in
        [("none.pem", "key.pem", "none.pem"), ("key.pem", "key.pem", "key.pem"), ("cert.pem", "cert.pem", "cert.pem")]
    {
        let tls = Some(TlsFiles { cert: file(cert), key: file(key) });
        let options = ServerOptions { tls, port: 0, ..Default::default() };
        match HttpServer::bind(demo_model(ServeOptions::default(), None), options) {
            Err(ServerError::Tls { path, .. }) => assert_eq!(path, file(wrong)),
            other => panic!("{other:?}"),
        }
    }
}
