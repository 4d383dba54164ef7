//! The steps, one family a file. Those that end in a call of `crate::kernels` are fast; the others are plain and correct.

pub(crate) mod attention;
pub(crate) mod binary;
pub(crate) mod convert;
pub(crate) mod fast;
pub(crate) mod gather;
pub(crate) mod linear;
pub(crate) mod linear_store;
pub(crate) mod matmul;
pub(crate) mod moves;
pub(crate) mod norm;
pub(crate) mod reduce;
pub(crate) mod rope;
pub(crate) mod scatter;
pub(crate) mod scatter_mask;
pub(crate) mod softmax;
pub(crate) mod store;
pub(crate) mod top_k;
pub(crate) mod unary;
