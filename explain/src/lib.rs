//! What a KV cache saves: tokens, operations and bytes, counted from a model's shape; and documents about it.
//!
//! ```
//! use explain::{CacheType, Shape, tokens};
//!
//! // 32 layers of 4096 in half floats: 1 GiB of keys and values at 2048 tokens.
//! assert_eq!(Shape::LLAMA_2_7B.cache_bytes(CacheType::F16, 2048), 1 << 30);
//! // Without a cache, 256 tokens after a prompt of 512 take this many tokens through the model.
//! assert_eq!(tokens::without_cache(512, 256), 163_968);
//! ```
//!
//! # What is in here
//!
//! [`Shape`], [`CacheType`], [`tokens`], [`Operations`]: numbers in, numbers out. [`Document`] and the charts: numbers in, text out.
//!
//! # What it never does
//!
//! It measures nothing, and knows no graphs, files or flags.

#![forbid(unsafe_code)]

mod bars;
mod cache_bytes;
mod document;
mod html;
mod lines;
mod markdown;
mod operations;
mod paint;
mod shape;
mod steps_picture;
pub mod tokens;

pub use bars::BarChart;
pub use cache_bytes::CacheType;
pub use document::{Block, Document, Picture, Table};
pub use lines::{LineChart, Series};
pub use operations::Operations;
pub use paint::DrawError;
pub use shape::Shape;
pub use steps_picture::{StepColumn, StepsPicture};
