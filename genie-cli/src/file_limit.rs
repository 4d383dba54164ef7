//! A file that reaches the limit of `ulimit -f` is an error like any other, instead of the end of the program.

/// Takes the signal that the system sends to a process whose file grows beyond its limit. The write then fails with a
/// reason, and what was begun is removed. Child processes are not concerned.
pub fn take_signal() {
    #[cfg(unix)]
    if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default()) {
        tracing::warn!(%error, "a file that reaches the limit of `ulimit -f` will end the program");
    }
}
