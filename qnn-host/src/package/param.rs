//! Parameters as a package sees them when it validates a node, and tables as it sees them always.
//!
//! *Dtype*: a validated number is float32, float64, bool8 or an integer of 32 bits, 64 where its value needs them; in a node
//! (see `node`) it is a double. Tensors keep their own type; a table of a binary of before format 4 has lost it.

use qnn_sys as q;
use qnn_sys::{Qnn_Param_t, Qnn_Param_t_anon0};

use crate::bytes::Bytes;
use crate::c_memory::{CMemory, keep};
use crate::graph::Violation;
use crate::ir::{Dtype, Node, Param, Quant, Role, Tensor, TensorId};

/// A tensor parameter: its description without data, and its elements, aligned for any type.
pub(super) struct Table {
    pub(super) tensor: Tensor,
    bytes: usize,
    pub(super) words: Box<[u64]>,
}

impl Table {
    /// A tensor of that type.
    pub(super) fn new(name: &str, dtype: Dtype, dims: &[u32], data: &[u8]) -> Self {
        let words = data.chunks(8).map(|part| {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            u64::from_ne_bytes(word)
        });
        let role = Role::Static(Bytes::copy_from(&[]));
        let (name, dims) = (name.to_owned(), dims.to_vec());
        let tensor = Tensor { name, dims, dtype, quant: Quant::None, data_format: 0, role };
        Self { tensor, bytes: data.len(), words: words.collect() }
    }

    /// Integers that lost their type: in the first of uint32, int32 and int64 that holds all of them.
    pub(super) fn of_ints(name: &str, dims: &[u32], values: &[i64]) -> Self {
        let (dtype, data): (_, Vec<u8>) = if values.iter().all(|&v| u32::try_from(v).is_ok()) {
            (Dtype::U32, values.iter().flat_map(|&v| (v as u32).to_ne_bytes()).collect())
        } else if values.iter().all(|&v| i32::try_from(v).is_ok()) {
            (Dtype::I32, values.iter().flat_map(|&v| (v as i32).to_ne_bytes()).collect())
        } else {
            (Dtype::I64, values.iter().flat_map(|&v| v.to_ne_bytes()).collect())
        };
        Self::new(name, dtype, dims, &data)
    }
}

/// Refuses integers that a node, whose numbers are doubles, cannot hold.
pub(super) fn check(node: &Node) -> Result<(), Violation> {
    for (name, param) in &node.params {
        let value = match param {
            Param::Int(v) => i128::from(*v),
            Param::UInt(v) => i128::from(*v),
            _ => continue,
        };
        if value as f64 as i128 != value {
            let expected = "an integer that a double holds, for an op of a package";
            return Err(Violation::of_node(node, &format!("parameter `{name}`"), expected, value.to_string()));
        }
    }
    Ok(())
}

/// A parameter for `validateOpConfig`; it points into `memory` and `tables`.
pub(super) fn for_config(memory: &mut CMemory, tables: &mut Vec<Box<[u64]>>, name: &str, param: &Param) -> Qnn_Param_t {
    let scalar = |scalar| (q::QNN_PARAMTYPE_SCALAR, Qnn_Param_t_anon0 { scalarParam: scalar });
    let mut tensor = |memory: &mut CMemory, table: Table| {
        let mut c = memory.tensor(TensorId(0), &table.tensor);
        c.anon0.v1.anon0.clientBuf = q::Qnn_ClientBuffer_t {
            data: keep(tables, table.words).cast(),
            dataSize: u32::try_from(table.bytes).unwrap_or(u32::MAX),
        };
        (q::QNN_PARAMTYPE_TENSOR, Qnn_Param_t_anon0 { tensorParam: c })
    };
    let (kind, anon0) = match param {
        Param::F32(v) => scalar(q::scalar!(q::QNN_DATATYPE_FLOAT_32, floatValue, *v)),
        Param::F64(v) => scalar(q::scalar!(q::QNN_DATATYPE_FLOAT_64, doubleValue, *v)),
        Param::Int(v) => match i32::try_from(*v) {
            Ok(v) => scalar(q::scalar!(q::QNN_DATATYPE_INT_32, int32Value, v)),
            Err(_) => scalar(q::scalar!(q::QNN_DATATYPE_INT_64, int64Value, *v)),
        },
        Param::UInt(v) => match u32::try_from(*v) {
            Ok(v) => scalar(q::scalar!(q::QNN_DATATYPE_UINT_32, uint32Value, v)),
            Err(_) => scalar(q::scalar!(q::QNN_DATATYPE_UINT_64, uint64Value, *v)),
        },
        Param::Bool(v) => scalar(q::scalar!(q::QNN_DATATYPE_BOOL_8, bool8Value, u8::from(*v))),
        Param::Text(v) => scalar(q::scalar!(q::QNN_DATATYPE_STRING, stringValue, memory.text(v))),
        Param::Tensor { dtype, dims, data } => tensor(memory, Table::new(name, *dtype, dims, data)),
        Param::Ints(dims, values) => tensor(memory, Table::of_ints(name, dims, values)),
    };
    Qnn_Param_t { paramType: kind, name: memory.text(name), anon0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_lost_its_type_is_as_wide_as_its_values_need() {
        for (values, dtype, words) in [
            (&[1, 2, 3][..], Dtype::U32, &[2 << 32 | 1, 3][..]),
            (&[-1, 2], Dtype::I32, &[2 << 32 | 0xffff_ffff]),
            (&[-1, 1 << 31], Dtype::I64, &[u64::MAX, 1 << 31]),
            (&[], Dtype::U32, &[]),
        ] {
            let table = Table::of_ints("t", &[values.len() as u32], values);
            assert_eq!((table.tensor.dtype, &table.words[..]), (dtype, words));
            assert_eq!(table.bytes, values.len() * dtype.size_bytes());
        }
    }

    #[test]
    fn integers_that_no_double_holds_are_refused() {
        for (param, holds) in [
            (Param::Int(i64::MIN), true),
            (Param::Int(i64::MAX), false),
            (Param::UInt(1 << 63), true),
            (Param::UInt(u64::MAX), false),
            (Param::Int(-(1 << 53) - 1), false),
        ] {
            let params = vec![("p".to_owned(), param.clone())];
            let node = Node { name: "n".into(), op: "P::Op".into(), params, inputs: vec![], outputs: vec![] };
            assert_eq!(check(&node).is_ok(), holds, "{param:?}");
        }
    }
}
