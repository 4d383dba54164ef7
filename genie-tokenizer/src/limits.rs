//! Bounds of what a `tokenizer.json` may ask for: above what any published tokenizer has, below what hurts.
//!
//! *Units*: bytes of UTF-8 unless a name says otherwise.

/// The longest file. The largest published ones have 33 MB.
pub const FILE: u64 = 256 << 20;
/// Ids are below it: 64 times the largest vocabulary today.
pub(crate) const IDS: u64 = 1 << 24;
/// An entry of a vocabulary.
pub(crate) const ENTRY: usize = 16 << 10;
/// A piece of a Unigram vocabulary: the library keeps a tree that is as deep, and drops it by recursion.
pub(crate) const PIECE: usize = 512;
/// All pieces of a Unigram vocabulary: each byte may be a node of some 250 bytes.
pub(crate) const PIECES: usize = 8 << 20;
/// The text of an added token.
pub(crate) const ADDED: usize = 1 << 10;
/// All texts of added tokens: the library builds an automaton of them.
pub(crate) const ADDED_TOTAL: usize = 16 << 20;
/// A text in a part: a prefix, a suffix, what replaces a pattern.
pub(crate) const TEXT: usize = 256;
/// A pattern.
pub(crate) const PATTERN: usize = 8 << 10;
/// Parts of one chain, sequences included.
pub(crate) const PARTS: usize = 256;
/// Sequences in sequences.
pub(crate) const DEPTH: usize = 8;
/// Characters of a word that WordPiece looks at: its work grows with the square.
pub(crate) const WORD_CHARS: u64 = 1000;
/// Bytes that normalizers may make of one byte, all together.
pub(crate) const GROWTH: usize = 4096;
/// Steps of a pattern on a probe line. Published patterns need some hundreds.
pub(crate) const PROBE_STEPS: usize = 50_000;
