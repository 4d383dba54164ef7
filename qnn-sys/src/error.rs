//! From an error number to its name, the component that speaks, and what it usually means.
//!
//! Source: the error table of the ABI facts; meanings from users' threads (features, 1.11), in our words.

use crate::generated::errors::ERRORS;

/// The header's name of a number; the first one where several share it.
pub fn name(code: u64) -> &'static str {
    match ERRORS.binary_search_by_key(&code, |&(n, _)| n) {
        Ok(mut i) => {
            while i > 0 && ERRORS[i - 1].0 == code {
                i -= 1;
            }
            ERRORS[i].1
        }
        Err(_) => "unknown error",
    }
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
        10000..=10999 => "log",
        11000..=11999 => "profile",
        12000..=12999 => "performance infrastructure",
        14000..=14999 => "device",
        30000..=39999 => "system",
        _ => "unknown",
    }
}

/// What the number usually means for a user, where the name does not say it.
pub const fn meaning(code: u64) -> Option<&'static str> {
    Some(match code {
        1000 => "the library does not offer this call on this platform",
        1002 => "out of memory; on a device often out of mapping space: fewer or smaller binaries at once",
        1003 => "a system call failed; on a device usually the skel library was not found or may not be opened",
        1004 => "the library refused an argument",
        1006 => "this platform cannot do it",
        1007 => "no connection to the DSP",
        1008 => "binaries of different versions: backend, stub and skel must come from one SDK",
        1009 => "the binary was compiled for another SoC or architecture",
        1010 => "the connection to the DSP is gone: close everything and start again",
        1011 => "the connection to the DSP broke for good: restart the process",
        1100 => "the library gives no reason; its log may",
        3110 => "the op's config is refused by validation (the compiler may still take it)",
        5000 => "the context call was given an argument it does not take; often a version mismatch of SDK and binary",
        5001 => "an argument of the context call is missing",
        5002 => "not a context of this library",
        5003 => "the context is not finalised yet",
        5004 => "the binary was written by another version of the library",
        5005 => "the binary could not be loaded: other SoC, more VTCM than there is, or no memory to map it",
        5008 => "the binary was compiled for another configuration",
        5010 => "the context config is wrong",
        5012 => "aborted while loading",
        5013 => "loading took too long",
        6000 => "the graph call was given an argument it does not take",
        6001 => "not a graph of this library",
        6002 => "no graph of that name in the context",
        6003 => "the graph's name is missing or taken",
        6004 => "a tensor of the call does not fit the graph",
        6031 => "execution was aborted",
        6033 => "execution took too long",
        8003 => "the memory could not be mapped",
        14000 => "not a device of this library",
        14001 => "the device config is wrong, or an earlier process left the device in a bad state",
        14002 => "the hardware failed",
        14003 => "the device is in use",
        30000 => "not a system context of this library",
        30001 => "the system library refused an argument",
        30002 => "the system library could not do it; often a binary of another SoC or version",
        30010 => "not a context binary, or a damaged one",
        _ => return None,
    })
}
