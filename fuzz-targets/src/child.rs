//! The child's side: inputs one after the other, each written to a file before it is tried.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fuzz_targets::{Rng, Target, mutate, seeds};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Address space of a child, in bytes.
const MEMORY: u64 = 4 << 30;
/// Longest time for one input.
const LONGEST: Duration = Duration::from_secs(10);

/// Tries inputs for some seconds; prints their number.
pub fn run(target: &Target, seed: u64, seconds: u64, current: &Path) -> Result<()> {
    setrlimit(Resource::As, Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) })
        .context("cannot bound the memory")?;
    let seeds = seeds::read(target.name).context("cannot read the seeds")?;
    let mut rng = Rng::new(seed);
    let begun = Instant::now();
    let tried = Arc::new(AtomicU64::new(0));
    watch(Arc::clone(&tried));
    while begun.elapsed() < Duration::from_secs(seconds) {
        let input = mutate::mutate(target.form, &seeds, &mut rng);
        std::fs::write(current, &input).with_context(|| format!("cannot write `{}`", current.display()))?;
        (target.run)(&input);
        tried.fetch_add(1, Ordering::Relaxed);
    }
    println!("{}", tried.load(Ordering::Relaxed));
    Ok(())
}

/// Ends the process when one input takes too long.
fn watch(tried: Arc<AtomicU64>) {
    std::thread::spawn(move || {
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            std::thread::sleep(Duration::from_millis(200));
            let now = tried.load(Ordering::Relaxed);
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() > LONGEST {
                eprintln!("an input takes longer than {} s", LONGEST.as_secs());
                std::process::exit(3);
            }
        }
    });
}
