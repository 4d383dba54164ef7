//! Keys: compared without telling by the time it takes how much of one was right.

use axum::http::{HeaderMap, header};
use subtle::{Choice, ConstantTimeEq};

use crate::error::ApiError;
use crate::options::ServerOptions;

/// `Authorization: Bearer KEY`, or Anthropic's `x-api-key`.
pub(super) fn check(options: &ServerOptions, headers: &HeaderMap) -> Result<(), ApiError> {
    if options.api_keys.is_empty() {
        return Ok(());
    }
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    });
    let given = bearer.or_else(|| headers.get("x-api-key")?.to_str().ok()).unwrap_or_default();
    // All keys are compared, whichever is right.
    let is_right =
        options.api_keys.iter().fold(Choice::from(0), |so_far, key| so_far | key.as_bytes().ct_eq(given.as_bytes()));
    if bool::from(is_right) { Ok(()) } else { Err(ApiError::Unauthorized) }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn each_key_opens_in_either_header() {
        let options = ServerOptions { api_keys: vec!["one".into(), "two".into()], ..ServerOptions::default() };
        let opens = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            check(&options, &headers).is_ok()
        };
        assert!(
            opens("authorization", "Bearer one") && opens("authorization", "bearer two") && opens("x-api-key", "two")
        );
        for wrong in ["Bearer on", "Bearer onee", "Basic one", "one", "Bearer "] {
            assert!(!opens("authorization", wrong), "{wrong}");
        }
        assert!(check(&options, &HeaderMap::new()).is_err());
        assert!(check(&ServerOptions::default(), &HeaderMap::new()).is_ok());
    }
}
