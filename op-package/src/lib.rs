//! An op package of QNN for the CPU: `LLaMAPackage::PDKVCacheUpdate`.
//!
//! ```
//! use qnn_sys::QnnOpPackage_Interface_t;
//!
//! let mut interface = QnnOpPackage_Interface_t::default();
//! // SAFETY: the interface is valid for writing.
//! let code = unsafe { QnnOpenGeniePackage_CPU::LLaMAPackageInterfaceProvider(&mut interface) };
//! assert_eq!((code, interface.interfaceVersion.major), (0, 1));
//! ```
//!
//! # What is in here
//!
//! | module | what |
//! |---|---|
//! | [`interface`] | the functions that a backend looks for and calls |
//! | [`update`] | the op |
//!
//! # What it never does
//!
//! Allocate while an op runs, keep a pointer longer than its op, know which backend it runs in.
#![allow(non_snake_case)] // C finds the library by this name

pub mod interface;
pub mod update;

pub use interface::{
    LLaMAPackageInterfaceProvider, OpenGeniePackageInterfaceProvider, OpenGeniePackageInterfaceProviderV2,
};
