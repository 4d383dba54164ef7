//! A float16 step in codes: 16-bit activations, int8 weights, an 8-bit cache.
//!
//! Encodings of what flows between nodes come from a run of the float graph on the host, all of it made outputs; moved
//! tensors keep the encoding of what they move, and new rows are converted to the cache's before they join it.

use std::collections::BTreeMap;

use genie_types::{Dtype, Quant, TensorInfo};
use qnn_api::TensorKind;

use crate::suite::Problem;
use crate::suite::codec::{Fit, Ty, U8, U16, decode, encode};
use crate::suite::problem::{Node, Role, Tensor};
use crate::suite::runtime::{Linked, Runtime};
use crate::suite::values::Values;

/// Ops whose output has the encoding of input 0.
const MOVES: [&str; 5] = ["Reshape", "Transpose", "Gather", "Concat", "ScatterElements"];

/// The step with every float16 tensor in codes. `caches` are the encodings of keys and values, layer by layer.
pub(super) fn in_codes(float: &Problem, caches: &[Quant]) -> Problem {
    let seen = calibrated(float);
    let mut coded = float.clone();
    coded.tensors.clear();
    coded.nodes.clear();
    let weights: Vec<&String> =
        float.nodes.iter().filter(|n| n.op == "FullyConnected").flat_map(|n| n.inputs.get(1)).collect();
    let biases: BTreeMap<&String, &Node> =
        float.nodes.iter().filter_map(|n| (n.op == "FullyConnected").then_some((n.inputs.get(2)?, n))).collect();
    let past = past_tensors(float);

    // Encodings first, in the order of nodes, since biases and moved tensors follow from others.
    let mut encodings: BTreeMap<String, (Dtype, Quant)> = BTreeMap::new();
    for tensor in float.operands().filter(|t| t.info.dtype != Dtype::I32 && !biases.contains_key(&t.info.name)) {
        let values = values_of(tensor);
        let name = &tensor.info.name;
        let ty = match past.iter().position(|p| *p == name) {
            Some(index) => U8.with(Fit::Given(caches[index].clone())),
            None if weights.contains(&name) => Ty::s8_by(0),
            None => U16,
        };
        encodings.insert(name.clone(), (ty.dtype, ty.encoding(&values, &[])));
    }
    for node in float.nodes.iter().filter(|n| !integer(float, &n.outputs[0])) {
        let own = match node.op {
            op if MOVES.contains(&op) => encodings[&node.inputs[0]].clone(),
            "Softmax" => (Dtype::UFixed16, Quant::PerTensor { scale: 1.0 / 65535.0, offset: 0 }),
            _ => (Dtype::UFixed16, U16.encoding(&seen[&node.outputs[0]], &[])),
        };
        encodings.insert(node.outputs[0].clone(), own);
    }
    for (bias, node) in &biases {
        let operands = [encodings[&node.inputs[0]].1.clone(), encodings[&node.inputs[1]].1.clone()];
        let s32 = crate::suite::codec::of(Dtype::SFixed32).with(Fit::Product(0, 1));
        let values = Values::new([0], vec![]);
        encodings.insert((*bias).clone(), (Dtype::SFixed32, s32.encoding(&values, &operands)));
    }

    for tensor in &float.tensors {
        let Some((dtype, quant)) = encodings.get(&tensor.info.name) else {
            coded.tensors.push(tensor.clone());
            continue;
        };
        let role = match &tensor.role {
            Role::Input(_) => Role::Input(encode(&values_of(tensor), *dtype, quant)),
            Role::Constant(_) => Role::Constant(encode(&values_of(tensor), *dtype, quant)),
            other => other.clone(),
        };
        let info = TensorInfo::new(tensor.info.name.clone(), tensor.info.dims.clone(), *dtype);
        coded.tensors.push(Tensor { info: info.with_quant(quant.clone()), role });
    }
    for node in &float.nodes {
        add(&mut coded, node, caches);
    }
    coded
}

/// Adds a node; new rows become codes of the cache before they are an output or are scattered.
fn add(coded: &mut Problem, node: &Node, caches: &[Quant]) {
    let cache = node.outputs[0].strip_prefix('y').and_then(|n| n.parse::<usize>().ok()).filter(|n| *n > 0);
    let mut node = node.clone();
    if let Some(quant) = cache.map(|n| &caches[n - 1]) {
        let scatters = node.op == "ScatterElements";
        let source = if scatters { node.inputs[2].clone() } else { node.outputs[0].clone() };
        let at = coded.tensors.iter().position(|t| t.info.name == source).expect("the tensor is declared");
        let name = format!("{source}_codes");
        let mut info = coded.tensors[at].info.clone();
        info.name.clone_from(&name);
        let convert = |from: &str, to: &str| Node {
            op: "Convert",
            params: Vec::new(),
            inputs: vec![from.to_owned()],
            outputs: vec![to.to_owned()],
        };
        if scatters {
            info = TensorInfo { dtype: Dtype::UFixed8, quant: quant.clone(), ..info };
            coded.nodes.push(convert(&source, &name));
            node.inputs[2].clone_from(&name);
            coded.nodes.push(node);
        } else {
            let out = &mut coded.tensors[at].info;
            (out.dtype, out.quant) = (Dtype::UFixed8, quant.clone());
            node.outputs[0].clone_from(&name);
            coded.nodes.push(node);
            coded.nodes.push(convert(&name, &source));
        }
        coded.tensors.push(Tensor { info, role: Role::Native });
        return;
    }
    coded.nodes.push(node);
}

/// Names of the past's inputs: keys and values of each layer, as the nodes that extend them say.
fn past_tensors(float: &Problem) -> Vec<&String> {
    let extends = |n: &&Node| matches!(n.op, "Concat" | "ScatterElements");
    float.nodes.iter().filter(extends).map(|n| &n.inputs[0]).collect()
}

fn integer(problem: &Problem, name: &str) -> bool {
    problem.tensors.iter().any(|t| t.info.name == name && t.info.dtype == Dtype::I32)
}

fn values_of(tensor: &Tensor) -> Values {
    match &tensor.role {
        Role::Input(bytes) | Role::Constant(bytes) => {
            decode(bytes, &tensor.info.dims, tensor.info.dtype, &tensor.info.quant)
        }
        _ => unreachable!("operands have bytes"),
    }
}

/// What every tensor between nodes holds when the float graph runs.
fn calibrated(float: &Problem) -> BTreeMap<String, Values> {
    let mut open = float.clone();
    for tensor in &mut open.tensors {
        if tensor.role.kind() == Some(TensorKind::Native) && tensor.info.dtype != Dtype::I32 {
            tensor.role = Role::Output;
        }
    }
    let outputs = Linked::start().run(&open).expect("the float graph runs on the host");
    let read = |(t, b): (&TensorInfo, &Vec<u8>)| (t.name.clone(), decode(b, &t.dims, t.dtype, &t.quant));
    open.output_infos().zip(&outputs).map(read).collect()
}
