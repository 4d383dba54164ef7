//! The table of problems, one op (or one family under several names) a file.

mod activation;
mod arithmetic;
mod binary;
mod cast;
mod chains;
mod concat;
mod conv2d;
mod convert;
mod cumulative_sum;
mod fully_connected;
mod gather;
mod layer_norm;
mod linear;
mod mat_mul;
mod neuron;
mod pad;
mod reduce;
mod reshape;
mod rms_norm;
mod rotary_embedding;
mod scatter_elements;
mod scatter_nd;
mod select;
mod softmax;
mod split;
mod strided_slice;
mod tile;
mod top_k;
mod transpose;
mod unary;

use super::Problem;

/// All problems.
pub fn all() -> Vec<Problem> {
    [
        gather::problems(),
        fully_connected::problems(),
        mat_mul::problems(),
        conv2d::problems(),
        rms_norm::problems(),
        layer_norm::problems(),
        arithmetic::problems(),
        neuron::problems(),
        unary::problems(),
        binary::problems(),
        select::problems(),
        softmax::problems(),
        concat::problems(),
        split::problems(),
        strided_slice::problems(),
        reshape::problems(),
        transpose::problems(),
        convert::problems(),
        cast::problems(),
        activation::problems(),
        scatter_nd::problems(),
        scatter_elements::problems(),
        reduce::problems(),
        top_k::problems(),
        tile::problems(),
        pad::problems(),
        cumulative_sum::problems(),
        rotary_embedding::problems(),
        chains::problems(),
    ]
    .concat()
}
