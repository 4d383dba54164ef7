//! HTTPS: certificate and key read at the start, a handshake for each connection. Without the feature `tls`, both are refused by name.

use crate::error::ServerError;
use crate::options::TlsFiles;

#[cfg(feature = "tls")]
mod with {
    use std::path::Path;
    use std::sync::Arc;

    use tokio::io::{AsyncRead, AsyncWrite};
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio_rustls::rustls::{self, ServerConfig};
    use tokio_rustls::{TlsAcceptor, server::TlsStream};

    use super::*;

    /// What makes an encrypted connection of a plain one.
    #[derive(Clone)]
    pub(crate) struct Acceptor(TlsAcceptor);

    impl Acceptor {
        pub(crate) fn new(files: &TlsFiles) -> Result<Self, ServerError> {
            let unread = |path: &Path| {
                let path = path.to_owned();
                move |error: pem::Error| ServerError::Tls { path, reason: reason_of(&error) }
            };
            let certs = CertificateDer::pem_file_iter(&files.cert).map_err(unread(&files.cert))?;
            let certs: Vec<_> = certs.collect::<Result<_, _>>().map_err(unread(&files.cert))?;
            let refused = |path: &Path, reason: String| ServerError::Tls { path: path.to_owned(), reason };
            if certs.is_empty() {
                return Err(refused(&files.cert, "expected a certificate in PEM, found none".into()));
            }
            let key = PrivateKeyDer::from_pem_file(&files.key).map_err(unread(&files.key))?;
            let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
            let of_config = |error: rustls::Error| refused(&files.key, error.to_string());
            let builder = builder.with_safe_default_protocol_versions().map_err(of_config)?;
            let mut config = builder.with_no_client_auth().with_single_cert(certs, key).map_err(of_config)?;
            // The only protocol that this server speaks.
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Ok(Self(TlsAcceptor::from(Arc::new(config))))
        }

        pub(crate) async fn accept<S>(&self, stream: S) -> std::io::Result<TlsStream<S>>
        where
            S: AsyncRead + AsyncWrite + Unpin,
        {
            self.0.accept(stream).await
        }
    }

    fn reason_of(error: &pem::Error) -> String {
        match error {
            pem::Error::NoItemsFound => "expected PEM, found none".into(),
            error => error.to_string(),
        }
    }
}

#[cfg(not(feature = "tls"))]
mod with {
    use super::*;

    /// There is none: this build has no HTTPS.
    #[derive(Clone)]
    pub(crate) enum Acceptor {}

    impl Acceptor {
        pub(crate) fn new(_: &TlsFiles) -> Result<Self, ServerError> {
            Err(ServerError::NoTls)
        }

        pub(crate) async fn accept<S>(&self, _: S) -> std::io::Result<S> {
            match *self {}
        }
    }
}

pub(crate) use with::Acceptor;
