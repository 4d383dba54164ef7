//! Pages that may ask: those of this machine, and those that the options name.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::host::name_of;
use crate::error::ApiError;
use crate::options::ServerOptions;

/// Refuses a request that a page of another site has sent: browsers send some without asking.
pub(super) fn check(options: &ServerOptions, headers: &HeaderMap) -> Result<(), ApiError> {
    match headers.get(header::ORIGIN) {
        Some(origin) if !is_allowed(options, origin) && !is_own(options, origin, headers) => {
            let origin = String::from_utf8_lossy(origin.as_bytes()).escape_debug().to_string();
            Err(ApiError::Forbidden(format!("origin `{origin}` is not allowed")))
        }
        _ => Ok(()),
    }
}

fn is_allowed(options: &ServerOptions, origin: &HeaderValue) -> bool {
    let Ok(origin) = origin.to_str() else { return false };
    let is_listed = options.allowed_origins.iter().any(|known| known == "*" || known == origin);
    let Some((_, host)) = origin.split_once("://") else { return is_listed };
    is_listed || ["localhost", "127.0.0.1", "::1"].contains(&name_of(host))
}

/// Whether it is a page of this server: its origin is the `Host` that was checked before. Where any host is allowed that says nothing.
fn is_own(options: &ServerOptions, origin: &HeaderValue, headers: &HeaderMap) -> bool {
    if options.allowed_hosts.iter().any(|known| known == "*") {
        return false;
    }
    let (Some(host), Ok(origin)) = (headers.get(header::HOST), origin.to_str()) else { return false };
    origin.split_once("://").is_some_and(|(_, at)| at.as_bytes().eq_ignore_ascii_case(host.as_bytes()))
}

/// Tells browsers who may ask, and reads their questions.
pub(crate) fn cors(options: &ServerOptions) -> CorsLayer {
    let options = options.clone();
    CorsLayer::new()
        .allow_origin(AllowOrigin::predicate(move |origin, _| is_allowed(&options, origin)))
        .allow_methods([Method::GET, Method::POST])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([HeaderName::from_static("x-request-id")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sites_are_refused() {
        let options = ServerOptions { allowed_origins: vec!["https://chat.lan".into()], ..ServerOptions::default() };
        for (origin, expected) in [
            ("http://localhost:3000", true),
            ("http://127.0.0.1", true),
            ("http://[::1]:5", true),
            ("https://chat.lan", true),
            ("http://chat.lan", false),
            ("https://localhost.evil.example", false),
            ("null", false),
        ] {
            assert_eq!(is_allowed(&options, &HeaderValue::from_static(origin)), expected, "{origin}");
        }
    }

    #[test]
    fn pages_of_this_server_may_ask_it_from_anywhere() {
        let headers = |host: &'static str, origin: &'static str| {
            HeaderMap::from_iter(
                [(header::HOST, host), (header::ORIGIN, origin)].map(|(k, v)| (k, HeaderValue::from_static(v))),
            )
        };
        let options = ServerOptions::default();
        assert!(check(&options, &headers("192.168.1.4:8080", "http://192.168.1.4:8080")).is_ok());
        assert!(check(&options, &headers("box.lan", "https://BOX.lan")).is_ok());
        for (host, origin) in [
            ("192.168.1.4:8080", "http://192.168.1.4:9090"),
            ("192.168.1.4:8080", "http://192.168.1.4"),
            ("192.168.1.4:8080", "http://evil.example"),
            ("192.168.1.4:8080", "null"),
        ] {
            assert!(check(&options, &headers(host, origin)).is_err(), "{origin}");
        }
        let any = ServerOptions { allowed_hosts: vec!["*".into()], ..ServerOptions::default() };
        assert!(check(&any, &headers("evil.example", "http://evil.example")).is_err());
    }
}
