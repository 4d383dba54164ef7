//! The C functions of `libGenie.so` behind safe types: the one place of this crate where `unsafe` is written.
//!
//! *Invariants*: handles are made by the library they are given to and freed once, in the order dialog, config, profile,
//! log. The library is never unloaded: its threads and the emulator's run until the process ends.
//! *Traps*: handles are hash-like numbers, not pointers. A dialog that is not freed makes the process crash at its end.
#![expect(unsafe_code, reason = "calls a C library; see the crate's head")]

use core::ffi::{CStr, c_char, c_void};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::codes::Sentence;
use super::error::GenieError;

/// An opaque handle of any kind.
type Handle = *const c_void;
type TokenCallback = unsafe extern "C" fn(*const u32, u32, i32, *const c_void);
type TextCallback = unsafe extern "C" fn(*const c_char, i32, *const c_void);
type AllocCallback = unsafe extern "C" fn(usize, *mut *const c_char);

/// The engine of a dialog of one.
const ROLE: &CStr = c"primary";

/// Declares the functions that are used, each with its symbol and signature.
macro_rules! functions {
    ($($name:ident = $symbol:literal ($($arg:ty),*) -> $ret:ty;)*) => {
        /// The functions, looked up once. Invariant: they belong to a library that stays loaded.
        struct Functions { $($name: unsafe extern "C" fn($($arg),*) -> $ret,)* }

        impl Functions {
            fn of(file: &libloading::Library, path: &Path) -> Result<Self, GenieError> {
                Ok(Self { $($name: {
                    let missing = |_| GenieError::Symbol { path: path.to_owned(), symbol: $symbol };
                    // SAFETY: the symbol has this signature in the measured ABI table of Genie 1.13 to 1.21, where the
                    // number of its arguments was compared with the machine code.
                    *unsafe { file.get::<unsafe extern "C" fn($($arg),*) -> $ret>($symbol) }.map_err(missing)?
                },)* })
            }
        }
    };
}

functions! {
    major = "Genie_getApiMajorVersion"() -> u32;
    minor = "Genie_getApiMinorVersion"() -> u32;
    patch = "Genie_getApiPatchVersion"() -> u32;
    config_create = "GenieDialogConfig_createFromJson"(*const c_char, *mut Handle) -> i32;
    config_bind_profiler = "GenieDialogConfig_bindProfiler"(Handle, Handle) -> i32;
    config_bind_logger = "GenieDialogConfig_bindLogger"(Handle, Handle) -> i32;
    config_free = "GenieDialogConfig_free"(Handle) -> i32;
    profile_create = "GenieProfile_create"(Handle, *mut Handle) -> i32;
    profile_json = "GenieProfile_getJsonData"(Handle, AllocCallback, *mut *const c_char) -> i32;
    profile_free = "GenieProfile_free"(Handle) -> i32;
    log_create = "GenieLog_create"(Handle, *const c_void, i32, *mut Handle) -> i32;
    log_free = "GenieLog_free"(Handle) -> i32;
    dialog_create = "GenieDialog_create"(Handle, *mut Handle) -> i32;
    dialog_token_query = "GenieDialog_tokenQuery"(Handle, *const u32, u32, i32, TokenCallback, *const c_void) -> i32;
    dialog_query = "GenieDialog_query"(Handle, *const c_char, i32, TextCallback, *const c_void) -> i32;
    dialog_reset = "GenieDialog_reset"(Handle) -> i32;
    dialog_save = "GenieDialog_save"(Handle, *const c_char) -> i32;
    dialog_restore = "GenieDialog_restore"(Handle, *const c_char) -> i32;
    dialog_apply_lora = "GenieDialog_applyLora"(Handle, *const c_char, *const c_char) -> i32;
    dialog_lora_strength = "GenieDialog_setLoraStrength"(Handle, *const c_char, *const c_char, f32) -> i32;
    dialog_set_max = "GenieDialog_setMaxNumTokens"(Handle, u32) -> i32;
    dialog_free = "GenieDialog_free"(Handle) -> i32;
}

/// How much the library says on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum LogLevel {
    /// Nothing but what it prints without a log.
    #[default]
    Off,
    /// Failures.
    Error = 1,
    /// Oddities.
    Warn = 2,
    /// What it does.
    Info = 3,
    /// Every graph that runs; slows it down severalfold.
    Verbose = 4,
}

/// The loaded library.
pub struct Genie {
    functions: Functions,
    path: PathBuf,
}

impl Genie {
    /// Loads it; helpers that lie beside it are loaded first. What C code prints goes to standard error from then on.
    ///
    /// # Errors
    /// No library, or one that lacks a function.
    pub fn open(path: &Path) -> Result<Self, GenieError> {
        // SAFETY: running the initialisers of the helpers beside it is what the caller asked for.
        unsafe { qnn_api::library::prepare(path) };
        // SAFETY: running the initialisers of Qualcomm's library is what the caller asked for.
        let file = unsafe { libloading::Library::new(path) };
        let file = file.map_err(|source| GenieError::Load { path: path.to_owned(), source })?;
        let functions = Functions::of(&file, path)?;
        // Its threads must not lose their code.
        std::mem::forget(file);
        Ok(Self { functions, path: path.to_owned() })
    }

    /// Version of the C interface.
    pub fn version(&self) -> [u32; 3] {
        let f = &self.functions;
        // SAFETY: three getters without arguments.
        unsafe { [(f.major)(), (f.minor)(), (f.patch)()] }
    }

    /// A dialog as the config's text says. Paths in it are relative to the current folder.
    ///
    /// # Errors
    /// The status of the call that failed; reasons are printed on standard error by the library.
    pub fn dialog(&self, config: &str, log: LogLevel) -> Result<Dialog<'_>, GenieError> {
        let text = CString::new(config).map_err(|_| GenieError::ZeroByte { what: "a config" })?;
        let f = &self.functions;
        let mut dialog = Dialog {
            raw: core::ptr::null(),
            config: core::ptr::null(),
            profile: core::ptr::null(),
            log: None,
            genie: self,
        };
        // SAFETY: a string and an out pointer, both of this frame.
        answered("GenieDialogConfig_createFromJson", unsafe {
            (f.config_create)(text.as_ptr(), &raw mut dialog.config)
        })?;
        // SAFETY: no config means the defaults; an out pointer.
        answered("GenieProfile_create", unsafe { (f.profile_create)(core::ptr::null(), &raw mut dialog.profile) })?;
        // SAFETY: two live handles.
        let bound = unsafe { (f.config_bind_profiler)(dialog.config, dialog.profile) };
        answered("GenieDialogConfig_bindProfiler", bound)?;
        if log != LogLevel::Off {
            let (none, mut raw) = (core::ptr::null(), core::ptr::null());
            // SAFETY: no config and no callback mean the library's own stream; an out pointer.
            answered("GenieLog_create", unsafe { (f.log_create)(none, none, log as i32, &raw mut raw) })?;
            dialog.log = Some(raw);
            // SAFETY: two live handles.
            answered("GenieDialogConfig_bindLogger", unsafe { (f.config_bind_logger)(dialog.config, raw) })?;
        }
        // SAFETY: a live config and an out pointer.
        answered("GenieDialog_create", unsafe { (f.dialog_create)(dialog.config, &raw mut dialog.raw) })?;
        Ok(dialog)
    }
}

impl core::fmt::Debug for Genie {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Genie").field("path", &self.path).field("version", &self.version()).finish()
    }
}

fn answered(call: &'static str, code: i32) -> Result<(), GenieError> {
    if code == 0 { Ok(()) } else { Err(GenieError::Call { call, code }) }
}

/// A dialog of the real library. Calls answer its status numbers ([`super::code_name`]).
///
/// Invariant: handles that are not null are live, made by `genie`; freed once, in `drop`.
pub struct Dialog<'g> {
    raw: Handle,
    config: Handle,
    profile: Handle,
    log: Option<Handle>,
    genie: &'g Genie,
}

/// What is called for tokens; the library may call it from a thread of its own, while the query waits.
type OnTokens<'a> = dyn FnMut(&[u32], i32) + Send + 'a;
/// What is called for text.
type OnText<'a> = dyn FnMut(&str, i32) + Send + 'a;

impl Dialog<'_> {
    /// Answers tokens.
    pub fn token_query(&mut self, tokens: &[u32], sentence: Sentence, mut each: &mut OnTokens<'_>) -> i32 {
        let n = u32::try_from(tokens.len()).expect("a prompt fits 32 bits");
        let user = (&raw mut each).cast::<c_void>().cast_const();
        // SAFETY: a live dialog, `n` tokens, and a callback whose user data lives until the call returns.
        unsafe {
            (self.genie.functions.dialog_token_query)(self.raw, tokens.as_ptr(), n, sentence as i32, hand_tokens, user)
        }
    }

    /// Answers text; text with a zero byte is cut there.
    pub fn query(&mut self, text: &str, sentence: Sentence, mut each: &mut OnText<'_>) -> i32 {
        let text = CString::new(text.split('\0').next().unwrap_or_default()).expect("cut at the first zero");
        let user = (&raw mut each).cast::<c_void>().cast_const();
        // SAFETY: a live dialog, a string, and a callback whose user data lives until the call returns.
        unsafe { (self.genie.functions.dialog_query)(self.raw, text.as_ptr(), sentence as i32, hand_text, user) }
    }

    /// Forgets the conversation.
    pub fn reset(&mut self) -> i32 {
        // SAFETY: a live dialog.
        unsafe { (self.genie.functions.dialog_reset)(self.raw) }
    }

    /// Most tokens of a reply, from now on.
    pub fn set_max_num_tokens(&mut self, n: u32) -> i32 {
        // SAFETY: a live dialog.
        unsafe { (self.genie.functions.dialog_set_max)(self.raw, n) }
    }

    /// Applies a LoRA adapter of the config.
    ///
    /// # Errors
    /// A name that C cannot take.
    pub fn apply_lora(&mut self, adapter: &str) -> Result<i32, GenieError> {
        let adapter = CString::new(adapter).map_err(|_| GenieError::ZeroByte { what: "an adapter" })?;
        // SAFETY: a live dialog and two strings.
        Ok(unsafe { (self.genie.functions.dialog_apply_lora)(self.raw, ROLE.as_ptr(), adapter.as_ptr()) })
    }

    /// Sets the strength that an input of the graphs has.
    ///
    /// # Errors
    /// A name that C cannot take.
    pub fn set_lora_strength(&mut self, alpha: &str, strength: f32) -> Result<i32, GenieError> {
        let alpha = CString::new(alpha).map_err(|_| GenieError::ZeroByte { what: "a strength" })?;
        // SAFETY: a live dialog and two strings; a number.
        Ok(unsafe { (self.genie.functions.dialog_lora_strength)(self.raw, ROLE.as_ptr(), alpha.as_ptr(), strength) })
    }

    /// Writes the conversation into a folder.
    ///
    /// # Errors
    /// A path that C cannot take.
    pub fn save(&mut self, folder: &Path) -> Result<i32, GenieError> {
        let path = path_text(folder)?;
        // SAFETY: a live dialog and a string.
        Ok(unsafe { (self.genie.functions.dialog_save)(self.raw, path.as_ptr()) })
    }

    /// Takes a conversation up from a folder.
    ///
    /// # Errors
    /// A path that C cannot take.
    pub fn restore(&mut self, folder: &Path) -> Result<i32, GenieError> {
        let path = path_text(folder)?;
        // SAFETY: a live dialog and a string.
        Ok(unsafe { (self.genie.functions.dialog_restore)(self.raw, path.as_ptr()) })
    }

    /// Creation and queries so far, as the library's JSON.
    ///
    /// # Errors
    /// The library's status.
    pub fn profile(&self) -> Result<String, GenieError> {
        let _alone = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut json = core::ptr::null();
        // SAFETY: a live profile, a callback that gives memory, an out pointer.
        let code = unsafe { (self.genie.functions.profile_json)(self.profile, give_memory, &raw mut json) };
        answered("GenieProfile_getJsonData", code)?;
        let bytes = std::mem::take(&mut *PROFILE.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(CStr::from_bytes_until_nul(&bytes)
            .map_or_else(|_| String::from_utf8_lossy(&bytes).into_owned(), |text| text.to_string_lossy().into_owned()))
    }
}

impl Drop for Dialog<'_> {
    fn drop(&mut self) {
        let f = &self.genie.functions;
        let all = [(self.raw, f.dialog_free), (self.config, f.config_free), (self.profile, f.profile_free)];
        let log = self.log.map(|log| (log, f.log_free));
        for (handle, free) in all.into_iter().chain(log).filter(|(handle, _)| !handle.is_null()) {
            // SAFETY: the type's invariant; each kind is freed before what was bound to it.
            let code = unsafe { free(handle) };
            if code != 0 {
                eprintln!("libGenie frees with {code} ({})", super::code_name(code));
            }
        }
    }
}

fn path_text(path: &Path) -> Result<CString, GenieError> {
    CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| GenieError::ZeroByte { what: "a path" })
}

/// # Safety
/// `user` is what `token_query` gave; `tokens` are `n` or null.
unsafe extern "C" fn hand_tokens(tokens: *const u32, n: u32, sentence: i32, user: *const c_void) {
    // SAFETY: `token_query` waits with this value in its frame, and calls do not overlap.
    let each = unsafe { &mut *user.cast_mut().cast::<&mut OnTokens<'_>>() };
    let tokens = if tokens.is_null() || n == 0 {
        &[]
    } else {
        // SAFETY: the library's promise: `n` tokens that live during the call.
        unsafe { core::slice::from_raw_parts(tokens, n as usize) }
    };
    each(tokens, sentence);
}

/// # Safety
/// `user` is what `query` gave; `text` is a C string or null.
unsafe extern "C" fn hand_text(text: *const c_char, sentence: i32, user: *const c_void) {
    // SAFETY: `query` waits with this value in its frame, and calls do not overlap.
    let each = unsafe { &mut *user.cast_mut().cast::<&mut OnText<'_>>() };
    let text = if text.is_null() {
        std::borrow::Cow::Borrowed("")
    } else {
        // SAFETY: the library's promise: a C string that lives during the call.
        unsafe { CStr::from_ptr(text) }.to_string_lossy()
    };
    each(&text, sentence);
}

/// Held while a profile is asked for: the callback has no user data, so there is one place for its memory.
static ASKING: Mutex<()> = Mutex::new(());
/// Memory for the profile text that is asked for.
static PROFILE: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// # Safety
/// `out` may be written.
unsafe extern "C" fn give_memory(n: usize, out: *mut *const c_char) {
    let mut memory = PROFILE.lock().unwrap_or_else(PoisonError::into_inner);
    *memory = vec![0; n];
    // SAFETY: the library's out pointer. Writing through what it is given is what the library asks memory for, so the
    // address comes from a mutable borrow; it stays in place until `profile` takes it.
    unsafe { out.write(memory.as_mut_ptr().cast::<c_char>().cast_const()) };
}
