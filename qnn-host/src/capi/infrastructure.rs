//! Votes for clocks and power, for clients of the HTP: taken, checked, and without effect.
//!
//! The struct behind `deviceGetInfrastructure` is of the backend's own making, so it is there only where this library
//! stands for the HTP's ([`crate::htp_alias`]).

use std::collections::BTreeSet;
use std::sync::LazyLock;

use parking_lot::Mutex;
use qnn_sys as q;
use qnn_sys::{
    Qnn_ErrorHandle_t, QnnDevice_Infrastructure_t, QnnHtpDevice_Infrastructure_t,
    QnnHtpPerfInfrastructure_MemoryConfig_t, QnnHtpPerfInfrastructure_PowerConfig_t,
};

use crate::error::{Component, Error};
use crate::htp_alias;

use super::guard::guard;
use super::{raw, trace};

const POWER: Component = Component::Power;

struct Table(QnnHtpDevice_Infrastructure_t);

// SAFETY: function addresses, made once.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let perf = q::QnnHtpDevice_PerfInfrastructure_t {
        createPowerConfigId: Some(create),
        destroyPowerConfigId: Some(destroy),
        setPowerConfig: Some(set_power),
        setMemoryConfig: Some(set_memory),
    };
    Table(QnnHtpDevice_Infrastructure_t {
        infraType: q::QNN_HTP_DEVICE_INFRASTRUCTURE_TYPE_PERF,
        anon0: q::QnnHtpDevice_Infrastructure_t_anon0 { perfInfra: perf },
    })
});

/// Votes that are held, by number; the last one given out.
static VOTES: Mutex<(BTreeSet<u32>, u32)> = Mutex::new((BTreeSet::new(), 0));

/// `deviceGetInfrastructure`: the client's pointer to const is an out pointer all the same.
pub(super) unsafe extern "C" fn get(out: *const QnnDevice_Infrastructure_t) -> Qnn_ErrorHandle_t {
    guard("QnnDevice_getInfrastructure", || {
        if !htp_alias::as_htp() {
            return Err(Error::Unsupported { component: Component::Device, what: "device infrastructure".to_owned() });
        }
        let table = (&raw const TABLE.0).cast_mut().cast();
        // SAFETY: QNN's contract: `out` is null or valid for writing.
        unsafe { raw::write(out.cast_mut(), table, Component::Device, "deviceInfra") }
    })
}

/// There is one device with one core.
fn check_core(device: u32, core: u32) -> Result<(), Error> {
    if (device, core) == (0, 0) {
        return Ok(());
    }
    Err(Error::Argument { component: POWER, what: format!("expected device 0 and core 0, found {device} and {core}") })
}

fn check_vote(vote: u32) -> Result<(), Error> {
    if VOTES.lock().0.contains(&vote) {
        return Ok(());
    }
    Err(Error::InvalidHandle { component: POWER, found: vote as usize })
}

unsafe extern "C" fn create(device: u32, core: u32, out: *mut u32) -> Qnn_ErrorHandle_t {
    guard("createPowerConfigId", || {
        check_core(device, core)?;
        let vote = {
            let mut votes = VOTES.lock();
            votes.1 = votes.1.wrapping_add(1).max(1);
            votes.1
        };
        // SAFETY: the contract of the HTP's infrastructure: `out` is null or valid for writing.
        unsafe { raw::write(out, vote, POWER, "powerConfigId") }?;
        VOTES.lock().0.insert(vote);
        Ok(())
    })
}

unsafe extern "C" fn destroy(vote: u32) -> Qnn_ErrorHandle_t {
    guard("destroyPowerConfigId", || {
        check_vote(vote)?;
        VOTES.lock().0.remove(&vote);
        Ok(())
    })
}

unsafe extern "C" fn set_power(
    vote: u32,
    config: *mut *const QnnHtpPerfInfrastructure_PowerConfig_t,
) -> Qnn_ErrorHandle_t {
    guard("setPowerConfig", || {
        check_vote(vote)?;
        // SAFETY: the infrastructure's contract: a null-terminated list.
        for entry in unsafe { raw::list(config.cast_const(), POWER, "config") }? {
            trace::note(|| format!("[power option {}]", entry.option));
        }
        Ok(())
    })
}

unsafe extern "C" fn set_memory(
    device: u32,
    core: u32,
    config: *mut *const QnnHtpPerfInfrastructure_MemoryConfig_t,
) -> Qnn_ErrorHandle_t {
    guard("setMemoryConfig", || {
        check_core(device, core)?;
        // SAFETY: the infrastructure's contract: a null-terminated list.
        for entry in unsafe { raw::list(config.cast_const(), POWER, "config") }? {
            trace::note(|| format!("[memory option {}]", entry.option));
        }
        Ok(())
    })
}
