//! The page: a chat and a look into the engine, part of the program. No file is read, and no other machine is asked.
//!
//! *Invariant*: all files together weigh less than 60,000 bytes.

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::state::App;

/// What the page may weigh.
#[cfg(test)]
const MOST_BYTES: usize = 60_000;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

/// Path, type and text of each file.
const FILES: [(&str, &str, &str); 11] = [
    ("/", HTML, include_str!("assets/index.html")),
    ("/page/style.css", CSS, include_str!("assets/style.css")),
    ("/page/main.js", JS, include_str!("assets/main.js")),
    ("/page/dom.js", JS, include_str!("assets/dom.js")),
    ("/page/chat.js", JS, include_str!("assets/chat.js")),
    ("/page/chats.js", JS, include_str!("assets/chats.js")),
    ("/page/settings.js", JS, include_str!("assets/settings.js")),
    ("/page/markdown.js", JS, include_str!("assets/markdown.js")),
    ("/page/api.js", JS, include_str!("assets/api.js")),
    ("/page/engine.js", JS, include_str!("assets/engine.js")),
    ("/page/panels.js", JS, include_str!("assets/panels.js")),
];

/// Scripts and styles of this server alone, no frames around the page, requests to this server alone.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// A route for each file.
pub(crate) fn routes() -> Router<App> {
    FILES.iter().fold(Router::new(), |router, &(path, kind, text)| {
        router.route(path, get(move || async move { file(kind, text) }))
    })
}

/// Whether the path is one of the page's files, which are open to everyone: what they show is asked for with a key.
pub(crate) fn is_file(path: &str) -> bool {
    FILES.iter().any(|(known, ..)| *known == path)
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_light() {
        let bytes: usize = FILES.iter().map(|(.., text)| text.len()).sum();
        assert!(bytes < MOST_BYTES, "{bytes} bytes, expected less than {MOST_BYTES}");
    }

    /// Scripts that would need a looser policy, and addresses of other machines, are in none of the files.
    #[test]
    fn the_files_keep_to_the_policy() {
        for (path, _, text) in FILES {
            for refused in [
                "http://",
                "https://",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "eval(",
                " style=\"",
                "onclick=",
            ] {
                assert!(!text.contains(refused), "{path} has `{refused}`");
            }
        }
    }

    /// Each module that another one names is served.
    #[test]
    fn what_is_imported_is_there() {
        for (path, _, text) in FILES {
            for (_, rest) in text.match_indices("from \"./").map(|(at, found)| (at, &text[at + found.len()..])) {
                let name = rest.split('"').next().unwrap_or_default();
                assert!(is_file(&format!("/page/{name}")), "{path} imports `{name}`");
            }
        }
    }
}
