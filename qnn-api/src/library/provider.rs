//! Choosing a provider: versions first, then as much of its table as that version has.

use core::ffi::c_char;
use core::mem::offset_of;

use qnn_sys::*;

use super::Version;
use crate::convert;
use crate::error::{Error, Result};
use crate::table::{CallContext, CallError, check, copy_slots};

/// Oldest core interface whose layout was measured (QAIRT 2.25).
const MIN_CORE: (u32, u32) = (2, 18);
/// Oldest system interface whose layout was measured (QAIRT 2.25).
const MIN_SYSTEM: (u32, u32) = (1, 1);

/// What the chosen provider offers.
pub(super) struct Chosen {
    pub(super) name: String,
    pub(super) backend_id: u32,
    pub(super) core: Version,
    pub(super) backend: Version,
    pub(super) table: QnnInterfaceTable,
}

/// What the chosen system provider offers.
pub(super) struct ChosenSystem {
    pub(super) version: Version,
    pub(super) table: QnnSystemInterfaceTable,
}

/// The first provider whose interface is known here.
///
/// # Safety
/// `get` keeps QNN's contract for the entry point of a backend.
pub(super) unsafe fn choose(get: GetProviders, library: &str) -> Result<Chosen> {
    let mut refused = None;
    // SAFETY: the caller's promise.
    for provider in unsafe { list(get, "QnnInterface_getProviders", library) }? {
        // SAFETY: id, name and versions lie at these offsets in every version of the struct.
        let (id, name, api) =
            unsafe { ((*provider).backendId, (*provider).providerName, (&raw const (*provider).apiVersion).read()) };
        let core = Version::from(api.coreApiVersion);
        if core.major != MIN_CORE.0 || core.minor < MIN_CORE.1 {
            refused = Some(core);
            continue;
        }
        let n_slots = QNN_INTERFACE_TABLE_SLOTS.iter().filter(|slot| core_minor_of(slot.2) <= core.minor).count();
        // SAFETY: the provider's version has that many slots, counted by the measured tables; they are only appended to.
        let table =
            unsafe { copy_slots(at::<QnnInterfaceTable>(provider.cast(), offset_of!(QnnInterface_t, table)), n_slots) };
        // SAFETY: a C string or null, owned by the library.
        let name = unsafe { convert::text(name) };
        return Ok(Chosen { name, backend_id: id, core, backend: api.backendApiVersion.into(), table });
    }
    Err(refusal(refused, library, "core", MIN_CORE))
}

/// The first system provider whose interface is known here.
///
/// # Safety
/// `get` keeps QNN's contract for the entry point of a system interface.
pub(super) unsafe fn choose_system(get: GetSystemProviders, library: &str) -> Result<ChosenSystem> {
    let mut refused = None;
    // SAFETY: the caller's promise.
    for provider in unsafe { list(get, "QnnSystemInterface_getProviders", library) }? {
        // SAFETY: the version lies at this offset in every version of the struct.
        let version = Version::from(unsafe { (&raw const (*provider).systemApiVersion).read() });
        if version.major != MIN_SYSTEM.0 || version.minor < MIN_SYSTEM.1 {
            refused = Some(version);
            continue;
        }
        let n_slots =
            QNN_SYSTEM_INTERFACE_TABLE_SLOTS.iter().filter(|slot| system_minor_of(slot.2) <= version.minor).count();
        // SAFETY: as for the core table.
        let table = unsafe {
            copy_slots(at::<QnnSystemInterfaceTable>(provider.cast(), offset_of!(QnnSystemInterface_t, table)), n_slots)
        };
        return Ok(ChosenSystem { version, table });
    }
    Err(refusal(refused, library, "system", MIN_SYSTEM))
}

fn refusal(refused: Option<Version>, library: &str, interface: &'static str, need: (u32, u32)) -> Error {
    let library = library.to_owned();
    match refused {
        Some(v) => Error::Version { library, interface, found: (v.major, v.minor, v.patch), need },
        None => Error::NoProvider { library },
    }
}

/// The provider pointers that are not null.
///
/// # Safety
/// `get` writes a list that lives as long as the program, and its length.
unsafe fn list<P>(
    get: unsafe extern "C" fn(*mut *mut *const P, *mut u32) -> u64,
    call: &'static str,
    library: &str,
) -> Result<Vec<*const P>> {
    let (mut first, mut n) = (core::ptr::null_mut::<*const P>(), 0);
    // SAFETY: two out pointers, as this entry point takes them.
    let done: core::result::Result<(), CallError> = check(call, unsafe { get(&raw mut first, &raw mut n) }, |_| None);
    done.context(library, || format!("ask `{library}` for its providers"))?;
    if first.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: on success the list has `n` pointers and lives as long as the library, which is never unloaded.
    let providers = unsafe { core::slice::from_raw_parts(first, n as usize) };
    Ok(providers.iter().copied().filter(|provider| !provider.is_null()).collect())
}

/// A pointer into a struct that may be shorter than the one known here: no reference to the whole may be made.
fn at<T>(base: *const c_char, offset: usize) -> *const T {
    base.wrapping_add(offset).cast()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hint;
    use std::sync::OnceLock;

    struct List(Vec<*const QnnInterface_t>);
    // SAFETY: pointers to leaked, read-only providers.
    unsafe impl Send for List {}
    // SAFETY: as above.
    unsafe impl Sync for List {}

    fn provider(major: u32, minor: u32) -> *const QnnInterface_t {
        let api = Qnn_ApiVersion_t { coreApiVersion: Qnn_Version_t { major, minor, patch: 0 }, ..Default::default() };
        Box::leak(Box::new(QnnInterface_t {
            backendId: minor,
            providerName: c"FAKE".as_ptr(),
            apiVersion: api,
            table: stub::interface(),
        }))
    }

    unsafe extern "C" fn two(out: *mut *mut *const QnnInterface_t, n: *mut u32) -> u64 {
        static LIST: OnceLock<List> = OnceLock::new();
        let list = LIST.get_or_init(|| List(vec![provider(2, 14), provider(2, 18)]));
        // SAFETY: the caller gives two out pointers; the list is never written through.
        unsafe { (*out, *n) = (list.0.as_ptr().cast_mut(), 2) };
        0
    }

    unsafe extern "C" fn old(out: *mut *mut *const QnnInterface_t, n: *mut u32) -> u64 {
        static LIST: OnceLock<List> = OnceLock::new();
        let list = LIST.get_or_init(|| List(vec![provider(2, 14)]));
        // SAFETY: as above.
        unsafe { (*out, *n) = (list.0.as_ptr().cast_mut(), 1) };
        0
    }

    unsafe extern "C" fn none(_out: *mut *mut *const QnnInterface_t, _n: *mut u32) -> u64 {
        0
    }

    #[test]
    fn the_first_readable_provider_is_taken_and_its_table_cut() {
        // SAFETY: the list is leaked.
        let chosen = unsafe { choose(two, "fake") }.unwrap();
        assert_eq!((chosen.name.as_str(), chosen.core.minor), ("FAKE", 18));
        assert!(chosen.table.contextApplyBinarySection.is_some(), "slot 61 is of 2.18");
        assert!(chosen.table.backendGetProperty.is_none(), "slot 62 came later");
    }

    #[test]
    fn an_old_interface_is_refused_with_both_versions() {
        // SAFETY: the list is leaked.
        let error = unsafe { choose(old, "fake.so") }.err().unwrap();
        assert_eq!(error.to_string(), "library `fake.so`: core API 2.14.0 found, 2.18 or a later 2.x needed");
        assert_eq!(error.hint(), Some(Hint::NewerLibrary));
    }

    #[test]
    fn a_library_without_providers_is_refused() {
        // SAFETY: it writes nothing, so the list stays empty.
        assert!(matches!(unsafe { choose(none, "fake.so") }, Err(Error::NoProvider { .. })));
    }
}
