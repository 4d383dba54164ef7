//! The platform options of this backend: `key:value` pairs with `;` between. Those of other backends are passed over.
//!
//! | option | means |
//! |---|---|
//! | `host_threads:N` | threads of a run, the caller's included; 0 (as without it) is one for each core that may be used |
//! | `host_pin:A,B,..` | thread `i` of a run stays on the `i`-th of these cores (and round again); the caller's for the run only |

use qnn_sys as q;

use crate::error::{Component, Error};
use crate::pool::{self, MAX_THREADS};

/// How a backend's threads are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Platform {
    /// 0 means as many as there are cores.
    pub(super) threads: usize,
    /// Empty pins nothing.
    pub(super) pin: Vec<usize>,
}

impl Platform {
    /// Takes over the options of `text`; `cores` are those that exist for this process (see [`pool::cores`]).
    pub(super) fn read(&mut self, text: &str, cores: &[usize]) -> Result<(), Error> {
        for pair in text.split(';') {
            let Some((key, value)) = pair.split_once(':') else { continue };
            let value = value.trim();
            match key.trim() {
                "host_threads" => {
                    let n = value.parse().ok().filter(|n| *n <= MAX_THREADS);
                    self.threads =
                        n.ok_or_else(|| wrong(format!("`host_threads:` 0 to {MAX_THREADS}, found `{value}`")))?;
                }
                "host_pin" => self.pin = pin(value, cores)?,
                _ => {}
            }
        }
        Ok(())
    }
}

fn pin(value: &str, cores: &[usize]) -> Result<Vec<usize>, Error> {
    if cores.is_empty() {
        let what = "`host_pin` on a system that does not tell its cores".to_owned();
        return Err(Error::Unsupported { component: Component::Backend, what });
    }
    value
        .split(',')
        .map(|one| {
            let core = one.trim().parse().ok().filter(|core| cores.contains(core));
            core.ok_or_else(|| {
                let cores = pool::shown(cores);
                wrong(format!("`host_pin:` some of the cores {cores} that this process may use, found `{one}`"))
            })
        })
        .collect()
}

fn wrong(expected: String) -> Error {
    Error::Config {
        component: Component::Backend,
        option: q::QNN_BACKEND_CONFIG_OPTION_PLATFORM,
        what: format!("expected {expected}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_others_passed_over() {
        let read = |text: &str| {
            let mut platform = Platform::default();
            platform.read(text, &[0, 1, 2, 5]).map(|()| (platform.threads, platform.pin)).map_err(|e| e.to_string())
        };
        assert_eq!(read(""), Ok((0, vec![])));
        assert_eq!(read("key:value; host_threads:3 ;alone;:"), Ok((3, vec![])));
        assert_eq!(read("host_pin: 5, 0;host_threads:1"), Ok((1, vec![5, 0])));
        assert_eq!(read("host_threads:4;host_threads:2;host_pin:1,1"), Ok((2, vec![1, 1])), "the last one counts");
        let threads = |found: &str| {
            format!(
                "config option {}: expected `host_threads:` 0 to 1024, found `{found}`",
                q::QNN_BACKEND_CONFIG_OPTION_PLATFORM
            )
        };
        for found in ["", "x", "-1", "1025"] {
            assert_eq!(read(&format!("host_threads:{found}")), Err(threads(found)));
        }
        for (list, found) in [("0,3", "3"), ("", ""), ("0,,1", ""), ("0-2", "0-2"), ("-1", "-1")] {
            let error = read(&format!("host_pin:{list}")).expect_err(list);
            let end = format!("`host_pin:` some of the cores 0-2, 5 that this process may use, found `{found}`");
            assert!(error.ends_with(&end), "{error}");
        }
    }

    #[test]
    fn a_system_without_cores_pins_nothing() {
        let error = Platform::default().read("host_pin:0", &[]).expect_err("cannot");
        assert!(error.to_string().contains("does not tell its cores"), "{error}");
    }
}
