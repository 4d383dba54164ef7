//! The backend config of a bundle for a Hexagon chip: what Genie hands to the HTP's extension library.
//!
//! *Units*: VTCM in MB, latency in microseconds. *Source*: the schema in `libQnnHtpNetRunExtensions.so` 2.51, tried with the
//! real Genie on the emulator: it takes this document, warns about values of another type and goes on without it.

use crate::HtpOptions;
use serde_json::{Value, json};

/// Wake-up latency that is asked of the link to the chip, as the library's own examples do.
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
