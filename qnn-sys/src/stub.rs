//! Tables whose every slot returns "not supported": a backend overrides the slots it has.

pub use crate::not_supported::NOT_SUPPORTED;
use crate::{QnnInterfaceTable, QnnSystemInterfaceTable};

/// The core interface, with nothing in it.
pub const fn interface() -> QnnInterfaceTable {
    QnnInterfaceTable::STUB
}

/// The system interface, with nothing in it.
pub const fn system_interface() -> QnnSystemInterfaceTable {
    QnnSystemInterfaceTable::STUB
}
