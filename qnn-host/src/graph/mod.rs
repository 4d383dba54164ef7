//! The floor that passes, ops and the executor share: a graph of typed operations, and what all of them need to read it.
//!
//! | file | what |
//! |---|---|
//! | `typed` | values, nodes, constants: the form that passes rewrite |
//! | `op`, `scalar` | the operations, and their arithmetic on single elements |
//! | `walk` | broadcasts, transpositions, slices: a result and operands that follow it by strides |
//! | `codec` | between declared element types and the two storage types |
//! | `weight_format` | constant weights that the steps of linear layers read |
//! | `shared` | constants made from constants, once for all graphs of a context |
//! | `step_builder` | a placed graph, as ops see it that make steps |
//! | `error` | what can go wrong while a graph is checked, prepared or run |

pub(crate) mod codec;
pub(crate) mod error;
pub(crate) mod op;
pub(crate) mod scalar;
pub(crate) mod shared;
pub(crate) mod step_builder;
pub(crate) mod typed;
pub(crate) mod walk;
pub(crate) mod weight_format;

pub use error::{ExecError, Violation};
pub(crate) use shared::Derived;
pub use shared::SharedConstants;
