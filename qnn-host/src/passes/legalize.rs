//! Adds conversions where a step cannot read an operand as the client or a constant declares it.
//!
//! Afterwards each operand is a value of the arena, a constant of aligned four-byte elements, or one that its step reads in
//! place: weights, tables, caches, masks.

use std::collections::HashMap;

use crate::bytes::Bytes;
use crate::graph::codec;
use crate::graph::op::Op;
use crate::graph::shared::{Derived, SharedConstants};
use crate::graph::typed::{Constant, Node, Source, TypedGraph, Value, ValueId};
use crate::graph::weight_format::is_quantised_by_row;
use crate::ir::{Dtype, Quant};
use crate::kernels::Isa;
use crate::storage::{Rounding, Storage};

/// Rewrites operands; conversions come first and are shared.
pub(crate) fn legalize(net: &mut TypedGraph, fused: bool, shared: &SharedConstants) {
    let mut loads = Vec::new();
    let mut loaded: HashMap<ValueId, ValueId> = HashMap::new();
    for index in 0..net.nodes.len() {
        for slot in 0..net.nodes[index].inputs.len() {
            let id = net.nodes[index].inputs[slot];
            let root = net.root(id);
            if reads_in_place(net, &net.nodes[index].op, slot, root, fused) {
                continue;
            }
            let made = match (&net.value(root).source, loaded.get(&root)) {
                (Source::Node | Source::View(_), _) => continue,
                (_, Some(&made)) => made,
                (Source::Const(constant), None) if is_words(constant) => continue,
                (Source::Const(constant), None) => {
                    let shape = net.shape(root);
                    let decode = || codec::decode_constant(Isa::detect(), constant, shape);
                    let bytes = shared.get(constant, shape, Derived::Decoded, decode);
                    let value = words_value(net.value(root), bytes);
                    net.add_value(value)
                }
                (Source::Input(_), None) => {
                    let (name, shape) = (net.value(root).name.clone(), net.shape(root).to_vec());
                    let temp = net.add_temp(&name, &shape, net.value(root).storage());
                    loads.push(Node { name, op: Op::Load, inputs: vec![root], output: Some(temp) });
                    temp
                }
            };
            loaded.insert(root, made);
            let shape = net.shape(id).to_vec();
            net.nodes[index].inputs[slot] = net.add_view(made, &shape);
        }
    }
    net.nodes.splice(0..0, loads);
}

/// A constant with these words for contents.
pub(crate) fn words_value(like: &Value, bytes: Bytes) -> Value {
    let dtype = match like.storage() {
        Storage::F32 => Dtype::F32,
        Storage::I32 => Dtype::I32,
    };
    let source = Source::Const(Constant::new(bytes, dtype, Quant::None));
    Value { dtype, quant: Quant::None, rounding: Rounding::None, source, ..like.clone() }
}

/// Whether a constant can be read as `f32` or `i32` where it lies.
fn is_words(constant: &Constant) -> bool {
    matches!(constant.dtype, Dtype::F32 | Dtype::I32 | Dtype::U32) && constant.bytes.as_ptr().cast::<u32>().is_aligned()
}

/// Quantised values that attention reads in place.
fn is_quantised_u8(dtype: Dtype, quant: &Quant) -> bool {
    dtype == Dtype::UFixed8 && matches!(quant, Quant::None | Quant::PerTensor { .. })
}

fn reads_in_place(net: &TypedGraph, op: &Op, slot: usize, root: ValueId, fused: bool) -> bool {
    let value = net.value(root);
    let (dtype, quant, constant) = match &value.source {
        Source::Const(constant) if constant.packing.is_some() => return true,
        Source::Const(constant) => (constant.dtype, &constant.quant, true),
        _ => (value.dtype, &value.quant, false),
    };
    let float = dtype.is_float();
    match *op {
        Op::Leaf(ref leaf) => leaf.reads_raw(slot, dtype, quant),
        Op::Load => true,
        Op::UpdateStore { .. } => slot == 0,
        Op::Gather { .. } if slot == 0 => matches!(quant, Quant::None | Quant::PerTensor { .. }),
        Op::Linear { bias, .. } => match slot {
            1 => constant && (float || is_quantised_by_row(dtype, quant)),
            2 if bias => constant && float,
            _ => false,
        },
        Op::GatedLinear { .. } => (1..=2).contains(&slot) && constant && (float || is_quantised_by_row(dtype, quant)),
        Op::RmsNorm { gamma: true, .. } => slot > 0 && fused && constant && float,
        Op::ScatterMask { .. } => slot == 0 && float,
        Op::Attention(op) => match slot {
            0 => false,
            3 | 4 if op.past_scales => float,
            1 | 2 if op.past > 0 => float || !constant && is_quantised_u8(dtype, quant) && op.has_kernel(),
            n => op.mask && n == op.mask_slot() && float,
        },
        _ => false,
    }
}
