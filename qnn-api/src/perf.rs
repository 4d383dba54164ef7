//! Votes for the chip's clocks: speed against power while a vote is held.
//!
//! *Source*: the power structs of the HTP performance infrastructure. Corners and latencies below are our own choice
//! per policy, in the order that the policies' names promise.

use std::sync::Arc;

use qnn_sys::*;

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::table::{CallContext, check};

/// How fast to run, fastest first. The names are Genie's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PerfPolicy {
    /// Highest clocks, for a short time.
    #[default]
    Burst,
    /// High clocks that can be sustained.
    SustainedHighPerformance,
    /// Fast.
    HighPerformance,
    /// In between.
    Balanced,
    /// In between, saving power.
    LowBalanced,
    /// Saves power at moderate speed.
    HighPowerSaver,
    /// Saves power.
    PowerSaver,
    /// Saves more power.
    LowPowerSaver,
    /// Lowest power.
    ExtremePowerSaver,
}

/// What a policy asks of the clocks.
struct DcvsRequest {
    corner: QnnHtpPerfInfrastructure_VoltageCorner_t,
    /// Longest time to wake up, in microseconds.
    wake_us: u32,
    /// May the chip lower its clocks by itself?
    scaling: bool,
    /// How long the host polls for completion instead of sleeping, in microseconds; 0 for not at all.
    poll_us: u32,
}

impl PerfPolicy {
    /// All policies, fastest first.
    pub const ALL: [Self; 9] = [
        Self::Burst,
        Self::SustainedHighPerformance,
        Self::HighPerformance,
        Self::Balanced,
        Self::LowBalanced,
        Self::HighPowerSaver,
        Self::PowerSaver,
        Self::LowPowerSaver,
        Self::ExtremePowerSaver,
    ];

    /// The name in Genie's configs, e.g. `burst`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::SustainedHighPerformance => "sustained_high_performance",
            Self::HighPerformance => "high_performance",
            Self::Balanced => "balanced",
            Self::LowBalanced => "low_balanced",
            Self::HighPowerSaver => "high_power_saver",
            Self::PowerSaver => "power_saver",
            Self::LowPowerSaver => "low_power_saver",
            Self::ExtremePowerSaver => "extreme_power_saver",
        }
    }

    /// The policy of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    const fn dcvs(self) -> DcvsRequest {
        let (corner, wake_us, scaling, poll_us) = match self {
            Self::Burst => (DCVS_VOLTAGE_VCORNER_MAX_VOLTAGE_CORNER, 40, false, 9999),
            Self::SustainedHighPerformance => (DCVS_VOLTAGE_VCORNER_TURBO, 100, false, 9999),
            Self::HighPerformance => (DCVS_VOLTAGE_VCORNER_TURBO, 100, false, 0),
            Self::Balanced => (DCVS_VOLTAGE_VCORNER_NOM_PLUS, 1000, true, 0),
            Self::LowBalanced => (DCVS_VOLTAGE_VCORNER_NOM, 1000, true, 0),
            Self::HighPowerSaver => (DCVS_VOLTAGE_VCORNER_SVS_PLUS, 1000, true, 0),
            Self::PowerSaver => (DCVS_VOLTAGE_VCORNER_SVS, 1000, true, 0),
            Self::LowPowerSaver => (DCVS_VOLTAGE_VCORNER_SVS2, 1000, true, 0),
            Self::ExtremePowerSaver => (DCVS_VOLTAGE_CORNER_DISABLE, 2000, true, 0),
        };
        DcvsRequest { corner, wake_us, scaling, poll_us }
    }
}

/// How the host waits for the chip. The default leaves it to the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RpcTimes {
    /// How long the host polls for the end of a call, in microseconds; at most [`RpcTimes::LONGEST_POLL`].
    pub poll_us: Option<u32>,
    /// Longest time that a call may take to reach the chip, in microseconds.
    pub control_latency_us: Option<u32>,
}

impl RpcTimes {
    /// The longest polling that HTP takes.
    pub const LONGEST_POLL: u32 = QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIG_MAX_RPC_POLLING_TIME;
}

/// A vote that is held until it is dropped.
///
/// Invariant: `id` was made by `calls`; destroyed exactly once, in `drop`.
pub struct PowerVote {
    id: u32,
    calls: QnnHtpDevice_PerfInfrastructure_t,
    policy: PerfPolicy,
    rpc: RpcTimes,
    backend: Arc<Backend>,
}

impl PowerVote {
    /// Votes for a policy. On the emulator it has no effect and is taken all the same.
    ///
    /// # Errors
    /// A library without performance infrastructure ([`Error::is_unsupported`]), or one that refuses the vote.
    pub fn cast(backend: &Arc<Backend>, policy: PerfPolicy) -> Result<Self> {
        Self::cast_with(backend, policy, RpcTimes::default())
    }

    /// As [`Self::cast`], with times of its own for calls of the chip.
    ///
    /// # Errors
    /// As [`Self::cast`].
    pub fn cast_with(backend: &Arc<Backend>, policy: PerfPolicy, rpc: RpcTimes) -> Result<Self> {
        let library = backend.library();
        let missing =
            || Error::Missing { library: library.display_name().to_owned(), call: "performance infrastructure" };
        let mut infrastructure: QnnDevice_Infrastructure_t = core::ptr::null_mut();
        let calls = backend.lock();
        // SAFETY: an out pointer; QNN types it as read-only, but fills it in.
        unsafe { library.table.device_get_infrastructure((&raw mut infrastructure).cast_const()) }
            .context(library.display_name(), || "reach the performance infrastructure".into())?;
        // SAFETY: null, or HTP's struct with the library's lifetime.
        let raw = unsafe { infrastructure.cast::<QnnHtpDevice_Infrastructure_t>().as_ref() }.ok_or_else(missing)?;
        if raw.infraType != QNN_HTP_DEVICE_INFRASTRUCTURE_TYPE_PERF {
            return Err(missing());
        }
        // SAFETY: the member of this type.
        let perf = unsafe { raw.anon0.perfInfra };
        let mut id = 0;
        let create = perf.createPowerConfigId.ok_or_else(missing)?;
        // SAFETY: the first device and core, and an out pointer.
        check("createPowerConfigId", unsafe { create(0, 0, &raw mut id) }, |_| None)
            .context(library.display_name(), || "open a power vote".into())?;
        drop(calls);
        let mut vote = Self { id, calls: perf, policy, rpc, backend: backend.clone() };
        vote.change(policy)?;
        Ok(vote)
    }

    /// The policy voted for.
    pub fn policy(&self) -> PerfPolicy {
        self.policy
    }

    /// Votes for another policy.
    ///
    /// # Errors
    /// The library refuses it; the former vote then stands.
    pub fn change(&mut self, policy: PerfPolicy) -> Result<()> {
        let configs = configs(policy, self.rpc, self.id);
        let mut list: Vec<_> = configs.iter().map(|config| &raw const *config).chain([core::ptr::null()]).collect();
        let library = self.backend.library();
        let set = self
            .calls
            .setPowerConfig
            .ok_or_else(|| Error::Missing { library: library.display_name().to_owned(), call: "setPowerConfig" })?;
        let _calls = self.backend.lock();
        // SAFETY: a live vote and a null-terminated list that lives until the call returns.
        check("setPowerConfig", unsafe { set(self.id, list.as_mut_ptr()) }, |_| None)
            .context(library.display_name(), || format!("vote for performance policy `{}`", policy.name()))?;
        self.policy = policy;
        Ok(())
    }
}

fn configs(policy: PerfPolicy, rpc: RpcTimes, id: u32) -> Vec<QnnHtpPerfInfrastructure_PowerConfig_t> {
    let dcvs = policy.dcvs();
    let clocks = QnnHtpPerfInfrastructure_DcvsV3_t {
        contextId: id,
        setDcvsEnable: 1,
        dcvsEnable: u32::from(dcvs.scaling),
        powerMode: if dcvs.scaling {
            QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_ADJUST_UP_DOWN
        } else {
            QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_PERFORMANCE_MODE
        },
        setSleepLatency: 1,
        sleepLatency: dcvs.wake_us,
        setBusParams: 1,
        busVoltageCornerMin: dcvs.corner,
        busVoltageCornerTarget: dcvs.corner,
        busVoltageCornerMax: dcvs.corner,
        setCoreParams: 1,
        coreVoltageCornerMin: dcvs.corner,
        coreVoltageCornerTarget: dcvs.corner,
        coreVoltageCornerMax: dcvs.corner,
        ..Default::default()
    };
    let poll_us = rpc.poll_us.unwrap_or(dcvs.poll_us).min(RpcTimes::LONGEST_POLL);
    let latency = rpc.control_latency_us.map(|us| QnnHtpPerfInfrastructure_PowerConfig_t {
        option: QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_CONTROL_LATENCY,
        anon0: QnnHtpPerfInfrastructure_PowerConfig_t_anon0 { rpcControlLatencyConfig: us },
    });
    let always = [
        QnnHtpPerfInfrastructure_PowerConfig_t {
            option: QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_DCVS_V3,
            anon0: QnnHtpPerfInfrastructure_PowerConfig_t_anon0 { dcvsV3Config: clocks },
        },
        QnnHtpPerfInfrastructure_PowerConfig_t {
            option: QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_POLLING_TIME,
            anon0: QnnHtpPerfInfrastructure_PowerConfig_t_anon0 { rpcPollingTimeConfig: poll_us },
        },
    ];
    always.into_iter().chain(latency).collect()
}

impl Drop for PowerVote {
    fn drop(&mut self) {
        if let Some(destroy) = self.calls.destroyPowerConfigId {
            let _calls = self.backend.lock();
            // SAFETY: live until here.
            let freed = check("destroyPowerConfigId", unsafe { destroy(self.id) }, |_| None);
            crate::backend::log_failure("destroyPowerConfigId", freed);
        }
    }
}

impl core::fmt::Debug for PowerVote {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PowerVote").field("policy", &self.policy).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_faster_policies_ask_for_no_less() {
        for pair in PerfPolicy::ALL.windows(2) {
            assert!(pair[0].dcvs().corner >= pair[1].dcvs().corner, "{pair:?}");
            assert!(pair[0].dcvs().wake_us <= pair[1].dcvs().wake_us, "{pair:?}");
        }
        for policy in PerfPolicy::ALL {
            assert_eq!(PerfPolicy::from_name(policy.name()), Some(policy));
        }
        assert_eq!(PerfPolicy::from_name("fast"), None);
    }

    #[test]
    fn times_of_calls_win_over_the_policy() {
        let poll = |configs: &[QnnHtpPerfInfrastructure_PowerConfig_t]| {
            assert_eq!(configs[1].option, QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_POLLING_TIME);
            // SAFETY: the member of that option.
            unsafe { configs[1].anon0.rpcPollingTimeConfig }
        };
        let of_policy = configs(PerfPolicy::Balanced, RpcTimes::default(), 1);
        assert_eq!((poll(&of_policy), of_policy.len()), (0, 2));
        let own = RpcTimes { poll_us: Some(u32::MAX), control_latency_us: Some(100) };
        let own = configs(PerfPolicy::Balanced, own, 1);
        assert_eq!((poll(&own), own.len()), (RpcTimes::LONGEST_POLL, 3));
        assert_eq!(own[2].option, QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_CONTROL_LATENCY);
        // SAFETY: the member of that option.
        assert_eq!(unsafe { own[2].anon0.rpcControlLatencyConfig }, 100);
    }
}
