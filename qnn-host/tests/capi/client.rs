//! A small client of the table: owned tensors, calls by slot, and the graphs that the tests share.

use std::ffi::{CStr, CString, c_char, c_void};
use std::marker::PhantomData;
use std::ptr::{null, null_mut};

use qnn_sys::*;

/// Calls a slot.
macro_rules! call {
    ($table:expr, $slot:ident($($arg:expr),* $(,)?)) => {{
        let function = $table.$slot.expect("the slot is filled, by the stub at least");
        // SAFETY: the arguments are what the slot's contract asks for, or wrong in a way that a backend must survive:
        // null, a number that is no handle, a struct with odd values.
        unsafe { function($($arg),*) }
    }};
}
pub(crate) use call;

/// The core table, as a client gets it.
pub(crate) fn interface() -> QnnInterface_t {
    let (mut list, mut n) = (null_mut(), 0);
    // SAFETY: both pointers are valid for writing.
    let code = unsafe { qnn_host::QnnInterface_getProviders(&raw mut list, &raw mut n) };
    assert_eq!((code, n), (QNN_SUCCESS, 1));
    // SAFETY: the list has one entry that lives as long as the library.
    unsafe { **list }
}

/// The system table.
pub(crate) fn system() -> QnnSystemInterfaceTable {
    let (mut list, mut n) = (null_mut(), 0);
    // SAFETY: both pointers are valid for writing.
    let code = unsafe { qnn_host::QnnSystemInterface_getProviders(&raw mut list, &raw mut n) };
    assert_eq!((code, n), (QNN_SUCCESS, 1));
    // SAFETY: the list has one entry that lives as long as the library.
    unsafe { (**list).table }
}

/// A tensor with the memory its struct points at.
pub(crate) struct Tensor {
    pub(crate) raw: Qnn_Tensor_t,
    _name: CString,
    _dims: Vec<u32>,
    _data: Vec<u8>,
}

pub(crate) fn no_quant() -> Qnn_QuantizeParams_t {
    Qnn_QuantizeParams_t {
        encodingDefinition: QNN_DEFINITION_UNDEFINED,
        quantizationEncoding: QNN_QUANTIZATION_ENCODING_UNDEFINED,
        anon0: Qnn_QuantizeParams_t_anon0 { scaleOffsetEncoding: Qnn_ScaleOffset_t { scale: 0.0, offset: 0 } },
    }
}

impl Tensor {
    pub(crate) fn new(name: &str, kind: u32, dtype: u32, dims: &[u32], data: Vec<u8>) -> Self {
        let (name, mut dims, mut data) = (CString::new(name).unwrap(), dims.to_vec(), data);
        let v1 = Qnn_TensorV1_t {
            id: 0,
            name: name.as_ptr(),
            r#type: kind,
            dataFormat: 0,
            dataType: dtype,
            quantizeParams: no_quant(),
            rank: dims.len() as u32,
            dimensions: dims.as_mut_ptr(),
            memType: QNN_TENSORMEMTYPE_RAW,
            anon0: Qnn_TensorV1_t_anon0 {
                clientBuf: Qnn_ClientBuffer_t {
                    data: if data.is_empty() { null_mut() } else { data.as_mut_ptr().cast() },
                    dataSize: data.len() as u32,
                },
            },
        };
        let raw = Qnn_Tensor_t { version: QNN_TENSOR_VERSION_1, anon0: Qnn_Tensor_t_anon0 { v1 } };
        Self { raw, _name: name, _dims: dims, _data: data }
    }

    pub(crate) fn input(name: &str, dims: &[u32]) -> Self {
        Self::new(name, QNN_TENSOR_TYPE_APP_WRITE, QNN_DATATYPE_FLOAT_32, dims, Vec::new())
    }

    pub(crate) fn output(name: &str, dims: &[u32]) -> Self {
        Self::new(name, QNN_TENSOR_TYPE_APP_READ, QNN_DATATYPE_FLOAT_32, dims, Vec::new())
    }

    pub(crate) fn native(name: &str, dims: &[u32]) -> Self {
        Self::new(name, QNN_TENSOR_TYPE_NATIVE, QNN_DATATYPE_FLOAT_32, dims, Vec::new())
    }

    pub(crate) fn weights(name: &str, dims: &[u32], values: &[f32]) -> Self {
        Self::new(name, QNN_TENSOR_TYPE_STATIC, QNN_DATATYPE_FLOAT_32, dims, floats(values))
    }

    pub(crate) fn v1(&mut self) -> &mut Qnn_TensorV1_t {
        // SAFETY: made as version 1.
        unsafe { &mut self.raw.anon0.v1 }
    }

    pub(crate) fn id(&self) -> u32 {
        // SAFETY: made as version 1.
        unsafe { self.raw.anon0.v1.id }
    }

    /// The same tensor for an execution, with a buffer.
    pub(crate) fn with(&self, data: *mut u8, len: usize) -> Qnn_Tensor_t {
        let mut raw = self.raw;
        raw.anon0.v1.anon0.clientBuf = Qnn_ClientBuffer_t { data: data.cast(), dataSize: len as u32 };
        raw
    }

    pub(crate) fn reading(&self, values: &[u8]) -> Qnn_Tensor_t {
        self.with(values.as_ptr().cast_mut(), values.len())
    }

    pub(crate) fn writing(&self, values: &mut [u8]) -> Qnn_Tensor_t {
        self.with(values.as_mut_ptr(), values.len())
    }
}

pub(crate) fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}

pub(crate) fn as_floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|c| f32::from_ne_bytes(*c)).collect()
}

/// A parameter with the memory it points at.
pub(crate) struct Param {
    name: CString,
    value: Value,
}

enum Value {
    Scalar(Qnn_Scalar_t),
    Text(CString),
    Tensor(Box<Tensor>),
}

impl Param {
    fn scalar(name: &str, dtype: u32, anon0: Qnn_Scalar_t_anon0) -> Self {
        Self { name: CString::new(name).unwrap(), value: Value::Scalar(Qnn_Scalar_t { dataType: dtype, anon0 }) }
    }

    pub(crate) fn u32(name: &str, v: u32) -> Self {
        Self::scalar(name, QNN_DATATYPE_UINT_32, Qnn_Scalar_t_anon0 { uint64Value: v.into() })
    }

    pub(crate) fn f32(name: &str, v: f32) -> Self {
        Self::scalar(name, QNN_DATATYPE_FLOAT_32, Qnn_Scalar_t_anon0 { uint64Value: v.to_bits().into() })
    }

    pub(crate) fn f64(name: &str, v: f64) -> Self {
        Self::scalar(name, QNN_DATATYPE_FLOAT_64, Qnn_Scalar_t_anon0 { doubleValue: v })
    }

    pub(crate) fn i64(name: &str, v: i64) -> Self {
        Self::scalar(name, QNN_DATATYPE_INT_64, Qnn_Scalar_t_anon0 { int64Value: v })
    }

    pub(crate) fn text(name: &str, v: &str) -> Self {
        Self { name: CString::new(name).unwrap(), value: Value::Text(CString::new(v).unwrap()) }
    }

    /// A text whose pointer is null.
    pub(crate) fn no_text(name: &str) -> Self {
        Self::scalar(name, QNN_DATATYPE_STRING, Qnn_Scalar_t_anon0 { stringValue: null() })
    }

    /// A text that is not UTF-8.
    pub(crate) fn bad_text(name: &str) -> Self {
        Self::scalar(name, QNN_DATATYPE_STRING, Qnn_Scalar_t_anon0 { stringValue: c"\xff".as_ptr() })
    }

    pub(crate) fn u32s(name: &str, values: &[u32]) -> Self {
        let data = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        Self::tensor(Tensor::new(name, QNN_TENSOR_TYPE_STATIC, QNN_DATATYPE_UINT_32, &[values.len() as u32], data))
    }

    /// A tensor, by the tensor's name.
    pub(crate) fn tensor(tensor: Tensor) -> Self {
        Self { name: tensor._name.clone(), value: Value::Tensor(Box::new(tensor)) }
    }

    fn raw(&self) -> Qnn_Param_t {
        let (kind, anon0) = match &self.value {
            Value::Scalar(s) => (QNN_PARAMTYPE_SCALAR, Qnn_Param_t_anon0 { scalarParam: *s }),
            Value::Text(text) => {
                let anon0 = Qnn_Scalar_t_anon0 { stringValue: text.as_ptr() };
                let scalar = Qnn_Scalar_t { dataType: QNN_DATATYPE_STRING, anon0 };
                (QNN_PARAMTYPE_SCALAR, Qnn_Param_t_anon0 { scalarParam: scalar })
            }
            Value::Tensor(t) => (QNN_PARAMTYPE_TENSOR, Qnn_Param_t_anon0 { tensorParam: t.raw }),
        };
        Qnn_Param_t { paramType: kind, name: self.name.as_ptr(), anon0 }
    }
}

/// An op config with the lists it points at; names, dims and data stay with what it was made of.
pub(crate) struct Op<'a> {
    _of: PhantomData<(&'a Param, &'a Tensor)>,
    pub(crate) raw: Qnn_OpConfig_t,
    _names: [CString; 3],
    _params: Vec<Qnn_Param_t>,
    _operands: [Vec<Qnn_Tensor_t>; 2],
}

impl<'a> Op<'a> {
    /// `op` is a type of QNN's own, or `package::type`.
    pub(crate) fn new(
        name: &str,
        op: &str,
        params: &'a [Param],
        inputs: &[&'a Tensor],
        outputs: &[&'a Tensor],
    ) -> Self {
        let (package, op) = op.split_once("::").unwrap_or(("qti.aisw", op));
        let names = [name, op, package].map(|s| CString::new(s).unwrap());
        let mut params: Vec<_> = params.iter().map(Param::raw).collect();
        let mut operands = [inputs, outputs].map(|list| list.iter().map(|t| t.raw).collect::<Vec<_>>());
        let v1 = Qnn_OpConfigV1_t {
            name: names[0].as_ptr(),
            packageName: names[2].as_ptr(),
            typeName: names[1].as_ptr(),
            numOfParams: params.len() as u32,
            params: params.as_mut_ptr(),
            numOfInputs: operands[0].len() as u32,
            inputTensors: operands[0].as_mut_ptr(),
            numOfOutputs: operands[1].len() as u32,
            outputTensors: operands[1].as_mut_ptr(),
        };
        let raw = Qnn_OpConfig_t { version: QNN_OPCONFIG_VERSION_1, anon0: Qnn_OpConfig_t_anon0 { v1 } };
        Self { _of: PhantomData, raw, _names: names, _params: params, _operands: operands }
    }
}

/// A backend, freed at the end.
pub(crate) struct Client {
    pub(crate) table: QnnInterfaceTable,
    pub(crate) backend: Qnn_BackendHandle_t,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self::with(c"host_threads:2").expect("a backend of two threads")
    }

    /// A backend with platform options, or the number that refuses them.
    pub(crate) fn with(platform: &CStr) -> Result<Self, u64> {
        let table = interface().table;
        let mut option = QnnBackend_Config_t {
            option: QNN_BACKEND_CONFIG_OPTION_PLATFORM,
            anon0: QnnBackend_Config_t_anon0 { platformOption: platform.as_ptr() },
        };
        let mut list = [&raw mut option as *const _, null()];
        let mut backend = null_mut();
        match call!(table, backendCreate(null_mut(), list.as_mut_ptr(), &raw mut backend)) {
            0 => Ok(Self { table, backend }),
            code => Err(code),
        }
    }

    pub(crate) fn context(&self) -> Qnn_ContextHandle_t {
        let mut context = null_mut();
        assert_eq!(call!(self.table, contextCreate(self.backend, null_mut(), null_mut(), &raw mut context)), 0);
        context
    }

    pub(crate) fn free(&self, context: Qnn_ContextHandle_t) {
        assert_eq!(call!(self.table, contextFree(context, null_mut())), 0);
    }

    pub(crate) fn graph(&self, context: Qnn_ContextHandle_t, name: &CStr) -> Qnn_GraphHandle_t {
        let mut graph = null_mut();
        let code = call!(self.table, graphCreate(context, name.as_ptr(), null_mut(), &raw mut graph));
        assert_eq!(code, 0, "{}", self.message(code));
        graph
    }

    pub(crate) fn make(&self, graph: Qnn_GraphHandle_t, mut tensor: Tensor) -> Tensor {
        let code = call!(self.table, tensorCreateGraphTensor(graph, &raw mut tensor.raw));
        assert_eq!(code, 0, "{}", self.message(code));
        assert_ne!(tensor.id(), 0);
        tensor
    }

    pub(crate) fn add(
        &self,
        graph: Qnn_GraphHandle_t,
        name: &str,
        op: &str,
        params: &[Param],
        inputs: &[&Tensor],
        outputs: &[&Tensor],
    ) -> u64 {
        call!(self.table, graphAddNode(graph, Op::new(name, op, params, inputs, outputs).raw))
    }

    pub(crate) fn run(&self, graph: Qnn_GraphHandle_t, inputs: &[Qnn_Tensor_t], outputs: &mut [Qnn_Tensor_t]) -> u64 {
        call!(
            self.table,
            graphExecute(
                graph,
                inputs.as_ptr(),
                inputs.len() as u32,
                outputs.as_mut_ptr(),
                outputs.len() as u32,
                null_mut(),
                null_mut(),
            )
        )
    }

    pub(crate) fn message(&self, code: u64) -> String {
        let mut words: *const c_char = null();
        assert_eq!(call!(self.table, errorGetMessage(code, &raw mut words)), 0, "no message for {code}");
        // SAFETY: the backend returned a string that lives until the next failure of this thread.
        unsafe { CStr::from_ptr(words) }.to_str().unwrap().to_owned()
    }

    pub(crate) fn binary(&self, context: Qnn_ContextHandle_t) -> Vec<u8> {
        let mut size = 0;
        assert_eq!(call!(self.table, contextGetBinarySize(context, &raw mut size)), 0);
        let mut bytes = vec![0xa5u8; size as usize];
        let mut written = 0;
        let to = bytes.as_mut_ptr().cast::<c_void>();
        assert_eq!(call!(self.table, contextGetBinary(context, to, size, &raw mut written)), 0);
        assert_eq!(written, size);
        bytes
    }

    /// Loads a binary; with `persistent` it must outlive the context.
    pub(crate) fn load(&self, bytes: &[u8], persistent: bool) -> Result<Qnn_ContextHandle_t, (u64, String)> {
        let option = QnnContext_Config_t {
            option: QNN_CONTEXT_CONFIG_PERSISTENT_BINARY,
            anon0: QnnContext_Config_t_anon0 { memoryLimitHint: u64::from(persistent) },
        };
        let mut list = [&raw const option, null()];
        let mut context = null_mut();
        let (from, n) = (bytes.as_ptr().cast::<c_void>(), bytes.len() as u64);
        let code = call!(
            self.table,
            contextCreateFromBinary(self.backend, null_mut(), list.as_mut_ptr(), from, n, &raw mut context, null_mut())
        );
        if code == 0 { Ok(context) } else { Err((code, self.message(code))) }
    }

    pub(crate) fn retrieve(&self, context: Qnn_ContextHandle_t, name: &CStr) -> Qnn_GraphHandle_t {
        let mut graph = null_mut();
        let code = call!(self.table, graphRetrieve(context, name.as_ptr(), &raw mut graph));
        assert_eq!(code, 0, "{}", self.message(code));
        graph
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        assert_eq!(call!(self.table, backendFree(self.backend)), 0);
    }
}

pub(crate) const GAMMA: [f32; 4] = [1.0, 0.5, 2.0, -1.0];
pub(crate) const WEIGHTS: [f32; 12] = [0.1, 0.2, 0.3, 0.4, -0.5, 0.6, -0.7, 0.8, 1.0, 0.0, -1.0, 0.5];

/// y = FullyConnected(RmsNorm(x)), x [rows, 4], y [rows, 3].
pub(crate) struct Small {
    pub(crate) graph: Qnn_GraphHandle_t,
    pub(crate) x: Tensor,
    pub(crate) y: Tensor,
    pub(crate) rows: usize,
}

impl Small {
    pub(crate) fn compose(client: &Client, context: Qnn_ContextHandle_t, name: &CStr, rows: u32) -> Self {
        let graph = client.graph(context, name);
        let x = client.make(graph, Tensor::input("x", &[rows, 4]));
        let gamma = client.make(graph, Tensor::weights("gamma", &[4], &GAMMA));
        let h = client.make(graph, Tensor::native("h", &[rows, 4]));
        let w = client.make(graph, Tensor::weights("w", &[3, 4], &WEIGHTS));
        let y = client.make(graph, Tensor::output("y", &[rows, 3]));
        let params = [Param::f32("epsilon", 1e-5), Param::u32s("axes", &[1])];
        let code = client.add(graph, "norm", "RmsNorm", &params, &[&x, &gamma], &[&h]);
        assert_eq!(code, 0, "{}", client.message(code));
        let code = client.add(graph, "fc", "FullyConnected", &[], &[&h, &w], &[&y]);
        assert_eq!(code, 0, "{}", client.message(code));
        Self { graph, x, y, rows: rows as usize }
    }

    pub(crate) fn ready(client: &Client, context: Qnn_ContextHandle_t, name: &CStr, rows: u32) -> Self {
        let small = Self::compose(client, context, name, rows);
        let code = call!(client.table, graphFinalize(small.graph, null_mut(), null_mut()));
        assert_eq!(code, 0, "{}", client.message(code));
        small
    }

    pub(crate) fn sample(&self) -> Vec<f32> {
        (0..self.rows * 4).map(|i| (i as f32 * 0.7).sin() * 3.0).collect()
    }

    /// Runs on the sample and compares with plain arithmetic.
    pub(crate) fn check(&self, client: &Client, graph: Qnn_GraphHandle_t) {
        let x = self.sample();
        let (bytes, mut out) = (floats(&x), vec![0u8; self.rows * 12]);
        let code = client.run(graph, &[self.x.reading(&bytes)], &mut [self.y.writing(&mut out)]);
        assert_eq!(code, 0, "{}", client.message(code));
        expect(&as_floats(&out), &reference(&x));
    }
}

pub(crate) fn reference(x: &[f32]) -> Vec<f32> {
    let mut y = Vec::new();
    for row in x.chunks(4) {
        let mean = row.iter().map(|v| v * v).sum::<f32>() / 4.0;
        let h: Vec<f32> = row.iter().zip(GAMMA).map(|(v, g)| v / (mean + 1e-5).sqrt() * g).collect();
        y.extend(WEIGHTS.chunks(4).map(|w| w.iter().zip(&h).map(|(a, b)| a * b).sum::<f32>()));
    }
    y
}

pub(crate) fn expect(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "at {i}: expected {b}, found {a}");
    }
}
