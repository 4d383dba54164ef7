//! The cache's byte moves side by side with `memcpy`: each repetition times a move, then a block copy of as many bytes,
//! so that both see the same machine however busy it is. Medians, and the ratio of each pair's median.
//!
//! For an append of one token a third column copies the bytes of the cache lines that it writes: the least that memory
//! has to do for it. `KV_BENCH_ONLY=append` keeps the operations whose name holds that word.

mod cases;

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Time for the pairs of one row.
const BUDGET: Duration = Duration::from_millis(700);

/// A block copy of `bytes`, in seconds; short ones are repeated, so that the clock's own time does not count.
struct Memcpy {
    src: Vec<u8>,
    dst: Vec<u8>,
}

impl Memcpy {
    fn new(bytes: usize) -> Self {
        Self { src: vec![1; bytes], dst: vec![0; bytes] }
    }

    fn time(&mut self) -> f64 {
        let times = (65_536 / self.src.len().max(1)).max(1);
        let start = Instant::now();
        for _ in 0..times {
            black_box(&mut self.dst).copy_from_slice(black_box(&self.src));
        }
        start.elapsed().as_secs_f64() / times as f64
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The ratio that is asked for: appends within 1.3, changes of shape within 1.5, by one thread in the default mode.
fn asked(op: &str, who: &str) -> Option<f64> {
    match op.split(' ').next() {
        _ if who != "smart-mask" => None,
        Some("append") => Some(1.3),
        Some("switch" | "CL") => Some(1.5),
        _ => None,
    }
}

fn main() {
    let only = std::env::var("KV_BENCH_ONLY").unwrap_or_default();
    let dir = tempfile::tempdir().expect("a folder for snapshots");
    println!("| operation | how | model | MiB | us | memcpy us | ratio | of its cache lines |");
    println!("|---|---|---|---|---|---|---|---|");
    let (mut n, mut n_met) = (0, 0);
    for model in &cases::models() {
        for mut case in cases::cases(model, dir.path(), &only) {
            let target = asked(case.op, case.who);
            let mut memcpy = Memcpy::new(case.bytes);
            let mut lines = case.lines_bytes.map(Memcpy::new);
            let [mut own, mut block, mut touched, mut ratios] = [const { Vec::new() }; 4];
            let start = Instant::now();
            while own.len() < 15 || (start.elapsed() < BUDGET && own.len() < 500) {
                let begin = Instant::now();
                (case.run)(&mut case.kv);
                let took = begin.elapsed().as_secs_f64();
                (case.reset)(&mut case.kv);
                own.push(took);
                block.push(memcpy.time());
                ratios.push(took / block[block.len() - 1]);
                touched.extend(lines.as_mut().map(Memcpy::time));
            }
            let (us, ratio) = (median(&mut own) * 1e6, median(&mut ratios));
            let asked = target.map_or_else(String::new, |t| format!(" (asked: {t})"));
            let of_lines = if touched.is_empty() {
                String::new()
            } else {
                format!("{:.2} of {:.1} us", us / (median(&mut touched) * 1e6), median(&mut touched) * 1e6)
            };
            n += usize::from(target.is_some());
            n_met += usize::from(target.is_some_and(|t| ratio <= t));
            println!(
                "| {} | {} | {} | {:.2} | {us:.1} | {:.1} | {ratio:.2}{asked} | {of_lines} |",
                case.op,
                case.who,
                model.name,
                case.bytes as f64 / f64::from(1 << 20),
                median(&mut block) * 1e6,
            );
        }
    }
    println!("\n{n_met} of {n} rows with a ratio asked for are within it");
}
