//! The backend as its clients see it: everything here goes through the two exported tables.

#[cfg_attr(
    not(all(target_os = "linux", target_arch = "x86_64")),
    allow(dead_code, reason = "`package_params` alone uses some of it")
)]
mod client;
mod hostile;
mod lifecycle;
mod objects;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod package_params;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod package_validation;
mod parallel;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod recorder;
