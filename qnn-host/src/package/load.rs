//! A package: its library, its interface, what it says about itself.
//!
//! *Invariant*: the library stays loaded, and the package started, for as long as a [`Package`] lives. A package of interface
//! 1.4 is started once in a process (its `init` has no handle), so packages are shared between backends, and one that ends has ended before
//! it is started again.

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::Library;
use qnn_sys::cpu_op_package::QnnCpuOpPackage_GlobalInfrastructure_t;
use qnn_sys::{
    QNN_SUCCESS, Qnn_OpConfig_t, Qnn_OpPackageHandle_t, QnnOpPackage_ImplementationV1_4_t,
    QnnOpPackage_ImplementationV2_0_t, QnnOpPackage_Info_t, QnnOpPackage_Interface_t, QnnOpPackage_Node_t,
    QnnOpPackage_OpImpl_t,
};

use super::PackageError;
use super::shared::Shared;

/// The interface, by its version.
enum Table {
    V1(QnnOpPackage_ImplementationV1_4_t),
    V2(QnnOpPackage_ImplementationV2_0_t, Qnn_OpPackageHandle_t),
}

/// What a package is started with; never freed, so it may keep the address.
struct Infrastructure(QnnCpuOpPackage_GlobalInfrastructure_t);

// SAFETY: a function and a null, never written.
unsafe impl Sync for Infrastructure {}

static INFRASTRUCTURE: Infrastructure = Infrastructure(QnnCpuOpPackage_GlobalInfrastructure_t {
    // SAFETY: a C function with two named arguments; what a caller passes beyond them lies in registers or on its own stack,
    // which the calling conventions of x86-64 and AArch64 let a callee leave alone.
    reportMessage: Some(unsafe {
        std::mem::transmute::<unsafe extern "C" fn(u32, *const c_char), unsafe extern "C" fn(u32, *const c_char, ...)>(
            report,
        )
    }),
    profile: std::ptr::null_mut(),
});

/// A message of a package: its format as it is, since its arguments have no form that Rust can read.
unsafe extern "C" fn report(level: u32, format: *const c_char) {
    if !format.is_null() {
        // SAFETY: not null; QNN's contract: a string.
        let text = unsafe { CStr::from_ptr(format) };
        eprintln!("op package, level {level}: {}", text.to_string_lossy());
    }
}

/// A started package.
pub struct Package {
    name: String,
    path: PathBuf,
    ops: Vec<String>,
    table: Table,
    /// [`LOADED`] is to hear of its end.
    is_listed: bool,
    // Dropped after `drop` has ended the package.
    _library: Library,
}

// SAFETY: a table of functions and a handle; calls that change a package's state are made under the lock of its creation or
// for one op, and QNN lets a backend call from any thread.
unsafe impl Send for Package {}
// SAFETY: as above.
unsafe impl Sync for Package {}

static LOADED: Shared<(PathBuf, String), Package> = Shared::new();

impl Package {
    /// Loads a package, or finds it among those that are loaded.
    ///
    /// # Safety
    /// The library's code runs in this process: it must be one that follows QNN's interface for op packages.
    ///
    /// # Errors
    /// No such library or function, an unknown version, a package that does not start or says nonsense about itself.
    pub unsafe fn load(path: &Path, provider: &str, target: Option<&str>) -> Result<Arc<Self>, PackageError> {
        if let Some(found) = target.filter(|t| !t.eq_ignore_ascii_case("CPU")) {
            return Err(PackageError::Target { found: found.to_owned() });
        }
        LOADED.get((path.to_path_buf(), provider.to_owned()), || {
            // SAFETY: the caller's promise.
            let mut package = unsafe { Self::start(path, provider) }?;
            package.is_listed = true;
            Ok(package)
        })
    }

    /// # Safety
    /// As [`Package::load`].
    unsafe fn start(path: &Path, provider: &str) -> Result<Self, PackageError> {
        let at = || path.to_path_buf();
        type Provider = unsafe extern "C" fn(*mut QnnOpPackage_Interface_t) -> u64;
        // SAFETY: running its initialisers is what the caller allowed.
        let library = unsafe { Library::new(path) }.map_err(|source| PackageError::NotFound { path: at(), source })?;
        // SAFETY: by its name a function of that type, by the caller's promise.
        let function = unsafe { library.get::<Provider>(provider) };
        let no_provider = |_| PackageError::NoProvider { path: at(), provider: provider.to_owned() };
        let function = *function.map_err(no_provider)?;
        let mut interface = QnnOpPackage_Interface_t::default();
        let failed = |call, code| PackageError::Call { path: at(), call, code };
        // SAFETY: QNN's contract: it fills in the interface.
        match unsafe { function(&raw mut interface) } {
            QNN_SUCCESS => {}
            code => return Err(failed("interface provider", code)),
        }
        let version = interface.interfaceVersion;
        let missing = |slot| PackageError::NoSlot { path: at(), slot };
        let infrastructure = (&raw const INFRASTRUCTURE.0).cast_mut().cast::<c_void>();
        let table = match (version.major, version.minor) {
            (1, 4) => {
                // SAFETY: the version says which table it is.
                let table = unsafe { interface.anon0.v1_4 };
                table.createOpImpl.ok_or_else(|| missing("createOpImpl"))?;
                table.freeOpImpl.ok_or_else(|| missing("freeOpImpl"))?;
                let init = table.init.ok_or_else(|| missing("init"))?;
                // SAFETY: a function of the package, called once before all others of its table.
                match unsafe { init(infrastructure) } {
                    QNN_SUCCESS => Table::V1(table),
                    code => return Err(failed("init", code)),
                }
            }
            (2, 0) => {
                // SAFETY: the version says which table it is.
                let table = unsafe { interface.anon0.v2_0 };
                table.createOpImpl.ok_or_else(|| missing("createOpImpl"))?;
                table.freeOpImpl.ok_or_else(|| missing("freeOpImpl"))?;
                let create = table.create.ok_or_else(|| missing("create"))?;
                let mut handle = std::ptr::null_mut();
                // SAFETY: a function of the package, called before all others of its table; no log.
                match unsafe { create(infrastructure, None, 1, &raw mut handle) } {
                    QNN_SUCCESS => Table::V2(table, handle),
                    code => return Err(failed("create", code)),
                }
            }
            _ => {
                let found = format!("{}.{}.{}", version.major, version.minor, version.patch);
                return Err(PackageError::Version { path: at(), found });
            }
        };
        // From here on dropping it ends the package.
        let mut package =
            Self { name: String::new(), path: at(), ops: Vec::new(), table, is_listed: false, _library: library };
        package.read_info()?;
        Ok(package)
    }

    /// Name and ops, as the package says.
    fn read_info(&mut self) -> Result<(), PackageError> {
        let at = || self.path.clone();
        let mut info: *const QnnOpPackage_Info_t = std::ptr::null();
        let code = match &self.table {
            Table::V1(table) => {
                let ask = table.getInfo.ok_or_else(|| PackageError::NoSlot { path: at(), slot: "getInfo" })?;
                // SAFETY: the package is started; QNN's contract: it writes a pointer.
                unsafe { ask(&raw mut info) }
            }
            Table::V2(table, _) => {
                let ask = table.getInfo.ok_or_else(|| PackageError::NoSlot { path: at(), slot: "getInfo" })?;
                // SAFETY: as above.
                unsafe { ask(&raw mut info) }
            }
        };
        if code != QNN_SUCCESS {
            return Err(PackageError::Call { path: at(), call: "getInfo", code });
        }
        let bad = |expected, found: &str| PackageError::Info { path: at(), expected, found: found.to_owned() };
        // SAFETY: null, or QNN's contract: a description that lives as long as the package.
        let info = unsafe { info.as_ref() }.ok_or_else(|| bad("a description of itself", "null"))?;
        let text = |p: *const c_char| {
            // SAFETY: not null; QNN's contract: a string that lives as long as the package.
            (!p.is_null()).then(|| unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned())
        };
        let name = text(info.packageName).filter(|name| !name.is_empty() && !name.contains("::"));
        let name = name.ok_or_else(|| bad("a package name without `::`", "none"))?;
        if name == crate::ir::QNN_PACKAGE {
            return Err(bad("a name that is not QNN's own", &name));
        }
        if info.numOperations == 0 || info.operationNames.is_null() {
            return Err(bad("at least one op", "none"));
        }
        let mut ops = Vec::new();
        for i in 0..info.numOperations as usize {
            // SAFETY: QNN's contract: as many pointers as stated.
            ops.push(text(unsafe { *info.operationNames.add(i) }).ok_or_else(|| bad("names of ops", "null"))?);
        }
        (self.name, self.ops) = (name, ops);
        Ok(())
    }

    /// Its name, as nodes name it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has an op of that type.
    pub fn has(&self, op: &str) -> bool {
        self.ops.iter().any(|o| o == op)
    }

    /// Whether it accepts a node; a package without that function accepts all.
    ///
    /// # Safety
    /// All pointers in `config` must be valid.
    pub(super) unsafe fn validate(&self, config: Qnn_OpConfig_t) -> u64 {
        match &self.table {
            // SAFETY: a started package, and the caller's promise.
            Table::V1(table) => table.validateOpConfig.map_or(QNN_SUCCESS, |f| unsafe { f(config) }),
            // SAFETY: as above, with the handle that `create` gave.
            Table::V2(table, handle) => table.validateOpConfig.map_or(QNN_SUCCESS, |f| unsafe { f(*handle, config) }),
        }
    }

    /// Makes an op.
    ///
    /// # Safety
    /// `node` must be valid until what is made has been freed.
    pub(super) unsafe fn create(&self, node: QnnOpPackage_Node_t) -> Result<QnnOpPackage_OpImpl_t, u64> {
        let (nothing, mut made) = (std::ptr::null_mut(), std::ptr::null_mut());
        let code = match &self.table {
            // SAFETY: a started package, and the caller's promise; a graph has no infrastructure of its own here.
            Table::V1(table) => table.createOpImpl.map(|f| unsafe { f(nothing, node, &raw mut made) }),
            // SAFETY: as above, with the handle that `create` gave.
            Table::V2(table, handle) => table.createOpImpl.map(|f| unsafe { f(*handle, nothing, node, &raw mut made) }),
        };
        match code {
            Some(QNN_SUCCESS) => Ok(made),
            Some(code) => Err(code),
            None => Err(u64::from(qnn_sys::QNN_OP_PACKAGE_ERROR_UNSUPPORTED_FEATURE)),
        }
    }

    /// Frees an op.
    ///
    /// # Safety
    /// [`Package::create`] made it, and nothing uses it any more.
    pub(super) unsafe fn free(&self, made: QnnOpPackage_OpImpl_t) {
        let code = match &self.table {
            // SAFETY: a started package, and the caller's promise.
            Table::V1(table) => table.freeOpImpl.map(|f| unsafe { f(made) }),
            // SAFETY: as above, with the handle that `create` gave.
            Table::V2(table, handle) => table.freeOpImpl.map(|f| unsafe { f(*handle, made) }),
        };
        if let Some(code) = code.filter(|&code| code != QNN_SUCCESS) {
            eprintln!("op package `{}`: `freeOpImpl` failed with {code} ({})", self.name, qnn_sys::error::name(code));
        }
    }
}

impl Drop for Package {
    fn drop(&mut self) {
        let code = match &self.table {
            // SAFETY: started in `start`, and ended once, here.
            Table::V1(table) => table.terminate.map(|f| unsafe { f() }),
            // SAFETY: as above, with the handle that `create` gave.
            Table::V2(table, handle) => table.free.map(|f| unsafe { f(*handle) }),
        };
        if let Some(code) = code.filter(|&code| code != QNN_SUCCESS) {
            eprintln!("op package `{}` does not end: {code} ({})", self.name, qnn_sys::error::name(code));
        }
        if self.is_listed {
            LOADED.ended(self);
        }
    }
}

impl fmt::Debug for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Package").field("name", &self.name).field("ops", &self.ops).finish_non_exhaustive()
    }
}
