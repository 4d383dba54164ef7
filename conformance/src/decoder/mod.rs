//! A small decoder in every form that a bundle can have: random weights, graphs composed through the function table, and
//! the same model in plain double-precision code with its cache rows in a `Vec`.
//!
//! ```
//! use conformance::decoder::{Decoder, Form, Size};
//!
//! let decoder = Decoder::random(Size::TINY, 1, |x| x);
//! let backend = conformance::backends::linked();
//! let folder = tempfile::tempdir().unwrap();
//! let form = Form::new(&[(1, 16), (4, 16)]);
//! let bins = form.save(&decoder, &backend, folder.path());
//! let mut engine = engine::Engine::open(&form.config(&decoder, bins), &backend).unwrap();
//! let logits = engine::TokenModel::process(&mut engine, &[genie_types::TokenId(3)]).unwrap();
//! assert!(conformance::decoder::distance(logits, &decoder.logits(&[3])) < 1e-4);
//! ```

mod compose;
mod form;
mod model;
mod rows;

pub use form::{CacheType, Form, Group, Part};
pub use model::{Decoder, Layer, Matrix, Size};
pub use rows::{Entry, Naive, Rule};

/// Largest difference over the largest logit wanted.
pub fn distance(found: &[f32], want: &[f64]) -> f64 {
    let top = want.iter().fold(1e-30f64, |top, x| top.max(x.abs()));
    let off = found.iter().zip(want).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max) / top;
    if found.len() == want.len() { off } else { f64::INFINITY }
}
