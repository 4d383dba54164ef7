//! A node as a package sees it: C structs for its operands and parameters, and the op that the package made of it.
//!
//! *Invariant*: every pointer in the structs leads into boxes that this owns; they stay where they are until the op is freed.

use std::ffi::c_void;
use std::sync::Arc;

use qnn_sys as q;
use qnn_sys::cpu_op_package::{
    QNN_CPU_PARAMTYPE_SCALAR, QNN_CPU_PARAMTYPE_STRING, QNN_CPU_PARAMTYPE_TENSOR, QnnCpuOpPackage_Node_t,
    QnnCpuOpPackage_OpImpl_t, QnnCpuOpPackage_Param_t, QnnCpuOpPackage_Param_t_anon0, QnnCpuOpPackage_Tensor_t,
};
use qnn_sys::{QNN_SUCCESS, Qnn_OpConfig_t, Qnn_OpConfigV1_t, Qnn_Tensor_t};

use super::Package;
use super::param::{self, Table};
use crate::c_memory::{CMemory, keep};
use crate::graph::{ExecError, Violation};
use crate::ir::{self, Node, Param, Role, SourceGraph, Tensor, TensorId};

/// Checks what is required of a node of any package: operands that exist, none left out, numbers that it can hold.
pub(super) fn check(graph: &SourceGraph, node: &Node) -> Result<(), Violation> {
    if let Some(id) = node.inputs.iter().chain(&node.outputs).find(|id| id.0 as usize >= graph.tensors.len()) {
        let expected = format!("tensors below {}", graph.tensors.len());
        return Err(Violation::of_node(node, "operands", expected, id.0.to_string()));
    }
    if node.inputs.iter().any(|&id| matches!(graph.tensor(id).role, Role::Null)) {
        return Err(Violation::of_node(node, "inputs", "all of them, for an op of a package", "one left out"));
    }
    param::check(node)
}

/// Checks a node, and asks a package whether it accepts it.
pub(crate) fn validate(package: &Package, graph: &SourceGraph, node: &Node) -> Result<(), Violation> {
    check(graph, node)?;
    let mut memory = CMemory::default();
    let mut tensors =
        |ids: &[TensorId]| -> Vec<Qnn_Tensor_t> { ids.iter().map(|&id| memory.tensor(id, graph.tensor(id))).collect() };
    let (mut inputs, mut outputs) = (tensors(&node.inputs), tensors(&node.outputs));
    let mut tables = Vec::new();
    let params = node.params.iter();
    let mut params: Vec<_> = params.map(|(name, p)| param::for_config(&mut memory, &mut tables, name, p)).collect();
    let (package_name, op) = ir::split_op(&node.op);
    let mut config = Qnn_OpConfig_t { version: q::QNN_OPCONFIG_VERSION_1, ..Default::default() };
    config.anon0.v1 = Qnn_OpConfigV1_t {
        name: memory.text(&node.name),
        packageName: memory.text(package_name),
        typeName: memory.text(op),
        numOfParams: params.len() as u32,
        params: params.as_mut_ptr(),
        numOfInputs: inputs.len() as u32,
        inputTensors: inputs.as_mut_ptr(),
        numOfOutputs: outputs.len() as u32,
        outputTensors: outputs.as_mut_ptr(),
    };
    // SAFETY: all it points at is owned by this function.
    match unsafe { package.validate(config) } {
        QNN_SUCCESS => Ok(()),
        code => {
            let expected = format!("what op package `{}` accepts", package.name());
            Err(Violation::of_node(node, "node", expected, format!("error {code} ({})", q::error::name(code))))
        }
    }
}

/// A node made by a package.
pub(super) struct MadeOp {
    package: Arc<Package>,
    made: q::QnnOpPackage_OpImpl_t,
    inputs: Box<[*mut QnnCpuOpPackage_Tensor_t]>,
    outputs: Box<[*mut QnnCpuOpPackage_Tensor_t]>,
    /// Whatever the pointers lead to.
    _memory: Memory,
}

/// What a node's pointers lead to. Tensors are reached by raw pointers only, as `data` is written between runs.
#[derive(Default)]
struct Memory {
    c: CMemory,
    tensors: Vec<*mut QnnCpuOpPackage_Tensor_t>,
    params: Vec<*mut QnnCpuOpPackage_Param_t>,
    tables: Vec<Box<[u64]>>,
    lists: Vec<Box<[*mut QnnCpuOpPackage_Param_t]>>,
    node: Option<*mut QnnCpuOpPackage_Node_t>,
}

impl Memory {
    fn tensor(&mut self, tensor: &Tensor) -> *mut QnnCpuOpPackage_Tensor_t {
        let mut dims = || keep(&mut self.c.dims, tensor.dims.iter().copied().collect());
        let (max_dims, dims) = (dims(), dims());
        let c = QnnCpuOpPackage_Tensor_t {
            dataFormat: tensor.data_format,
            dataType: tensor.dtype as u32,
            rank: tensor.dims.len() as u32,
            maxDimensions: max_dims,
            currentDimensions: dims,
            data: std::ptr::null_mut(),
            quantizeParams: self.c.quant(&tensor.quant),
        };
        self.tensors.push(Box::into_raw(Box::new(c)));
        self.tensors[self.tensors.len() - 1]
    }

    fn table(&mut self, table: Table) -> (u32, QnnCpuOpPackage_Param_t_anon0) {
        let c = self.tensor(&table.tensor);
        let data = keep(&mut self.tables, table.words);
        // SAFETY: made just now, and not shared yet.
        unsafe { (*c).data = data.cast() };
        (QNN_CPU_PARAMTYPE_TENSOR, QnnCpuOpPackage_Param_t_anon0 { tensorParam: c })
    }

    fn param(&mut self, name: &str, param: &Param) -> *mut QnnCpuOpPackage_Param_t {
        let number = |v: f64| (QNN_CPU_PARAMTYPE_SCALAR, QnnCpuOpPackage_Param_t_anon0 { scalarParam: v });
        let (kind, anon0) = match param {
            Param::F32(v) => number(f64::from(*v)),
            Param::F64(v) => number(*v),
            Param::Int(v) => number(*v as f64),
            Param::UInt(v) => number(*v as f64),
            Param::Bool(v) => number(f64::from(u8::from(*v))),
            Param::Text(v) => {
                let text = self.c.text(v).cast_mut();
                (QNN_CPU_PARAMTYPE_STRING, QnnCpuOpPackage_Param_t_anon0 { stringParam: text })
            }
            Param::Ints(dims, values) => self.table(Table::of_ints(name, dims, values)),
            Param::Tensor { dtype, dims, data } => self.table(Table::new(name, *dtype, dims, data)),
        };
        let c = QnnCpuOpPackage_Param_t { r#type: kind, name: self.c.text(name), anon0 };
        self.params.push(Box::into_raw(Box::new(c)));
        self.params[self.params.len() - 1]
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` here, freed once; the package freed its op before.
        self.tensors.drain(..).for_each(|p| drop(unsafe { Box::from_raw(p) }));
        // SAFETY: as above.
        self.params.drain(..).for_each(|p| drop(unsafe { Box::from_raw(p) }));
        // SAFETY: as above.
        self.node.take().into_iter().for_each(|p| drop(unsafe { Box::from_raw(p) }));
    }
}

// SAFETY: pointers into memory that this owns; who runs the op holds a lock.
unsafe impl Send for MadeOp {}

impl MadeOp {
    /// Has the package make an op of a node.
    ///
    /// # Errors
    /// The package refuses.
    pub(super) fn new(package: &Arc<Package>, graph: &SourceGraph, node: &Node) -> Result<Self, ExecError> {
        let mut memory = Memory::default();
        let mut tensors =
            |ids: &[TensorId]| -> Box<[_]> { ids.iter().map(|&id| memory.tensor(graph.tensor(id))).collect() };
        let (mut inputs, mut outputs) = (tensors(&node.inputs), tensors(&node.outputs));
        let params: Box<[_]> = node.params.iter().map(|(name, p)| memory.param(name, p)).collect();
        let (package_name, op) = ir::split_op(&node.op);
        let c = QnnCpuOpPackage_Node_t {
            name: memory.c.text(&node.name),
            packageName: memory.c.text(package_name),
            typeName: memory.c.text(op),
            numOfParams: params.len() as u32,
            params: keep(&mut memory.lists, params),
            numOfInputs: inputs.len() as u32,
            inputs: inputs.as_mut_ptr(),
            numOfOutputs: outputs.len() as u32,
            outputs: outputs.as_mut_ptr(),
        };
        let c = *memory.node.insert(Box::into_raw(Box::new(c)));
        let failed = |call, code| ExecError::Package { node: node.name.clone(), op: node.op.clone(), call, code };
        // SAFETY: what the node points at lives in `memory`, which is dropped after the op is freed.
        let made = unsafe { package.create(c.cast()) }.map_err(|code| failed("createOpImpl", code))?;
        if made.is_null() || !made.cast::<QnnCpuOpPackage_OpImpl_t>().is_aligned() {
            return Err(failed("createOpImpl", u64::from(q::QNN_OP_PACKAGE_ERROR_INVALID_HANDLE)));
        }
        Ok(Self { package: package.clone(), made, inputs, outputs, _memory: memory })
    }

    /// Runs the op on these buffers; the package's number.
    ///
    /// # Safety
    /// As many buffers as operands, of the declared sizes, valid for reading and writing until it returns.
    pub(super) unsafe fn run(&mut self, inputs: &[*const u8], outputs: &[*mut u8]) -> u64 {
        for (&tensor, &data) in self.inputs.iter().zip(inputs) {
            // SAFETY: lives as long as `self`; nothing reads it between runs.
            unsafe { (*tensor).data = data.cast_mut().cast() };
        }
        for (&tensor, &data) in self.outputs.iter().zip(outputs) {
            // SAFETY: as above.
            unsafe { (*tensor).data = data.cast::<c_void>() };
        }
        // SAFETY: `create` gave it, not null and aligned (`new`); it is live until `drop`.
        let op = unsafe { *self.made.cast::<QnnCpuOpPackage_OpImpl_t>() };
        match op.opImplFn {
            // SAFETY: the package's own function with its own data, on the caller's buffers.
            Some(function) => unsafe { function(op.userData) },
            None => u64::from(q::QNN_OP_PACKAGE_ERROR_INVALID_HANDLE),
        }
    }
}

impl Drop for MadeOp {
    fn drop(&mut self) {
        // SAFETY: made by this package and not used any more; the memory it looks at is dropped later.
        unsafe { self.package.free(self.made) };
    }
}
