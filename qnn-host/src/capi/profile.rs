//! How long calls and their steps took, for clients with a profile handle.
//!
//! A profile holds the events of the last call it was given to: one for the whole call, and at level `DETAILED` one for
//! each step below it. An event id is `serial of the profile | generation | index + 1`, so a stale one is found out.

use std::ffi::{CString, c_char};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use qnn_sys as q;
use qnn_sys::{
    Qnn_BackendHandle_t, Qnn_ErrorHandle_t, Qnn_ProfileHandle_t, QnnProfile_Config_t, QnnProfile_EventData_t,
    QnnProfile_EventId_t, QnnProfile_ExtendedEventData_t, QnnProfile_Level_t,
};

use crate::error::{Component, Error};
use crate::exec::Profile as StepProfile;

use super::guard::{guard, set_error_log};
use super::log::Log;
use super::objects::{BACKENDS, PROFILES, find, take};
use super::{raw, trace};

const PROFILE: Component = Component::Profile;
const INDEX_BITS: u32 = 20;
const GENERATION_BITS: u32 = 12;

struct Event {
    kind: u32,
    name: CString,
    microseconds: u64,
}

#[derive(Default)]
struct Record {
    generation: u64,
    /// The first is the call, the others are its steps.
    events: Vec<Event>,
    ids: Vec<u64>,
    most: Option<u64>,
}

/// A client's profile.
pub(super) struct Profile {
    serial: u64,
    detailed: bool,
    log: Option<Arc<Log>>,
    record: Mutex<Record>,
}

static SERIAL: AtomicU64 = AtomicU64::new(1);

/// Times a call; given up without a trace when there is no profile.
pub(super) struct Timed<'a> {
    profile: &'a Profile,
    started: Instant,
    /// When the first step was reported: all are, once the work is done, so that reporting does not count as work.
    done: Option<Instant>,
    steps: Vec<Event>,
    /// Of the steps so far.
    nanoseconds: u64,
}

impl StepProfile for Timed<'_> {
    fn step(&mut self, name: &str, op: &str, elapsed_ns: u64) {
        self.done.get_or_insert_with(Instant::now);
        let name = CString::new(format!("{name}:{op}").replace('\0', "?")).unwrap_or_default();
        // From whole microsecond to whole microsecond, so that short steps add up to what they took.
        let before = self.nanoseconds / 1000;
        self.nanoseconds = self.nanoseconds.saturating_add(elapsed_ns);
        let microseconds = self.nanoseconds / 1000 - before;
        self.steps.push(Event { kind: q::QNN_PROFILE_EVENTTYPE_NODE, name, microseconds });
    }
}

impl Profile {
    pub(super) fn start(&self) -> Timed<'_> {
        Timed { profile: self, started: Instant::now(), done: None, steps: Vec::new(), nanoseconds: 0 }
    }
}

impl<'a> Timed<'a> {
    /// Where the steps go, if the client wants them.
    pub(super) fn steps(&mut self) -> Option<&mut dyn StepProfile> {
        if self.profile.detailed { Some(self) } else { None }
    }

    /// Ends the call: its events replace those of the one before.
    pub(super) fn finish(self, kind: u32, name: &str) {
        let took: Duration = self.done.unwrap_or_else(Instant::now) - self.started;
        let name = CString::new(name.replace('\0', "?")).unwrap_or_default();
        let mut record = self.profile.record.lock();
        record.generation = (record.generation + 1) % (1 << GENERATION_BITS);
        record.events.clear();
        record.events.push(Event { kind, name, microseconds: took.as_micros() as u64 });
        let most = record.most.unwrap_or(u64::MAX).min((1 << INDEX_BITS) - 2) as usize;
        record.events.extend(self.steps.into_iter().take(most.saturating_sub(1)));
        let base = self.profile.serial << (INDEX_BITS + GENERATION_BITS) | record.generation << INDEX_BITS;
        let n = record.events.len() as u64;
        record.ids = (1..=n).map(|i| base | i).collect();
    }
}

/// The profile of a handle, if there is one.
pub(super) fn asked(handle: Qnn_ProfileHandle_t) -> Result<Option<Arc<Profile>>, Error> {
    if handle.is_null() { Ok(None) } else { find(&PROFILES, handle).map(Some) }
}

/// Runs `body` under the profile of a handle, if there is one.
pub(super) fn timed(
    handle: Qnn_ProfileHandle_t,
    kind: u32,
    name: &str,
    body: impl FnOnce(Option<&mut dyn StepProfile>) -> Result<(), Error>,
) -> Result<(), Error> {
    timed_by(asked(handle)?, kind, name, body)
}

/// The same with a profile that was found: for what must not begin where its handle is bad.
pub(super) fn timed_by(
    profile: Option<Arc<Profile>>,
    kind: u32,
    name: &str,
    body: impl FnOnce(Option<&mut dyn StepProfile>) -> Result<(), Error>,
) -> Result<(), Error> {
    let Some(profile) = profile else { return body(None) };
    let mut timed = profile.start();
    body(timed.steps())?;
    timed.finish(kind, name);
    Ok(())
}

pub(super) unsafe extern "C" fn create(
    backend: Qnn_BackendHandle_t,
    level: QnnProfile_Level_t,
    out: *mut Qnn_ProfileHandle_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnProfile_create", || {
        trace::note(|| format!("level {level}"));
        let backend = find(&BACKENDS, backend)?;
        set_error_log(backend.log.as_ref());
        if !matches!(level, q::QNN_PROFILE_LEVEL_BASIC | q::QNN_PROFILE_LEVEL_DETAILED) {
            let what = format!("expected level BASIC (1) or DETAILED (2), found {level}");
            return Err(Error::Argument { component: PROFILE, what });
        }
        let profile = Profile {
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            detailed: level == q::QNN_PROFILE_LEVEL_DETAILED,
            log: backend.log.clone(),
            record: Mutex::default(),
        };
        let handle = PROFILES.add(Arc::new(profile));
        // SAFETY: QNN's contract: `out` is null or valid for writing.
        unsafe { raw::write(out, handle, PROFILE, "profile") }.inspect_err(|_| {
            PROFILES.remove(handle);
        })
    })
}

pub(super) unsafe extern "C" fn set_config(
    profile: Qnn_ProfileHandle_t,
    config: *mut *const QnnProfile_Config_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnProfile_setConfig", || {
        let profile = find(&PROFILES, profile)?;
        set_error_log(profile.log.as_ref());
        // SAFETY: QNN's contract: a null-terminated list.
        for option in unsafe { raw::list(config.cast_const(), PROFILE, "config") }? {
            match option.option {
                q::QNN_PROFILE_CONFIG_OPTION_CUSTOM => {}
                q::QNN_PROFILE_CONFIG_OPTION_MAX_EVENTS => {
                    // SAFETY: plain data, and the option decides which member it is.
                    let most = unsafe { option.anon0.numMaxEvents };
                    profile.record.lock().most = (most > 0).then_some(most);
                }
                // Optrace is for hardware traces; there are none, so asking for it changes nothing.
                q::QNN_PROFILE_CONFIG_OPTION_ENABLE_OPTRACE => {}
                option => {
                    let what = "expected 0 to 2".to_owned();
                    return Err(Error::Config { component: PROFILE, option, what });
                }
            }
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn get_events(
    profile: Qnn_ProfileHandle_t,
    ids: *mut *const QnnProfile_EventId_t,
    n: *mut u32,
) -> Qnn_ErrorHandle_t {
    guard("QnnProfile_getEvents", || {
        let profile = find(&PROFILES, profile)?;
        set_error_log(profile.log.as_ref());
        let record = profile.record.lock();
        // SAFETY: QNN's contract: both are null or valid for writing. The ids stay where they are until the next call
        // that is given this profile.
        unsafe { raw::write(ids, record.ids.as_ptr(), PROFILE, "profileEventIds") }?;
        // SAFETY: as above.
        unsafe { raw::write(n, record.ids.len().min(1) as u32, PROFILE, "numEvents") }
    })
}

/// The profile and index that an event id names.
fn event(id: QnnProfile_EventId_t) -> Result<(Arc<Profile>, usize), Error> {
    let stale = || Error::InvalidHandle { component: PROFILE, found: id as usize };
    let serial = id >> (INDEX_BITS + GENERATION_BITS);
    let profile = PROFILES.find_where(|p| p.serial == serial).ok_or_else(stale)?;
    let index = profile.record.lock().ids.iter().position(|&i| i == id).ok_or_else(stale)?;
    Ok((profile, index))
}

pub(super) unsafe extern "C" fn get_sub_events(
    id: QnnProfile_EventId_t,
    ids: *mut *const QnnProfile_EventId_t,
    n: *mut u32,
) -> Qnn_ErrorHandle_t {
    guard("QnnProfile_getSubEvents", || {
        let (profile, index) = event(id)?;
        let record = profile.record.lock();
        let below = if index == 0 { &record.ids[1..] } else { &[] };
        // SAFETY: QNN's contract: both are null or valid for writing.
        unsafe { raw::write(ids, below.as_ptr(), PROFILE, "subEventIds") }?;
        // SAFETY: as above.
        unsafe { raw::write(n, below.len() as u32, PROFILE, "numSubEvents") }
    })
}

pub(super) unsafe extern "C" fn get_event_data(
    id: QnnProfile_EventId_t,
    out: *mut QnnProfile_EventData_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnProfile_getEventData", || {
        let (kind, value, identifier) = data(id)?;
        let unit = q::QNN_PROFILE_EVENTUNIT_MICROSEC;
        let data = QnnProfile_EventData_t { r#type: kind, unit, value, identifier };
        // SAFETY: QNN's contract: `out` is null or valid for writing.
        unsafe { raw::write(out, data, PROFILE, "eventData") }
    })
}

pub(super) unsafe extern "C" fn get_extended_event_data(
    id: QnnProfile_EventId_t,
    out: *mut QnnProfile_ExtendedEventData_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnProfile_getExtendedEventData", || {
        let (kind, value, identifier) = data(id)?;
        let value = q::scalar!(q::QNN_DATATYPE_UINT_64, uint64Value, value);
        let v1 = q::QnnProfile_ExtendedEventDataV1_t {
            r#type: kind,
            unit: q::QNN_PROFILE_EVENTUNIT_MICROSEC,
            anon0: q::QnnProfile_ExtendedEventDataV1_t_anon0 { value },
            timestamp: 0,
            identifier,
        };
        let data = QnnProfile_ExtendedEventData_t {
            version: q::QNN_PROFILE_DATA_VERSION_1,
            anon0: q::QnnProfile_ExtendedEventData_t_anon0 { v1 },
        };
        // SAFETY: QNN's contract: `out` is null or valid for writing.
        unsafe { raw::write(out, data, PROFILE, "eventData") }
    })
}

fn data(id: QnnProfile_EventId_t) -> Result<(u32, u64, *const c_char), Error> {
    let (profile, index) = event(id)?;
    let record = profile.record.lock();
    let event = record.events.get(index).ok_or(Error::InvalidHandle { component: PROFILE, found: id as usize })?;
    Ok((event.kind, event.microseconds, event.name.as_ptr()))
}

pub(super) unsafe extern "C" fn free(profile: Qnn_ProfileHandle_t) -> Qnn_ErrorHandle_t {
    guard("QnnProfile_free", || take(&PROFILES, profile).map(drop))
}
