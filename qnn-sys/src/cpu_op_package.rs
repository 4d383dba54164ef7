//! What an op package for the CPU is given: nodes with their tensors, and what it gives back.
//!
//! *Layout*: LP64, as `CPU/QnnCpuOpPackage.h` of the SDK has it.
#![allow(missing_docs, non_camel_case_types, non_snake_case)] // C's spelling is the documentation's key

use core::ffi::{c_char, c_void};
use core::mem::offset_of;

use crate::{Qnn_ErrorHandle_t, Qnn_QuantizeParams_t};

/// A number, as a double.
pub const QNN_CPU_PARAMTYPE_SCALAR: u32 = 0;
/// A tensor.
pub const QNN_CPU_PARAMTYPE_TENSOR: u32 = 1;
/// A text.
pub const QNN_CPU_PARAMTYPE_STRING: u32 = 2;

/// An operand. `data` is set before each execution; all else stays as it was when the op was made.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct QnnCpuOpPackage_Tensor_t {
    pub dataFormat: u32,
    pub dataType: u32,
    pub rank: u32,
    pub maxDimensions: *mut u32,
    pub currentDimensions: *mut u32,
    pub data: *mut c_void,
    pub quantizeParams: Qnn_QuantizeParams_t,
}

/// What a parameter holds, by its type.
#[repr(C)]
#[derive(Clone, Copy)]
pub union QnnCpuOpPackage_Param_t_anon0 {
    pub scalarParam: f64,
    pub stringParam: *mut c_char,
    pub tensorParam: *mut QnnCpuOpPackage_Tensor_t,
}

/// A parameter.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct QnnCpuOpPackage_Param_t {
    pub r#type: u32,
    pub name: *const c_char,
    pub anon0: QnnCpuOpPackage_Param_t_anon0,
}

/// A node; it lives as long as its implementation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct QnnCpuOpPackage_Node_t {
    pub name: *const c_char,
    pub packageName: *const c_char,
    pub typeName: *const c_char,
    pub numOfParams: u32,
    pub params: *mut *mut QnnCpuOpPackage_Param_t,
    pub numOfInputs: u32,
    pub inputs: *mut *mut QnnCpuOpPackage_Tensor_t,
    pub numOfOutputs: u32,
    pub outputs: *mut *mut QnnCpuOpPackage_Tensor_t,
}

/// Runs an op once.
pub type QnnCpuOpPackage_OpImplFn_t = Option<unsafe extern "C" fn(userData: *mut c_void) -> Qnn_ErrorHandle_t>;

/// What `createOpImpl` points to.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct QnnCpuOpPackage_OpImpl_t {
    pub opImplFn: QnnCpuOpPackage_OpImplFn_t,
    pub userData: *mut c_void,
}

/// What a package is started with.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct QnnCpuOpPackage_GlobalInfrastructure_t {
    pub reportMessage: Option<unsafe extern "C" fn(level: u32, format: *const c_char, ...)>,
    pub profile: *mut c_void,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<QnnCpuOpPackage_Tensor_t>() == 80 && offset_of!(QnnCpuOpPackage_Tensor_t, maxDimensions) == 16);
    assert!(offset_of!(QnnCpuOpPackage_Tensor_t, currentDimensions) == 24);
    assert!(offset_of!(QnnCpuOpPackage_Tensor_t, data) == 32);
    assert!(offset_of!(QnnCpuOpPackage_Tensor_t, quantizeParams) == 40);
    assert!(size_of::<QnnCpuOpPackage_Param_t>() == 24 && offset_of!(QnnCpuOpPackage_Param_t, anon0) == 16);
    assert!(size_of::<QnnCpuOpPackage_Node_t>() == 72 && offset_of!(QnnCpuOpPackage_Node_t, params) == 32);
    assert!(offset_of!(QnnCpuOpPackage_Node_t, inputs) == 48 && offset_of!(QnnCpuOpPackage_Node_t, outputs) == 64);
    assert!(size_of::<QnnCpuOpPackage_OpImpl_t>() == 16 && size_of::<QnnCpuOpPackage_GlobalInfrastructure_t>() == 16);
};
