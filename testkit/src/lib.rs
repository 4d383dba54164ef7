//! A small decoder in every form that a bundle can have: random weights, graphs composed through the function table, and the
//! same model in plain double-precision code with its cache rows in a `Vec`.
//!
//! ```
//! use testkit::{Decoder, Form, Size};
//!
//! let decoder = Decoder::random(Size::TINY, 1, |x| x);
//! let backend = testkit::linked_backend();
//! let folder = tempfile::tempdir().unwrap();
//! let form = Form::new(&[(1, 16), (4, 16)]);
//! let bins = form.save(&decoder, &backend, folder.path());
//! let mut engine = engine::Engine::open(&form.config(&decoder, bins), &backend).unwrap();
//! let logits = engine::TokenModel::process(&mut engine, &[genie_types::TokenId(3)]).unwrap();
//! assert!(testkit::distance(logits, &decoder.logits(&[3])) < 1e-4);
//! ```

#![forbid(unsafe_code)]

mod compose;
mod decoder;
mod encoder;
mod form;
mod mapped;
mod naive_cache;

pub use decoder::{Decoder, Layer, Matrix, Rows, Size};
pub use encoder::save_encoder;
pub use form::{CacheType, Form, Group, Part};
pub use mapped::mapped_bytes;
pub use naive_cache::{Entry, Naive, Rule};

use std::sync::Arc;

use qnn_api::{Backend, BackendOptions, Library};

/// The host backend, linked in.
///
/// # Panics
/// It does not start.
pub fn linked_backend() -> Arc<Backend> {
    let library = Library::linked(qnn_host::providers()).expect("the linked host has a table");
    Backend::new(&library, &BackendOptions::default()).expect("the backend starts")
}

/// Largest difference over the largest expected logit; infinite where lengths differ.
pub fn distance(found: &[f32], expected: &[f64]) -> f64 {
    let largest = expected.iter().fold(1e-30f64, |largest, x| largest.max(x.abs()));
    let off = found.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max) / largest;
    if found.len() == expected.len() { off } else { f64::INFINITY }
}
