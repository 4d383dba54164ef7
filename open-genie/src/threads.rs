//! The embedded backend's threads: checked against this machine, written as the backend's platform options.

use std::ffi::CString;

use qnn_host::pool;

use crate::Error;
use crate::options::{Options, Pin};

/// Most threads of the embedded backend.
pub const MAX_THREADS: usize = qnn_host::pool::MAX_THREADS;

/// The threads of the embedded backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Threads {
    /// Number of threads, if given.
    count: Option<usize>,
    /// One core per thread; empty: not pinned.
    pin: Vec<usize>,
}

impl Threads {
    /// From the options; `mask` is the config's `cpu-mask`.
    pub(crate) fn new(options: &Options, mask: u64) -> Result<Self, Error> {
        let pin = match &options.pin {
            Pin::No => Vec::new(),
            Pin::Cores(cores) => checked(cores.clone(), &pool::cores(), "cores to pin threads to")?,
            Pin::OfConfig => checked(of_mask(mask), &pool::cores(), "`cpu-mask` of the config")?,
        };
        if let Some(n) = options.threads
            && !(1..=MAX_THREADS).contains(&n)
        {
            return Err(Error::ThreadCount { found: n, most: MAX_THREADS });
        }
        Ok(Self { count: options.threads, pin })
    }

    /// Number of threads, if the options set it; otherwise the backend uses one per core.
    pub fn count(&self) -> Option<usize> {
        self.count.or((!self.pin.is_empty()).then_some(self.pin.len()))
    }

    /// The cores that threads are pinned to; empty if they are not pinned.
    pub fn pin(&self) -> &[usize] {
        &self.pin
    }

    /// The backend's platform options; `None` for its defaults.
    pub(crate) fn platform(&self) -> Option<CString> {
        let count = self.count.map(|n| format!("host_threads:{n}"));
        let cores: Vec<String> = self.pin.iter().map(usize::to_string).collect();
        let pin = (!self.pin.is_empty()).then(|| format!("host_pin:{}", cores.join(",")));
        let all: Vec<String> = count.into_iter().chain(pin).collect();
        CString::new(all.join(";")).ok().filter(|text| !text.is_empty())
    }
}

/// The cores of a bit mask, lowest first.
fn of_mask(mask: u64) -> Vec<usize> {
    (0..64).filter(|bit| mask >> bit & 1 == 1).collect()
}

fn checked(pin: Vec<usize>, cores: &[usize], whose: &'static str) -> Result<Vec<usize>, Error> {
    if cores.is_empty() {
        return Err(Error::CoresUnknown);
    }
    let may = cores.to_vec();
    if pin.is_empty() {
        return Err(Error::NoCores { whose, may });
    }
    match pin.iter().find(|core| !cores.contains(core)) {
        None => Ok(pin),
        Some(&core) => Err(Error::CoreUnavailable { whose, core, may }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_become_platform_options() {
        let text = |count, pin: &[usize]| {
            Threads { count, pin: pin.to_vec() }.platform().map(|text| text.into_string().expect("ASCII"))
        };
        assert_eq!(text(None, &[]), None);
        assert_eq!(text(Some(2), &[]).as_deref(), Some("host_threads:2"));
        assert_eq!(text(None, &[1, 0]).as_deref(), Some("host_pin:1,0"));
        assert_eq!(text(Some(3), &[4]).as_deref(), Some("host_threads:3;host_pin:4"));
    }

    #[test]
    fn threads_are_counted_as_the_backend_counts() {
        let count = |count, pin: &[usize]| Threads { count, pin: pin.to_vec() }.count();
        assert_eq!([count(None, &[]), count(None, &[0, 5]), count(Some(3), &[0, 5])], [None, Some(2), Some(3)]);
    }

    #[test]
    fn cores_of_a_mask_and_those_that_are_missing() {
        assert_eq!(of_mask(0xe0), [5, 6, 7]);
        assert_eq!(of_mask(1 << 63 | 1), [0, 63]);
        let error = |pin: Vec<usize>, cores: &[usize]| checked(pin, cores, "pin").expect_err("rejected").to_string();
        assert_eq!(error(vec![0, 5], &[0, 1]), "pin: expected cores that this process may use (0-1), found core 5");
        assert_eq!(error(of_mask(0), &[0, 1]), "pin: expected at least one core, found none");
        assert!(error(vec![0], &[]).contains("does not list its cores"));
        assert_eq!(checked(vec![3, 1], &[1, 2, 3], "pin").expect("they exist"), [3, 1]);
    }
}
