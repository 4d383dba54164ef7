//! What a library's `get providers` entry points hand out, and the versions that its table is read by.
//!
//! *Layout*: id at 0, name at 8; core interface: versions at 16, table at 40; system interface: version at 16, table at
//! 32. The table lies inside, so an older library's copy may be shorter than ours: read a slot only after the version
//! says that it exists. *Source*: headers and libraries of QAIRT 2.25 to 2.51.

use core::mem::offset_of;

use crate::generated::tables::{QnnInterface_t, QnnInterfaceTable, QnnSystemInterface_t, QnnSystemInterfaceTable};
use crate::generated::types::Qnn_ErrorHandle_t;

const _: () = assert!(offset_of!(QnnInterface_t, apiVersion) == 16 && offset_of!(QnnInterface_t, table) == 40);
const _: () = assert!(offset_of!(QnnSystemInterface_t, systemApiVersion) == 16);
const _: () = assert!(offset_of!(QnnSystemInterface_t, table) == 32);
const _: () = assert!(size_of::<QnnInterfaceTable>() == 75 * 8 && size_of::<QnnSystemInterfaceTable>() == 16 * 8);

// SAFETY: a provider is read-only data of its library: the name is never written, functions are plain addresses.
unsafe impl Sync for QnnInterface_t {}
// SAFETY: as above.
unsafe impl Send for QnnInterface_t {}
// SAFETY: as above.
unsafe impl Sync for QnnSystemInterface_t {}
// SAFETY: as above.
unsafe impl Send for QnnSystemInterface_t {}

/// `QnnInterface_getProviders`: a list of providers and its length, owned by the library.
pub type GetProviders =
    unsafe extern "C" fn(providers: *mut *mut *const QnnInterface_t, n_providers: *mut u32) -> Qnn_ErrorHandle_t;

/// `QnnSystemInterface_getProviders`: the same for the system interface.
pub type GetSystemProviders =
    unsafe extern "C" fn(providers: *mut *mut *const QnnSystemInterface_t, n_providers: *mut u32) -> Qnn_ErrorHandle_t;

/// Entry points of a QNN library that is linked into this program.
#[derive(Clone, Copy, Debug)]
pub struct LinkedProviders {
    core: GetProviders,
    system: Option<GetSystemProviders>,
}

impl LinkedProviders {
    /// Vouches for two entry points.
    ///
    /// # Safety
    /// Each hands out a list of providers that live, unchanged, as long as the program; the functions of a provider's table
    /// behave as QNN documents them for the version that the provider states.
    pub const unsafe fn new(core: GetProviders, system: Option<GetSystemProviders>) -> Self {
        Self { core, system }
    }

    /// The core interface's entry point.
    pub const fn core(self) -> GetProviders {
        self.core
    }

    /// The system interface's entry point, where the library has one.
    pub const fn system(self) -> Option<GetSystemProviders> {
        self.system
    }
}

/// Exported symbol of [`GetProviders`].
pub const GET_PROVIDERS: &str = "QnnInterface_getProviders";
/// Exported symbol of [`GetSystemProviders`].
pub const GET_SYSTEM_PROVIDERS: &str = "QnnSystemInterface_getProviders";

/// Newest core interface whose slots are all known here.
pub const CORE_VERSION: (u32, u32) = (2, 40);
/// Newest system interface whose slots are all known here.
pub const SYSTEM_VERSION: (u32, u32) = (1, 15);

/// First core minor version (of major 2) that has a slot, from the release whose headers first had it.
pub const fn core_minor_of(release: u32) -> u32 {
    match release {
        0..=225 => 18,
        226..=236 => 27,
        237..=240 => 30,
        _ => 40,
    }
}

/// First system minor version (of major 1) that has a slot, from the release whose headers first had it.
pub const fn system_minor_of(release: u32) -> u32 {
    match release {
        0..=225 => 1,
        226..=236 => 4,
        237..=240 => 6,
        _ => 15,
    }
}
