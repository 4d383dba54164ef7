//! What this machine can do at most, measured with the units and threads that the kernels run on.
//!
//! *Units*: bytes/s and operations/s, all threads together; a multiply-add is two operations. Each measure returns
//! the rate of every pass: the best one is the limit, the spread shows how quiet the machine is.
//!
//! *Traps*: other work on the machine lowers what is found. Memory of one NUMA node is read, the caller's.

use std::hint::black_box;
use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use memmap2::MmapMut;

use crate::kernels::{Isa, roofline};
use crate::pool::{Pool, PoolOptions, Worker};

/// Least memory that [`Limits::read_bandwidth`] reads in a pass.
const LEAST_READ_BYTES: usize = 256 << 20;
/// How often the last-level cache must fit into it.
const CACHES: usize = 8;
/// Time that a pass of arithmetic takes, at least.
const PASS: Duration = Duration::from_millis(10);

/// Threads to measure with.
#[derive(Debug)]
pub struct Limits {
    pool: Pool,
    isa: Isa,
}

/// Memory for [`Limits::read_bandwidth`], far larger than the caches; make it once for all numbers of threads.
///
/// Invariant: whole numbers, all written.
pub struct ReadMemory(MmapMut);

impl ReadMemory {
    /// Memory of eight times the last-level cache, and 256 MiB at least; in large pages where the system has them.
    ///
    /// # Errors
    /// When there is not as much.
    pub fn new() -> io::Result<Self> {
        Self::of(last_cache_bytes().saturating_mul(CACHES).max(LEAST_READ_BYTES))
    }

    fn of(bytes: usize) -> io::Result<Self> {
        let mut memory = MmapMut::map_anon(bytes.next_multiple_of(4096))?;
        // A wish: without it, pages are small, and all else is the same.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage);
        // Not zeros: pages that were never written may all be one. As numbers, these are ordinary ones.
        memory.fill(0x3C);
        Ok(Self(memory))
    }

    /// Bytes of a pass.
    pub fn size_bytes(&self) -> usize {
        self.0.len()
    }

    fn numbers(&self) -> &[f32] {
        let bytes: &[u8] = &self.0;
        // SAFETY: a mapping begins at a page, has whole numbers (the invariant), and every pattern of bits is one; it is
        // borrowed for as long.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<f32>()) }
    }
}

impl Limits {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system refuses one.
    pub fn new(threads: usize) -> io::Result<Self> {
        Ok(Self { pool: Pool::new(&PoolOptions { threads, ..PoolOptions::default() })?, isa: Isa::detect() })
    }

    /// Threads that take part.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Bytes/s of reading in order, each thread its own part; in the best of three ways: without asking for lines ahead, and
    /// asking in two.
    pub fn read_bandwidth(&self, memory: &ReadMemory, passes: usize) -> Vec<f64> {
        let numbers = memory.numbers();
        let ways = [roofline::read, roofline::read_ahead, roofline::read_ahead_twice].map(|read| {
            self.passes(passes, &|worker| {
                let part = &numbers[worker.share(numbers.len(), 1024)];
                black_box(read(self.isa, part));
                size_of_val(part) as u64
            })
        });
        ways.into_iter().max_by(|a, b| best(a).total_cmp(&best(b))).unwrap_or_default()
    }

    /// Operations/s on products of 8-bit integers.
    pub fn int8_ops(&self, passes: usize) -> Vec<f64> {
        self.arithmetic(passes, &|rounds| {
            roofline::products(self.isa, black_box(&mut roofline::Operands::new()), rounds)
        })
    }

    /// Operations/s of a matrix unit on 8-bit integers; `None` where there is none.
    pub fn int8_tile_ops(&self, passes: usize) -> Option<Vec<f64>> {
        self.tile_ops(true, passes)
    }

    /// Operations/s of a matrix unit on bf16, which prompts are computed with; `None` where there is none.
    pub fn bf16_tile_ops(&self, passes: usize) -> Option<Vec<f64>> {
        self.tile_ops(false, passes)
    }

    fn tile_ops(&self, int8: bool, passes: usize) -> Option<Vec<f64>> {
        roofline::tiles(self.isa, int8, 1)?;
        Some(self.arithmetic(passes, &|rounds| roofline::tiles(self.isa, int8, 256 * rounds).unwrap_or(0)))
    }

    /// Operations/s on f32 multiply-adds.
    pub fn f32_ops(&self, passes: usize) -> Vec<f64> {
        self.arithmetic(passes, &|rounds| black_box(roofline::multiply_adds(self.isa, rounds)).0)
    }

    /// Finds how many rounds take long enough, and runs as many on each thread.
    fn arithmetic(&self, passes: usize, run: &(dyn Fn(usize) -> u64 + Sync)) -> Vec<f64> {
        let took = |rounds: &usize| {
            let began = Instant::now();
            black_box(run(*rounds));
            began.elapsed()
        };
        let doubling = std::iter::successors(Some(1usize), |n| n.checked_mul(2));
        let rounds = doubling.into_iter().find(|rounds| took(rounds) >= PASS).unwrap_or(1);
        self.passes(passes, &|_| run(rounds))
    }

    /// Runs `body` on all threads, once uncounted and `passes` times more, and returns the rate of each.
    fn passes(&self, passes: usize, body: &(dyn Fn(Worker<'_>) -> u64 + Sync)) -> Vec<f64> {
        let rates = Mutex::new(Vec::with_capacity(passes));
        let done = Mutex::new(0);
        self.pool.run(&|worker| {
            for pass in 0..=passes {
                worker.barrier();
                let began = Instant::now();
                let mine = body(worker);
                *lock(&done) += mine;
                worker.barrier();
                let took = began.elapsed().as_secs_f64();
                if worker.index() == 0 {
                    let all = std::mem::take(&mut *lock(&done));
                    if pass > 0 {
                        lock(&rates).push(all as f64 / took);
                    }
                }
            }
        });
        rates.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ReadMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReadMemory({} bytes)", self.size_bytes())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn best(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(0.0, f64::max)
}

/// Size of the largest cache of the first core, as Linux reports it; 0 where it does not.
fn last_cache_bytes() -> usize {
    let size = |index: usize| {
        let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()?;
        let text = text.trim();
        let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let shift = match unit {
            "K" => 10,
            "M" => 20,
            "G" => 30,
            _ => 0,
        };
        digits.parse::<usize>().ok()?.checked_shl(shift)
    };
    (0..8).filter_map(size).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pass_of_every_limit_has_a_rate() {
        let memory = ReadMemory::of(1 << 18).expect("memory");
        for threads in [1, 3] {
            let limits = Limits::new(threads).expect("threads start");
            let tiles = [limits.int8_tile_ops(2), limits.bf16_tile_ops(2)].into_iter().flatten();
            for rates in tiles.chain([limits.read_bandwidth(&memory, 2), limits.int8_ops(2), limits.f32_ops(2)]) {
                assert_eq!(rates.len(), 2);
                assert!(rates.iter().all(|r| r.is_finite() && *r > 0.0), "{rates:?}");
            }
        }
    }
}
