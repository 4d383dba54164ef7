//! The context binary: graphs and their weights in one file that can be mapped.
//!
//! ```text
//! 0        header, 128 bytes
//!            0  magic "\x89OGHOST\n"          8  format version u32   12  header bytes u32 (128)
//!           16  file bytes u64               24  metadata offset u64  32  metadata bytes u64  40  metadata xxh3 u64
//!           48  weights offset u64           56  weights bytes u64    64  blobs u32           68  graphs u32
//!           72  zeros                       120  xxh3 of bytes 0..120 u64
//! 128      metadata: build id, blob table, graphs, packed forms (see `encode`)
//! k*4096   weights: blobs, each at a multiple of 64, zeros between
//! end      file bytes
//! ```
//!
//! Numbers are little-endian. A *blob* is the bytes of one static tensor, as the client gave them (its portable form);
//! all graphs that hold the same bytes name the same blob. A *packed form* is those bytes rearranged for the product kernels.
//! Where it keeps every value and scale (see [`kernels::unpack`](crate::kernels)), the file holds it alone: one layout serves every CPU,
//! and whoever needs the portable form makes it of that when it is first read.
//!
//! Checks: header and metadata by checksum, always; every offset and length against the file; every graph by
//! [`validate`](crate::validate). Weights carry a checksum each: `decode` verifies them up to [`EAGER_BYTES`] in all,
//! above that only under [`Verify::All`] (`capi` passes it when it copies a binary and in `contextValidateBinary`), so that
//! mapping a large file takes no time. Whoever maps one compares its weights later, piece by piece, with [`WeightSums`].
//!
//! A newer format version is refused by name; an unknown packed form beside the portable one is not an error, alone it is.

mod decode;
mod encode;
mod packed_only;
mod params;
mod sums;
#[cfg(test)]
mod tests;
mod wire;

use thiserror::Error;

use crate::bytes::Bytes;
use crate::graph::Violation;
use crate::ir::SourceGraph;

pub use decode::{Summary, decode, is_ours, summary};
pub(crate) use encode::plan_watched;
pub use encode::{Plan, encode, plan};
pub(crate) use packed_only::portable_of;
pub use sums::{SumsError, WeightSums};

/// First bytes of a file: not text, and broken by transfers that mangle line ends.
pub const MAGIC: [u8; 8] = *b"\x89OGHOST\n";

/// The newest format this code reads, and writes where a graph needs it.
///
/// 4: parameters of op packages keep text, float64 and the type of tensors. All other binaries are written as
/// [`FORMAT_VERSION`], so that programs of before read them.
pub const NEWEST_VERSION: u32 = 4;

/// The format this code writes, except where a graph needs [`NEWEST_VERSION`].
///
/// 3: weights that have a packed form are in the file in that form alone; 2 held both, and is still read.
/// 2: scales of blocks are blobs (1 wrote them into the metadata, and is still read).
pub const FORMAT_VERSION: u32 = 3;

/// Size of the header, in bytes.
pub const HEADER_BYTES: usize = 128;

/// Alignment of the weights section in the file, in bytes: a page.
pub const PAGE: usize = 4096;

/// Alignment of a blob, in bytes.
pub const BLOB_ALIGN: usize = 64;

/// Weights up to this many bytes are verified whenever a binary is read.
pub const EAGER_BYTES: u64 = 64 << 20;

/// A rearranged copy of a blob for some kernel.
#[derive(Clone, Debug)]
pub struct Packed {
    /// The blob it was made of: its static tensor, as (graph, tensor).
    pub of: (usize, crate::ir::TensorId),
    /// Names the arrangement and its version, as the kernel that made it defines.
    pub tag: u32,
    /// The bytes.
    pub data: Bytes,
}

/// What a context binary holds.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// The graphs, in the order they were made.
    pub graphs: Vec<SourceGraph>,
    /// Packed forms of weights.
    pub packed: Vec<Packed>,
}

/// How much of the weights to verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Up to [`EAGER_BYTES`] in all.
    Small,
    /// All of them.
    All,
}

/// Why bytes are not a context binary that can be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Too short to be anything.
    #[error("context binary is torn: expected at least {expected} bytes, found {found}")]
    Torn {
        /// Bytes that must be there.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// Not a context binary of this backend.
    #[error("not a context binary of this backend: expected magic {:02x?}, found {found:02x?}", MAGIC)]
    Foreign {
        /// The first bytes.
        found: [u8; 8],
    },
    /// Made by a later version.
    #[error("context binary has format version {found}, this backend reads up to {}", NEWEST_VERSION)]
    Newer {
        /// The version in the file.
        found: u32,
    },
    /// A checksum does not match.
    #[error("context binary is damaged: checksum of {what} is {found:016x}, expected {expected:016x}")]
    Checksum {
        /// The part.
        what: String,
        /// As stored.
        expected: u64,
        /// As computed.
        found: u64,
    },
    /// The metadata is malformed.
    #[error("context binary is malformed at byte {at}: {what}")]
    Malformed {
        /// Offset in the file.
        at: u64,
        /// Expected and found.
        what: String,
    },
    /// A graph in it breaks a rule.
    #[error("graph `{graph}` of the context binary breaks a rule")]
    Graph {
        /// The graph.
        graph: String,
        /// The rule.
        #[source]
        source: Violation,
    },
    /// More than the format can count.
    #[error("context is too large for a binary: {what}")]
    TooLarge {
        /// What overflows.
        what: String,
    },
    /// Who watches it being made wants an end.
    #[error("the context binary is not made: stopped on request")]
    Stopped,
}
