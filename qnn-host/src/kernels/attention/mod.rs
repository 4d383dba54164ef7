//! Attention over past and new keys and values, read in place.
