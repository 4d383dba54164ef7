//! The `Host` that a request names: a page of another site, whose name was made to point here, is refused.

use std::net::IpAddr;

use axum::http::{HeaderMap, header};

use crate::error::ApiError;
use crate::options::ServerOptions;

/// Addresses and `localhost` are fine, all others only by name.
pub(super) fn check(options: &ServerOptions, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(host) = headers.get(header::HOST) else {
        return Err(ApiError::invalid("", "the request has no `Host`"));
    };
    let host = host.to_str().unwrap_or_default();
    let name = name_of(host);
    let is_local = name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok();
    let is_listed = options.allowed_hosts.iter().any(|known| known == "*" || known.eq_ignore_ascii_case(name));
    match is_local || is_listed {
        true => Ok(()),
        false => Err(ApiError::Forbidden(format!("host `{}` is not served here", host.escape_debug()))),
    }
}

/// Without port and brackets.
pub(super) fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn names_of_other_sites_are_refused() {
        let options = ServerOptions { allowed_hosts: vec!["box.lan".into()], ..ServerOptions::default() };
        let allowed = |host: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static(host));
            check(&options, &headers).is_ok()
        };
        for host in ["localhost:8080", "LOCALHOST", "127.0.0.1:1", "[::1]:8080", "192.168.1.4", "box.lan:80"] {
            assert!(allowed(host), "{host}");
        }
        for host in ["evil.example:8080", "localhost.evil.example", "", "box.lan.evil"] {
            assert!(!allowed(host), "{host}");
        }
        assert!(check(&options, &HeaderMap::new()).is_err());
    }
}
