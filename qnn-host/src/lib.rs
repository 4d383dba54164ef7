//! A QNN backend on the CPU: builds, checks, fuses, plans and executes graphs behind the C function table.
//!
//! ```
//! let (mut providers, mut n) = (std::ptr::null_mut(), 0);
//! // SAFETY: both pointers are valid for writing.
//! let code = unsafe { qnn_host::QnnInterface_getProviders(&mut providers, &mut n) };
//! assert_eq!((code, n), (0, 1));
//! // SAFETY: one provider was returned, and it lives as long as the program.
//! let table = unsafe { (**providers).table };
//! assert!(table.graphExecute.is_some());
//! ```
//!
//! The same engine without C, for tests and tools:
//!
//! ```
//! use qnn_host::exec::Executable;
//! use qnn_host::ir::{Dtype, Node, Quant, Role, SourceGraph, Tensor, TensorId};
//! use qnn_host::pool::Pool;
//! use qnn_host::prepare::PrepareOptions;
//! use qnn_host::step::Arena;
//!
//! let tensor = |name: &str, role| {
//!     let (name, dims) = (name.to_owned(), vec![4]);
//!     Tensor { name, dims, dtype: Dtype::F32, quant: Quant::None, data_format: 0, role }
//! };
//! let (name, op, params) = ("relu".to_owned(), "Relu".to_owned(), Vec::new());
//! let relu = Node { name, op, params, inputs: vec![TensorId(0)], outputs: vec![TensorId(1)] };
//! let tensors = vec![tensor("x", Role::Input), tensor("y", Role::Output)];
//! let graph = SourceGraph { name: "g".to_owned(), tensors, nodes: vec![relu] };
//!
//! let executable = Executable::prepare(&graph, &PrepareOptions::default())?;
//! let x: Vec<u8> = [-1.0f32, 2.0, -3.0, 4.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
//! let mut y = vec![0; 16];
//! executable.run(&Pool::inline(), &mut Arena::new(), &[&x], &mut [&mut y], None)?;
//! assert_eq!(y[..8], [0.0f32.to_ne_bytes(), 2.0f32.to_ne_bytes()].concat());
//! # Ok::<(), qnn_host::graph::ExecError>(())
//! ```
//!
//! # Types to start with
//!
//! | to | use |
//! |---|---|
//! | get the C tables | [`QnnInterface_getProviders`], [`QnnSystemInterface_getProviders`] |
//! | describe a graph | [`ir::SourceGraph`], [`ir::Tensor`], [`ir::Node`] |
//! | check it | [`validate::check_graph`]; the rules of each op: [`ops::all`] |
//! | prepare and run it | [`exec::Executable`], [`prepare::PrepareOptions`], [`step::Arena`], [`pool::Pool`] |
//! | read a context binary | [`container::summary`], [`weight_traffic::Traffic`] |
//! | call a kernel alone | [`kernels::Isa`] and the functions of [`kernels`] |
//!
//! # What is in here
//!
//! | module | what |
//! |---|---|
//! | [`exports`] | the two symbols a client looks for |
//! | `htp_alias` | whether the library was loaded under the name of the HTP's |
//! | `capi` | the slots of the tables; pointers become slices there and nowhere deeper |
//! | [`error`] | every failure and its QNN number |
//! | `registry` | handles: looked up, never dereferenced |
//! | `pages` | mapped pages that are not needed for now |
//! | [`ir`], [`bytes`] | a graph as the client described it, and its shared bytes |
//! | [`validate`], [`ops`] | checks of tensors, nodes and whole graphs; each op: its rules, lowering and step |
//! | [`container`] | context binaries |
//! | [`package`] | ops that a client registers from a library of its own |
//! | [`prepare`], [`passes`] | from a described graph to one that is ready to run |
//! | [`graph`], [`step`] | typed operations, and the steps that they become |
//! | [`exec`] | scheduling and running steps |
//! | [`kernels`], [`pool`] | arithmetic and threads |
//! | [`roofline`], [`weight_traffic`] | for measuring: what the machine can do at most, and what a graph reads |
//!
//! # What it never does
//!
//! Know what a model or a token is; trust a handle or a file; copy weights that a client promised to keep.

pub mod bytes;
mod c_memory;
mod capi;
pub mod container;
pub mod error;
pub mod exec;
pub mod exports;
pub mod graph;
mod htp_alias;
pub mod ir;
pub mod kernels;
pub mod ops;
pub mod package;
mod pages;
pub mod passes;
pub mod pool;
pub mod prepare;
mod registry;
pub mod roofline;
pub mod step;
mod storage;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod validate;
pub mod weight_traffic;

pub use exports::{QnnInterface_getProviders, QnnSystemInterface_getProviders, providers};

/// Names the build in context binaries and to clients.
pub const BUILD_ID: &str = concat!("qnn-host-", env!("CARGO_PKG_VERSION"));
