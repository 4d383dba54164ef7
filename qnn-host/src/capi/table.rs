//! The two tables: our slots over the stub, which returns "not supported" in all others.

use qnn_sys::{QnnInterfaceTable, QnnSystemInterfaceTable, stub};

use super::{
    backend, context, context_binary, device, graph, guard, infrastructure, log, mem, profile, property, run, system,
    update,
};

/// The core interface.
pub(crate) const INTERFACE: QnnInterfaceTable = QnnInterfaceTable {
    propertyHasCapability: Some(property::has_capability),
    backendCreate: Some(backend::create),
    backendSetConfig: Some(backend::set_config),
    backendGetApiVersion: Some(backend::get_api_version),
    backendGetBuildId: Some(backend::get_build_id),
    backendGetSupportedOperations: Some(backend::get_supported_operations),
    backendRegisterOpPackage: Some(backend::register_op_package),
    backendValidateOpConfig: Some(backend::validate_op_config),
    backendGetProperty: Some(backend::get_property),
    backendFree: Some(backend::free),
    contextCreate: Some(context::create),
    contextSetConfig: Some(context::set_config),
    contextFinalize: Some(context::finalize),
    contextFree: Some(context::free),
    contextGetBinarySize: Some(context_binary::get_size),
    contextGetBinary: Some(context_binary::get),
    contextCreateFromBinary: Some(context_binary::create),
    contextCreateFromBinaryWithSignal: Some(context_binary::create_with_signal),
    contextCreateFromBinaryWithCallback: Some(context_binary::create_with_callback),
    contextCreateFromBinaryListAsync: Some(context_binary::create_list),
    contextValidateBinary: Some(context_binary::validate),
    graphCreate: Some(graph::create),
    graphSetConfig: Some(graph::set_config),
    graphAddNode: Some(graph::add_node),
    graphFinalize: Some(graph::finalize),
    graphRetrieve: Some(graph::retrieve),
    graphExecute: Some(run::execute),
    graphExecuteAsync: Some(run::execute_async),
    tensorCreateContextTensor: Some(graph::create_context_tensor),
    tensorCreateGraphTensor: Some(graph::create_tensor),
    tensorUpdateGraphTensors: Some(update::graph_tensors),
    tensorUpdateContextTensors: Some(update::context_tensors),
    logCreate: Some(log::create),
    logSetLogLevel: Some(log::set_level),
    logFree: Some(log::free),
    profileCreate: Some(profile::create),
    profileSetConfig: Some(profile::set_config),
    profileGetEvents: Some(profile::get_events),
    profileGetSubEvents: Some(profile::get_sub_events),
    profileGetEventData: Some(profile::get_event_data),
    profileGetExtendedEventData: Some(profile::get_extended_event_data),
    profileFree: Some(profile::free),
    memRegister: Some(mem::register),
    memDeRegister: Some(mem::deregister),
    deviceGetPlatformInfo: Some(device::get_platform_info),
    deviceFreePlatformInfo: Some(device::free_platform_info),
    deviceGetInfrastructure: Some(infrastructure::get),
    deviceCreate: Some(device::create),
    deviceSetConfig: Some(device::set_config),
    deviceGetInfo: Some(device::get_info),
    deviceFree: Some(device::free),
    errorGetMessage: Some(guard::get_message),
    errorGetVerboseMessage: Some(guard::get_verbose),
    errorFreeVerboseMessage: Some(guard::free_verbose),
    ..stub::interface()
};

/// The system interface.
pub(crate) const SYSTEM_INTERFACE: QnnSystemInterfaceTable = QnnSystemInterfaceTable {
    systemContextCreate: Some(system::create),
    systemContextGetBinaryInfo: Some(system::get_binary_info),
    systemContextGetMetaData: Some(system::get_meta_data),
    systemContextFree: Some(system::free),
    systemTensorGetMemoryFootprint: Some(system::tensor_footprint),
    systemLogCreate: Some(log::create),
    systemLogSetLogLevel: Some(log::set_level),
    systemLogFree: Some(log::free),
    ..stub::system_interface()
};
