//! From an error number to its name, the component that speaks, and what it usually means.
//!
//! *Source*: numbers from `abi/qnn-abi.json`; meanings collected from public reports of QNN users, in own words.

use crate::generated::errors::ERRORS;

/// What a number is called that no header names.
pub const UNKNOWN: &str = "unknown error";

/// The header's name of a number. Several components share numbers; the most telling name is taken: an error rather
/// than the bound of a range, the common one below 2000, the system context's above 30000.
pub fn name(code: u64) -> &'static str {
    if code == crate::QNN_SUCCESS {
        return "QNN_SUCCESS";
    }
    let first = ERRORS.partition_point(|&(number, _)| number < code);
    let names = ERRORS[first..].iter().take_while(|&&(number, _)| number == code).map(|&(_, name)| name);
    names.min_by_key(|name| rank(name)).unwrap_or(UNKNOWN)
}

/// Lower is more telling.
fn rank(name: &str) -> u32 {
    let bound = ["MIN_ERROR", "MAX_ERROR", "MINERROR", "MAXERROR"].iter().any(|bound| name.contains(bound));
    let common = name.starts_with("QNN_COMMON_") || name.starts_with("QNN_SYSTEM_CONTEXT_");
    u32::from(bound) * 2 + u32::from(!common)
}

/// Which part of QNN an error number belongs to; the ranges are the headers'.
pub const fn component(code: u64) -> &'static str {
    match code {
        0 => "success",
        1000..=1999 => "common",
        2000..=2999 => "property",
        3000..=3999 => "op package",
        4000..=4999 => "backend",
        5000..=5999 => "context",
        6000..=6999 => "graph",
        7000..=7999 => "tensor",
        8000..=8999 => "memory",
        9000..=9999 => "signal",
        10000..=10999 => "error",
        11000..=11999 => "log",
        12000..=12999 => "profile",
        13000..=13999 => "performance infrastructure",
        14000..=14999 => "device",
        15000..=15999 => "global config",
        30000..=49999 => "system",
        60000..=60999 => "interface",
        _ => "unknown",
    }
}

/// What the number usually means for a user, where the name does not.
pub const fn meaning(code: u64) -> Option<&'static str> {
    Some(match code {
        1000 => "the library does not offer this on this platform",
        1002 => "out of memory; on a device often out of mapping space: fewer or smaller binaries at once",
        1003 => "a system call failed; on a device usually the skel library was not found or may not be opened",
        1004 => "the library refused an argument",
        1005 => "not allowed in this state or order",
        1006 => "the library does not work on this platform",
        1007 => "no connection to the DSP",
        1008 => "libraries of different versions: backend, stub and skel must come from one SDK",
        1009 => "libraries or binary could not be loaded: often made for another SoC or architecture",
        1010 => "a resource is gone; on a device, often the DSP's session: close everything and start again",
        1011 => "the connection to the DSP broke for good: restart the process",
        1100 => "the library gives no reason; its log may",
        3110 => "validation refuses the op's config (the compiler may still take it)",
        4000 => "the backend could not start: no such hardware, or it is not reachable",
        5000 => "the context call was given an argument it does not take; often SDK and binary do not match",
        5001 => "there is no such context",
        5002 => "not a context of this library",
        5003 => "the context's graphs are not finalised",
        5004 => "the binary was written by another version of the library",
        5005 => "the binary could not be loaded: other SoC, more VTCM than there is, or no memory to map it",
        5008 => "the binary was compiled for another configuration",
        5010 => "the context config is wrong",
        5011 => "the binary was compiled for other hardware and would run badly",
        5012 => "aborted while loading",
        5013 => "loading took too long",
        6000 => "the graph call was given an argument it does not take",
        6001 => "not a graph of this library",
        6002 => "no graph of that name in the context",
        6003 => "the graph's name is missing or taken",
        6004 => "a tensor of the call does not fit the graph",
        6005 => "the node's op, parameters or tensors are not what the op takes",
        6007 => "no node and no client writes a node's input",
        6022 => {
            "the graph could not be prepared: an op that the hardware cannot do, or not with these types and shapes"
        }
        6023 => "the graph is not finalised",
        6024 => "the graph is finalised already",
        6025 => "too many executions are queued",
        6031 => "execution was aborted",
        6033 => "execution took too long",
        6035 => "the graph was left out when the context was loaded",
        7003 => "the name is taken",
        7004 | 7005 => "the tensor's type, shape, encoding or data is not what the library takes",
        8002 => "the memory is registered already",
        8003 => "the memory could not be mapped",
        14000 => "not a device of this library",
        14001 => "the device config is wrong, or an earlier process left the device in a bad state",
        14002 => "the hardware is not there",
        14003 => "the device still has contexts",
        30000 => "not a system context of this library",
        30001 => "the system library refused an argument",
        30002 => "the system library could not do it; often a binary of another SoC or version",
        30010 => "not a context binary, or a damaged one",
        _ => return None,
    })
}
