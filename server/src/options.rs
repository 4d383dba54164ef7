//! What a server may do, and its limits.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::ServerError;

/// What takes lines of a log.
#[derive(Clone)]
pub struct LineSink(Arc<dyn Fn(&str) + Send + Sync>);

impl LineSink {
    /// Calls this with each line.
    pub fn new(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(write))
    }

    pub(crate) fn write(&self, line: &str) {
        (self.0)(line);
    }
}

impl std::fmt::Debug for LineSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LineSink")
    }
}

/// What HTTPS needs, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by those that sign it.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Where it listens, who may ask, and how much.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The address to listen on. Others than loopback ones need a key.
    pub host: IpAddr,
    /// The port; 0 takes a free one.
    pub port: u16,
    /// Keys of which a request has to carry one; none: no key is asked for.
    pub api_keys: Vec<String>,
    /// Names that requests may give as `Host`, beside addresses and `localhost`.
    pub allowed_hosts: Vec<String>,
    /// Origins of pages that may ask, beside those on this machine; `*` for all.
    pub allowed_origins: Vec<String>,
    /// The model's name in replies; otherwise the bundle's.
    pub alias: Option<String>,
    /// The folder of saved slots; none: slots cannot be saved.
    pub slot_folder: Option<PathBuf>,
    /// Slots are written there at the end, and read at the next start.
    pub keep_slots: bool,
    /// HTTPS instead of HTTP; needs the feature `tls`.
    pub tls: Option<TlsFiles>,
    /// Most bytes of a request's body.
    pub body_limit: usize,
    /// Most connections at a time; more wait to be accepted.
    pub max_connections: usize,
    /// How long a request's head, and then its body, may take to arrive.
    pub read_timeout: Duration,
    /// How long a client may read nothing while there is something for it; then its connection ends.
    pub write_timeout: Duration,
    /// How long a reply may take, waiting included.
    pub reply_timeout: Duration,
    /// Silence of a stream after which a comment is sent, so that no proxy closes it.
    pub keep_alive: Duration,
    /// How long replies may go on after a shutdown was asked for.
    pub drain: Duration,
    /// Takes a line of JSON for each request.
    pub access_log: Option<LineSink>,
    /// Takes a line of JSON for each step of the model: what `GET /engine/events` sends.
    pub record: Option<LineSink>,
    /// The system message of chats that have none of their own.
    pub system: Option<String>,
    /// Most tokens of a reply where neither request nor bundle says; none: as many as fit.
    pub max_tokens: Option<usize>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            host: Ipv4Addr::LOCALHOST.into(),
            port: 8080,
            api_keys: Vec::new(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            alias: None,
            slot_folder: None,
            keep_slots: false,
            tls: None,
            body_limit: 8 << 20,
            max_connections: 512,
            read_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            reply_timeout: Duration::from_secs(600),
            keep_alive: Duration::from_secs(10),
            drain: Duration::from_secs(30),
            access_log: None,
            record: None,
            system: None,
            max_tokens: None,
        }
    }
}

impl ServerOptions {
    /// The end of the time that a reply may take, if it begins now; far away for one that no clock has.
    pub(crate) fn reply_deadline(&self) -> tokio::time::Instant {
        const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);
        let now = tokio::time::Instant::now();
        now.checked_add(self.reply_timeout).unwrap_or_else(|| now + FAR)
    }

    /// Refuses what would be open to everyone.
    pub(crate) fn check(&self) -> Result<(), ServerError> {
        if !self.host.is_loopback() && self.api_keys.is_empty() {
            return Err(ServerError::OpenWithoutKey { host: self.host });
        }
        match self.api_keys.iter().position(|key| key.trim().is_empty()) {
            Some(index) => Err(ServerError::EmptyKey { index }),
            None => Ok(()),
        }
    }
}
