//! The backend config of a bundle for a Hexagon chip: passed by Genie to the HTP extension library.
//!
//! *Units*: VTCM in MB, latency in microseconds. *Source*: the schema in `libQnnHtpNetRunExtensions.so` 2.51, tried with
//! libGenie on the emulator: it takes this document; a value of a wrong type is a warning, and the file is ignored.

use crate::HtpOptions;
use serde_json::{Value, json};

/// Requested wake-up latency of the link to the chip, as in the examples of the library.
const RPC_LATENCY_US: u32 = 100;

/// The whole document, for these graphs.
pub(crate) fn htp_config(htp: &HtpOptions, graphs: &[String]) -> Value {
    json!({
        "devices": [{
            "soc_model": htp.soc.id,
            "dsp_arch": format!("v{}", htp.soc.dsp_arch),
            "cores": [{
                "core_id": 0,
                "perf_profile": htp.performance.name(),
                "rpc_control_latency": RPC_LATENCY_US,
            }],
        }],
        "graphs": [{
            "graph_names": graphs,
            "vtcm_mb": htp.soc.vtcm_mb,
            "fp16_relaxed_precision": 1,
        }],
        "context": { "weight_sharing_enabled": htp.share_weights },
        "memory": { "mem_type": "shared_buffer" },
    })
}
