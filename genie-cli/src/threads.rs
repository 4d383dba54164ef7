//! `--threads` and `--pin`, checked against this machine and written as platform options of the embedded backend.

use std::ffi::CString;

use anyhow::Result;
use qnn_host::pool;

use crate::args::{PinArg, ThreadArgs};
use crate::failure::UserError;

/// The threads of the embedded backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Threads {
    /// Number of threads, if given.
    count: Option<usize>,
    /// One core per thread; empty: not pinned.
    pin: Vec<usize>,
}

impl Threads {
    /// From the flags; `mask` is the config's `cpu-mask`.
    pub fn new(args: &ThreadArgs, mask: u64) -> Result<Self> {
        let pin = match &args.pin {
            None => Vec::new(),
            Some(PinArg::Cores(cores)) => checked(cores.clone(), &pool::cores(), "--pin")?,
            Some(PinArg::Config) => checked(of_mask(mask), &pool::cores(), "`cpu-mask` of the config, for --pin")?,
        };
        Ok(Self { count: args.threads, pin })
    }

    /// Number of threads, if the flags set it; otherwise the backend uses one per core.
    pub fn count(&self) -> Option<usize> {
        self.count.or((!self.pin.is_empty()).then_some(self.pin.len()))
    }

    /// The cores that threads are pinned to; empty if they are not pinned.
    pub fn pin(&self) -> &[usize] {
        &self.pin
    }

    /// The backend's platform options; `None` if no flag is set.
    pub fn platform(&self) -> Option<CString> {
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

fn checked(pin: Vec<usize>, cores: &[usize], asked: &str) -> Result<Vec<usize>> {
    if cores.is_empty() {
        return Err(UserError::error("`--pin` needs a system that lists its cores, such as Linux", "remove `--pin`"));
    }
    let may = pool::shown(cores);
    if pin.is_empty() {
        return Err(UserError::error(
            format!("{asked}: expected at least one core, found none"),
            format!("choose from cores {may}"),
        ));
    }
    match pin.iter().find(|core| !cores.contains(core)) {
        None => Ok(pin),
        Some(core) => Err(UserError::error(
            format!("{asked}: expected cores that this process may use ({may}), found core {core}"),
            format!("choose from cores {may}, for example `--pin {}`, or remove `--pin`", cores[0]),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_platform_options() {
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
        let error = |pin: Vec<usize>, cores: &[usize]| checked(pin, cores, "--pin").expect_err("rejected").to_string();
        assert_eq!(error(vec![0, 5], &[0, 1]), "--pin: expected cores that this process may use (0-1), found core 5");
        assert_eq!(error(of_mask(0), &[0, 1]), "--pin: expected at least one core, found none");
        assert!(error(vec![0], &[]).contains("lists its cores"));
        assert_eq!(checked(vec![3, 1], &[1, 2, 3], "--pin").expect("they exist"), [3, 1]);
    }
}
