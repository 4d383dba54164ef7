//! The core interface's slots that this crate calls.
//!
//! *Trap*: `backendValidateOpConfig` is left out on purpose: version 2.51 crashes in it on some nodes and refuses others
//! that then run. `graphAddNode` and `graphFinalize` check nodes instead.

use core::ffi::{c_char, c_void};

use qnn_sys::*;

use super::slots;

/// The core table of one library.
pub(crate) struct Table {
    pub(super) raw: QnnInterfaceTable,
}

impl Table {
    /// Over a copy that was cut to the provider's version.
    pub(crate) fn new(raw: QnnInterfaceTable) -> Self {
        Self { raw }
    }

    /// True when the library reports the capability; false also when it has no such slot.
    pub(crate) fn has_capability(&self, key: u32) -> bool {
        // SAFETY: takes a number and returns a number.
        self.raw.propertyHasCapability.is_some_and(|ask| unsafe { ask(key) } == u64::from(QNN_PROPERTY_SUPPORTED))
    }

    /// The library's message for an error number on this thread.
    pub(crate) fn message(&self, code: u64) -> Option<String> {
        let ask = self.raw.errorGetMessage?;
        let mut text = core::ptr::null();
        // SAFETY: takes a number and an out pointer; the text stays the library's and is copied at once.
        (unsafe { ask(code, &raw mut text) } == QNN_SUCCESS).then(|| unsafe { crate::convert::text(text) })
    }

    slots! {
        /// Makes a backend.
        backend_create = backendCreate(log: Qnn_LogHandle_t, config: *mut *const QnnBackend_Config_t, out: *mut Qnn_BackendHandle_t);
        /// Frees a backend.
        backend_free = backendFree(backend: Qnn_BackendHandle_t);
        /// Loads an op package.
        backend_register_op_package = backendRegisterOpPackage(
            backend: Qnn_BackendHandle_t, path: *const c_char, provider: *const c_char, target: *const c_char);
        /// The library's build.
        backend_get_build_id = backendGetBuildId(out: *mut *const c_char);
        /// The ops that the backend knows.
        backend_get_supported_operations = backendGetSupportedOperations(
            backend: Qnn_BackendHandle_t, n: *mut u32, out: *mut *const QnnBackend_OperationName_t);
        /// Makes an empty context.
        context_create = contextCreate(
            backend: Qnn_BackendHandle_t, device: Qnn_DeviceHandle_t, config: *mut *const QnnContext_Config_t,
            out: *mut Qnn_ContextHandle_t);
        /// Makes a context from a binary.
        context_create_from_binary = contextCreateFromBinary(
            backend: Qnn_BackendHandle_t, device: Qnn_DeviceHandle_t, config: *mut *const QnnContext_Config_t,
            bytes: *const c_void, n_bytes: u64, out: *mut Qnn_ContextHandle_t, profile: Qnn_ProfileHandle_t);
        /// Frees a context.
        context_free = contextFree(context: Qnn_ContextHandle_t, profile: Qnn_ProfileHandle_t);
        /// Changes a context's options.
        context_set_config = contextSetConfig(context: Qnn_ContextHandle_t, config: *mut *const QnnContext_Config_t);
        /// Upper bound of the serialised size.
        context_get_binary_size = contextGetBinarySize(context: Qnn_ContextHandle_t, out: *mut u64);
        /// Serialises a context.
        context_get_binary = contextGetBinary(context: Qnn_ContextHandle_t, bytes: *mut c_void, n_bytes: u64, written: *mut u64);
        /// Replaces parts of a graph of a loaded binary.
        context_apply_binary_section = contextApplyBinarySection(
            context: Qnn_ContextHandle_t, graph: Qnn_GraphHandle_t, section: QnnContext_SectionType_t,
            buffer: *const QnnContext_Buffer_t, profile: Qnn_ProfileHandle_t, signal: Qnn_SignalHandle_t);
        /// Makes an empty graph.
        graph_create = graphCreate(
            context: Qnn_ContextHandle_t, name: *const c_char, config: *mut *const QnnGraph_Config_t, out: *mut Qnn_GraphHandle_t);
        /// Declares a tensor; the library fills in its id.
        tensor_create_graph_tensor = tensorCreateGraphTensor(graph: Qnn_GraphHandle_t, tensor: *mut Qnn_Tensor_t);
        /// Adds a node.
        graph_add_node = graphAddNode(graph: Qnn_GraphHandle_t, config: Qnn_OpConfig_t);
        /// Checks and prepares a graph.
        graph_finalize = graphFinalize(graph: Qnn_GraphHandle_t, profile: Qnn_ProfileHandle_t, signal: Qnn_SignalHandle_t);
        /// Finds a graph by name.
        graph_retrieve = graphRetrieve(context: Qnn_ContextHandle_t, name: *const c_char, out: *mut Qnn_GraphHandle_t);
        /// Runs a graph.
        graph_execute = graphExecute(
            graph: Qnn_GraphHandle_t, inputs: *const Qnn_Tensor_t, n_inputs: u32, outputs: *mut Qnn_Tensor_t, n_outputs: u32,
            profile: Qnn_ProfileHandle_t, signal: Qnn_SignalHandle_t);
        /// Opens a log.
        log_create = logCreate(callback: QnnLog_Callback_t, level: QnnLog_Level_t, out: *mut Qnn_LogHandle_t);
        /// Closes a log.
        log_free = logFree(log: Qnn_LogHandle_t);
        /// Starts collecting events.
        profile_create = profileCreate(backend: Qnn_BackendHandle_t, level: QnnProfile_Level_t, out: *mut Qnn_ProfileHandle_t);
        /// The top events.
        profile_get_events = profileGetEvents(profile: Qnn_ProfileHandle_t, out: *mut *const QnnProfile_EventId_t, n: *mut u32);
        /// The events below one.
        profile_get_sub_events = profileGetSubEvents(event: QnnProfile_EventId_t, out: *mut *const QnnProfile_EventId_t, n: *mut u32);
        /// One event.
        profile_get_event_data = profileGetEventData(event: QnnProfile_EventId_t, out: *mut QnnProfile_EventData_t);
        /// Frees a profile.
        profile_free = profileFree(profile: Qnn_ProfileHandle_t);
        /// Registers memory with a context.
        mem_register = memRegister(
            context: Qnn_ContextHandle_t, descriptors: *const Qnn_MemDescriptor_t, n: u32, out: *mut Qnn_MemHandle_t);
        /// Revokes a registration.
        mem_de_register = memDeRegister(handles: *const Qnn_MemHandle_t, n: u32);
        /// Opens a device.
        device_create = deviceCreate(log: Qnn_LogHandle_t, config: *mut *const QnnDevice_Config_t, out: *mut Qnn_DeviceHandle_t);
        /// Closes a device.
        device_free = deviceFree(device: Qnn_DeviceHandle_t);
        /// The device's own functions (performance votes).
        device_get_infrastructure = deviceGetInfrastructure(out: *const QnnDevice_Infrastructure_t);
    }
}
