//! Options of contexts and graphs, and the C configs that carry them.

use core::ffi::c_char;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use qnn_sys::host::{HOST_BACKEND_ID, HOST_CONTEXT_OPTION_MAPPED, HOST_CONTEXT_OPTION_SCRATCH, HostScratchConfig};
use qnn_sys::*;

use crate::context_handle::ContextInner;
use crate::convert::ConfigList;

/// How urgent a context's or graph's work is among others on the chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Below the default.
    Low,
    /// The default.
    Normal,
    /// Above the default.
    NormalHigh,
    /// Highest.
    High,
}

impl Priority {
    const fn raw(self) -> Qnn_Priority_t {
        match self {
            Self::Low => QNN_PRIORITY_LOW,
            Self::Normal => QNN_PRIORITY_NORMAL,
            Self::NormalHigh => QNN_PRIORITY_NORMAL_HIGH,
            Self::High => QNN_PRIORITY_HIGH,
        }
    }
}

/// Options of a context. The default sets nothing.
#[derive(Clone, Debug, Default)]
pub struct ContextOptions {
    /// Urgency of its graphs.
    pub priority: Option<Priority>,
    /// HTP: graphs of the context share one copy of the weights. The emulator can write, but not load, such contexts.
    pub htp_weight_sharing: bool,
    /// HTP: most megabytes of a binary's file to read at a time; 0 is no limit.
    pub htp_read_budget_mb: u64,
    /// HTP: the graphs' spill buffer is one that several contexts use in turn. The emulator refuses it.
    pub htp_spill_fill: Option<SpillFill>,
    /// HTP: megabytes that graphs may take at a time; graphs beyond them are swapped. The emulator refuses it.
    pub htp_memory_limit_mb: Option<u64>,
    /// HTP: graphs to keep longest when graphs are swapped, first the one that goes last.
    pub htp_retention_order: Vec<String>,
    /// Embedded backend: a folder where weights are kept in a file while graphs are composed, in place of memory.
    pub host_scratch: Option<PathBuf>,
    /// Embedded backend: weights of a mapped binary leave memory as soon as a step has read them. Slow, and small.
    pub host_lets_weights_go: bool,
}

/// A spill buffer for several contexts whose graphs do not run at the same time.
#[derive(Clone, Debug)]
pub struct SpillFill {
    /// Bytes that the context with the largest need has.
    pub bytes: u64,
    /// The group to join; `None` begins one, which [`Context::spill_group`](crate::Context::spill_group) then gives.
    pub group: Option<SpillGroup>,
}

/// Contexts that share a spill buffer. Keeps the first of them.
#[derive(Clone)]
pub struct SpillGroup(pub(crate) Arc<ContextInner>);

impl core::fmt::Debug for SpillGroup {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("SpillGroup").field(&self.0.raw).finish()
    }
}

impl SpillFill {
    fn raw(&self) -> QnnHtpContext_GroupRegistration_t {
        let first = self.group.as_ref().map_or(core::ptr::null_mut(), |group| group.0.raw);
        QnnHtpContext_GroupRegistration_t { firstGroupHandle: first, maxSpillFillBuffer: self.bytes }
    }
}

/// Options of a graph under construction. The default sets nothing.
#[derive(Clone, Debug, Default)]
pub struct GraphOptions {
    /// Urgency.
    pub priority: Option<Priority>,
    /// HTP only.
    pub htp: Option<HtpGraphOptions>,
}

/// HTP's options of a graph; sent only to an HTP backend.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HtpGraphOptions {
    /// Compute float graphs in float16 (what the chip has).
    pub float16: bool,
    /// Tightly coupled memory to plan for, in MB.
    pub vtcm_mb: Option<u32>,
    /// Effort of the optimiser: 1 to 3.
    pub optimization: Option<u32>,
    /// Vector threads to use.
    pub hvx_threads: Option<u64>,
}

/// Config structs for one call: the list, and the custom structs that it points at.
pub(crate) struct Configs<T, C> {
    pub(crate) list: ConfigList<T>,
    /// Boxed slice-like storage: never grown after the list was made, so the list's pointers stay good.
    _custom: Vec<C>,
    /// Names of graphs, and the null-terminated list of them.
    _names: (Vec<CString>, Vec<*const c_char>),
}

impl ContextOptions {
    /// The group that a context of these options joins.
    pub(crate) fn spill_group(&self) -> Option<SpillGroup> {
        self.htp_spill_fill.as_ref().and_then(|spill| spill.group.clone())
    }

    /// `persistent`: the binary's bytes stay valid as long as the context; `htp`: the backend knows HTP's custom configs.
    pub(crate) fn configs(
        &self,
        persistent: bool,
        htp: bool,
    ) -> Configs<QnnContext_Config_t, QnnHtpContext_CustomConfig_t> {
        let mut custom = Vec::new();
        if self.htp_weight_sharing && htp {
            custom.push(QnnHtpContext_CustomConfig_t {
                option: QNN_HTP_CONTEXT_CONFIG_OPTION_WEIGHT_SHARING_ENABLED,
                anon0: QnnHtpContext_CustomConfig_t_anon0 { weightSharingEnabled: true },
            });
        }
        if self.htp_read_budget_mb > 0 && htp {
            custom.push(QnnHtpContext_CustomConfig_t {
                option: QNN_HTP_CONTEXT_CONFIG_OPTION_FILE_READ_MEMORY_BUDGET,
                anon0: QnnHtpContext_CustomConfig_t_anon0 { fileReadMemoryBudgetInMb: self.htp_read_budget_mb },
            });
        }
        if let Some(spill) = self.htp_spill_fill.as_ref().filter(|_| htp) {
            custom.push(QnnHtpContext_CustomConfig_t {
                option: QNN_HTP_CONTEXT_CONFIG_OPTION_REGISTER_MULTI_CONTEXTS,
                anon0: QnnHtpContext_CustomConfig_t_anon0 { groupRegistration: spill.raw() },
            });
        }
        let mut items = Vec::new();
        let (mut names, mut pointers) = (Vec::new(), Vec::new());
        if let Some(megabytes) = self.htp_memory_limit_mb.filter(|_| htp) {
            items.push(QnnContext_Config_t {
                option: QNN_CONTEXT_CONFIG_MEMORY_LIMIT_HINT,
                anon0: QnnContext_Config_t_anon0 { memoryLimitHint: megabytes },
            });
        }
        if !self.htp_retention_order.is_empty() && htp {
            // No graph has a name with a zero byte.
            names.extend(self.htp_retention_order.iter().filter_map(|name| CString::new(name.as_str()).ok()));
            pointers.extend(names.iter().map(|name| name.as_ptr()).chain([core::ptr::null()]));
            items.push(QnnContext_Config_t {
                option: QNN_CONTEXT_CONFIG_GRAPH_RETENTION_ORDER,
                anon0: QnnContext_Config_t_anon0 { graphRetentionOrder: pointers.as_mut_ptr() },
            });
        }
        if let Some(priority) = self.priority {
            items.push(QnnContext_Config_t {
                option: QNN_CONTEXT_CONFIG_OPTION_PRIORITY,
                anon0: QnnContext_Config_t_anon0 { priority: priority.raw() },
            });
        }
        if persistent {
            items.push(QnnContext_Config_t {
                option: QNN_CONTEXT_CONFIG_PERSISTENT_BINARY,
                anon0: QnnContext_Config_t_anon0 { isPersistentBinary: 1 },
            });
        }
        for one in &mut custom {
            items.push(QnnContext_Config_t {
                option: QNN_CONTEXT_CONFIG_OPTION_CUSTOM,
                anon0: QnnContext_Config_t_anon0 { customConfig: (&raw mut *one).cast() },
            });
        }
        Configs { list: ConfigList::new(items), _custom: custom, _names: (names, pointers) }
    }

    /// The config of a folder for weights, for the embedded backend.
    pub(crate) fn scratch(&self, backend_id: u32) -> Option<Scratch> {
        let folder = self.host_scratch.as_deref().filter(|_| backend_id == HOST_BACKEND_ID)?;
        Scratch::of(folder)
    }
}

/// What says that a binary is a mapped file.
static MAPPED: u32 = HOST_CONTEXT_OPTION_MAPPED;

/// A folder's config, and the memory that it points at.
pub(crate) struct Scratch {
    _folder: CString,
    custom: Box<HostScratchConfig>,
}

impl Scratch {
    /// None for a path that C cannot name: weights are then kept in memory.
    fn of(folder: &Path) -> Option<Self> {
        let folder = CString::new(folder.to_str()?).ok()?;
        let custom = Box::new(HostScratchConfig { option: HOST_CONTEXT_OPTION_SCRATCH, folder: folder.as_ptr() });
        Some(Self { _folder: folder, custom })
    }

    /// Its entry of a list, which must not outlive it.
    fn entry(&mut self) -> QnnContext_Config_t {
        QnnContext_Config_t {
            option: QNN_CONTEXT_CONFIG_OPTION_CUSTOM,
            anon0: QnnContext_Config_t_anon0 { customConfig: (&raw mut *self.custom).cast() },
        }
    }
}

impl Configs<QnnContext_Config_t, QnnHtpContext_CustomConfig_t> {
    /// Adds that pages of a mapped binary may leave memory, for the embedded backend if it is asked for.
    pub(crate) fn with_mapped(mut self, options: &ContextOptions, backend_id: u32) -> Self {
        if options.host_lets_weights_go && backend_id == HOST_BACKEND_ID {
            self.list.push(QnnContext_Config_t {
                option: QNN_CONTEXT_CONFIG_OPTION_CUSTOM,
                anon0: QnnContext_Config_t_anon0 { customConfig: (&raw const MAPPED).cast_mut().cast() },
            });
        }
        self
    }

    /// Adds a folder for weights, which must live as long as this.
    pub(crate) fn with_scratch(mut self, scratch: Option<&mut Scratch>) -> Self {
        if let Some(scratch) = scratch {
            self.list.push(scratch.entry());
        }
        self
    }
}

impl GraphOptions {
    /// `htp`: the backend knows HTP's custom configs.
    pub(crate) fn configs(&self, htp: bool) -> Configs<QnnGraph_Config_t, QnnHtpGraph_CustomConfig_t> {
        let mut custom = self.htp.filter(|_| htp).map(HtpGraphOptions::custom).unwrap_or_default();
        let mut items = Vec::new();
        if let Some(priority) = self.priority {
            items.push(QnnGraph_Config_t {
                option: QNN_GRAPH_CONFIG_OPTION_PRIORITY,
                anon0: QnnGraph_Config_t_anon0 { priority: priority.raw() },
            });
        }
        for one in &mut custom {
            items.push(QnnGraph_Config_t {
                option: QNN_GRAPH_CONFIG_OPTION_CUSTOM,
                anon0: QnnGraph_Config_t_anon0 { customConfig: (&raw mut *one).cast() },
            });
        }
        Configs { list: ConfigList::new(items), _custom: custom, _names: (Vec::new(), Vec::new()) }
    }
}

impl HtpGraphOptions {
    fn custom(self) -> Vec<QnnHtpGraph_CustomConfig_t> {
        let one = |option, anon0| QnnHtpGraph_CustomConfig_t { option, anon0 };
        let mut list = Vec::new();
        if self.float16 {
            let precision = QnnHtpGraph_CustomConfig_t_anon0 { precision: QNN_PRECISION_FLOAT16 };
            list.push(one(QNN_HTP_GRAPH_CONFIG_OPTION_PRECISION, precision));
        }
        if let Some(megabytes) = self.vtcm_mb {
            let vtcm = QnnHtpGraph_CustomConfig_t_anon0 { vtcmSizeInMB: megabytes };
            list.push(one(QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE, vtcm));
        }
        if let Some(level) = self.optimization {
            let optimization = QnnHtpGraph_OptimizationOption_t {
                r#type: QNN_HTP_GRAPH_OPTIMIZATION_TYPE_FINALIZE_OPTIMIZATION_FLAG,
                floatValue: level as f32,
            };
            let optimization = QnnHtpGraph_CustomConfig_t_anon0 { optimizationOption: optimization };
            list.push(one(QNN_HTP_GRAPH_CONFIG_OPTION_OPTIMIZATION, optimization));
        }
        if let Some(threads) = self.hvx_threads {
            let threads = QnnHtpGraph_CustomConfig_t_anon0 { numHvxThreads: threads };
            list.push(one(QNN_HTP_GRAPH_CONFIG_OPTION_NUM_HVX_THREADS, threads));
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options<T: Copy>(list: &mut ConfigList<T>, option: fn(&T) -> u32) -> Vec<u32> {
        let mut found = Vec::new();
        let mut at = list.as_ptr();
        // SAFETY: a null-terminated list, or null.
        while let Some(config) = (!at.is_null()).then(|| unsafe { (*at).as_ref() }).flatten() {
            found.push(option(config));
            at = at.wrapping_add(1);
        }
        found
    }

    #[test]
    fn every_option_becomes_a_config_and_htps_only_for_htp() {
        let htp = HtpGraphOptions { float16: true, vtcm_mb: Some(8), optimization: Some(3), hvx_threads: Some(4) };
        let graph = GraphOptions { priority: Some(Priority::High), htp: Some(htp) };
        assert_eq!(options(&mut graph.configs(true).list, |c| c.option), [3, 0, 0, 0, 0]);
        assert_eq!(options(&mut graph.configs(false).list, |c| c.option), [3]);
        let context = ContextOptions {
            priority: Some(Priority::Low),
            htp_weight_sharing: true,
            htp_read_budget_mb: 25,
            ..ContextOptions::default()
        };
        assert_eq!(options(&mut context.configs(true, true).list, |c| c.option), [1, 7, 0, 0]);
        assert_eq!(options(&mut context.configs(true, false).list, |c| c.option), [1, 7]);
        let mut custom = context.configs(false, true);
        let budget = custom._custom.pop().expect("two");
        assert_eq!(budget.option, QNN_HTP_CONTEXT_CONFIG_OPTION_FILE_READ_MEMORY_BUDGET);
        // SAFETY: the member of that option.
        assert_eq!(unsafe { budget.anon0.fileReadMemoryBudgetInMb }, 25);
        assert_eq!(options(&mut ContextOptions::default().configs(false, true).list, |c| c.option), [0_u32; 0]);
    }
    #[test]
    fn a_spill_buffer_a_memory_limit_and_an_order_reach_htp_only() {
        let options = ContextOptions {
            htp_spill_fill: Some(SpillFill { bytes: 1 << 20, group: None }),
            htp_memory_limit_mb: Some(1024),
            htp_retention_order: vec!["one".into(), "two".into()],
            ..ContextOptions::default()
        };
        let mut configs = options.configs(true, true);
        assert_eq!(options_of(&mut configs), [6, 10, 7, 0]);
        // SAFETY: the members of those options, in a list of four.
        let (limit, order, custom) = unsafe {
            let list = configs.list.as_ptr();
            let at = |i: usize| (**list.add(i)).anon0;
            (
                at(0).memoryLimitHint,
                at(1).graphRetentionOrder,
                *at(3).customConfig.cast::<QnnHtpContext_CustomConfig_t>(),
            )
        };
        assert_eq!((limit, custom.option), (1024, QNN_HTP_CONTEXT_CONFIG_OPTION_REGISTER_MULTI_CONTEXTS));
        // SAFETY: the member of that option.
        let group = unsafe { custom.anon0.groupRegistration };
        assert_eq!((group.firstGroupHandle.is_null(), group.maxSpillFillBuffer), (true, 1 << 20));
        // SAFETY: two names and a null.
        let names = unsafe { [(*order), *order.add(1)].map(|name| core::ffi::CStr::from_ptr(name)) };
        assert_eq!(names, [c"one", c"two"]);
        // SAFETY: as above.
        assert!(unsafe { (*order.add(2)).is_null() });
        assert_eq!(options_of(&mut options.configs(false, false)), [0_u32; 0]);
    }

    fn options_of(configs: &mut Configs<QnnContext_Config_t, QnnHtpContext_CustomConfig_t>) -> Vec<u32> {
        options(&mut configs.list, |config| config.option)
    }
}
