//! Tests over whole bundles.
