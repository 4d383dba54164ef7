//! SME outer products of bf16: one instruction adds to 16 x 16 sums the products along two numbers.
//!
//! At a streaming vector length of 512 bits there are four tiles of 16 x 16 sums (f32): `za0` and `za1` for the first panel of
//! activations and two groups of weights, `za2` and `za3` for the second panel. Both operands are `[16 pairs of k][16][2]` bf16, a
//! register for each pair. Products are added in f32, in the order of `k`; subnormal numbers count as 0. Other lengths are not used.
//!
//! *Streaming mode* and `ZA` are on inside one `asm!` block only, from `smstart` to `smstop`; all vector and predicate registers are
//! lost by that, and named as such. No Rust code, no call and no unwinding happens in between. A caller of ours may have its own
//! contents in `ZA` (that is how C compilers keep it over calls): [`Sme::tiles`] panics then, before anything is lost.
//!
//! *The vector length* is a thread's setting, which Linux begins with 256 bits where the CPU has that: [`Sme::tiles`] makes it 512 and
//! its guard puts the old one back.
//!
//! The unit is used where `GENIE_SME=1` asks for it: it was run in an emulator only, so that its speed is not known.

mod length;

use std::arch::asm;
use std::marker::PhantomData;
use std::sync::OnceLock;

use self::length::Length;
use super::super::switch::asked;
use super::matrix::{ASKED_LINES, Product, TILE_ROWS};
use super::neon::Neon;

/// The variable that turns the unit on.
const SWITCH: &str = "GENIE_SME";

/// Proof that the CPU has SME with products of bf16 and vectors of 512 bits, and bf16 conversions of NEON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sme(());

/// The thread's streaming vectors have 512 bits while it lives.
pub(crate) struct Tiles {
    _length: Length,
    /// It is of this thread.
    _thread: PhantomData<*mut ()>,
}

impl Sme {
    /// A short name for logs and test messages.
    pub(crate) fn name(self) -> &'static str {
        "sme"
    }

    /// Whether it computes layers of weights in blocks.
    pub(crate) fn takes_blocks(self) -> bool {
        true
    }

    /// The unit, if there is one, and `GENIE_SME=1` says that it is to be used.
    pub(crate) fn detect() -> Option<Self> {
        static FOUND: OnceLock<bool> = OnceLock::new();
        let found = FOUND.get_or_init(|| {
            asked(SWITCH) == Some(true) && length::cpu_has_products() && mode() == 0 && Length::set().is_some()
        });
        found.then_some(Self(()))
    }

    /// The vector unit beside it.
    pub(crate) fn float(self) -> Neon {
        // The base architecture has it.
        Neon(())
    }

    /// Sets this thread's vector length.
    ///
    /// # Panics
    /// When the thread is in streaming mode or `ZA` holds what a caller keeps there, or the length was taken away since detection.
    pub(crate) fn tiles(self) -> Tiles {
        assert_eq!(mode(), 0, "this thread keeps data in the matrix unit (SME): it cannot be used");
        let length = Length::set().expect("detection found that there are vectors of 512 bits");
        Tiles { _length: length, _thread: PhantomData }
    }
}

/// The register `SVCR`: bit 0 for streaming mode, bit 1 for `ZA`.
fn mode() -> u64 {
    let mode;
    // SAFETY: detection has found SME wherever this is called; the register may be read at any time.
    unsafe {
        asm!(".arch_extension sme", "mrs {mode}, svcr", mode = out(reg) mode, options(nomem, nostack, preserves_flags))
    };
    mode
}

/// An `asm!` block from `smstart` to `smstop`: all vector and predicate registers are lost in it, and the floating-point status.
macro_rules! streaming {
    ([$($line:expr),* $(,)?], $($operands:tt)*) => {
        asm!(
            ".arch_extension sme",
            "smstart",
            "ptrue p0.b",
            $($line,)*
            "smstop",
            $($operands)*
            out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _, out("v6") _, out("v7") _,
            out("v8") _, out("v9") _, out("v10") _, out("v11") _, out("v12") _, out("v13") _, out("v14") _, out("v15") _,
            out("v16") _, out("v17") _, out("v18") _, out("v19") _, out("v20") _, out("v21") _, out("v22") _, out("v23") _,
            out("v24") _, out("v25") _, out("v26") _, out("v27") _, out("v28") _, out("v29") _, out("v30") _, out("v31") _,
            out("p0") _, out("p1") _, out("p2") _, out("p3") _, out("p4") _, out("p5") _, out("p6") _, out("p7") _,
            out("p8") _, out("p9") _, out("p10") _, out("p11") _, out("p12") _, out("p13") _, out("p14") _, out("p15") _,
            out("ffr") _,
            options(nostack),
        )
    };
}

/// The loop over `k` for some of the tiles: a step is 16 pairs of numbers.
macro_rules! product {
    ($p:expr, [$($load:literal),*], [$($step:literal),*], [$($store:literal),*]) => {
        streaming!(
            [
                "zero {{za}}",
                "cbz {add}, 3f",
                "mov {at}, xzr",
                "mov w12, wzr",
                "2:",
                $($load,)*
                "add {at}, {at}, {stride}",
                "add w12, w12, #1",
                "cmp w12, #16",
                "b.ne 2b",
                "3:",
                "prfm pstl1keep, [{next}]",
                "prfm pstl1keep, [{next}, #64]",
                "prfm pstl1keep, [{next}, #128]",
                "prfm pstl1keep, [{next}, #192]",
                "add {next}, {next}, #{asked}",
                "mov w12, #16",
                "4:",
                $($step,)*
                "add {acts}, {acts}, #64",
                "add {weights}, {weights}, #64",
                "subs w12, w12, #1",
                "b.ne 4b",
                "add {acts}, {acts}, #1024",
                "add {weights}, {weights}, #1024",
                "subs {steps}, {steps}, #1",
                "b.ne 3b",
                "mov {at}, xzr",
                "mov w12, wzr",
                "5:",
                $($store,)*
                "add {at}, {at}, {stride}",
                "add w12, w12, #1",
                "cmp w12, #16",
                "b.ne 5b",
                "/* {s0} {s1} {s2} {s3} */",
            ],
            add = in(reg) u64::from($p.add),
            acts = inout(reg) $p.acts => _,
            weights = inout(reg) $p.weights => _,
            steps = inout(reg) $p.steps => _,
            s0 = in(reg) $p.sums[0],
            s1 = in(reg) $p.sums[1],
            s2 = in(reg) $p.sums[2],
            s3 = in(reg) $p.sums[3],
            stride = in(reg) $p.stride / 4,
            next = inout(reg) $p.next_sums => _,
            asked = const 64 * ASKED_LINES,
            at = out(reg) _,
            out("x12") _,
        )
    };
}

impl Tiles {
    /// The vector unit beside it.
    pub(crate) fn float(&self) -> Neon {
        // As above.
        Neon(())
    }

    /// Adds up the products of the first `panels` (1 or 2) panels of activations with the first `groups` (1 or 2) groups of weights.
    ///
    /// # Safety
    /// All operands are readable, sums writable, as [`Product`] describes them; tiles of activations are laid out as those of weights.
    pub(crate) unsafe fn multiply(&self, panels: usize, groups: usize, p: Product) {
        debug_assert!(p.steps > 0);
        // SAFETY: the caller promised the operands; vectors have 512 bits while `self` lives, so that a register is a pair of a tile
        // and `ZA` four tiles of sums; the unit exists, as only `Sme` makes `self`, and `ZA` was free then, as this thread still is.
        unsafe {
            match (panels, groups) {
                (2, 2) => product!(
                    p,
                    [
                        "ld1w {{za0h.s[w12, 0]}}, p0/z, [{s0}, {at}, lsl #2]",
                        "ld1w {{za1h.s[w12, 0]}}, p0/z, [{s1}, {at}, lsl #2]",
                        "ld1w {{za2h.s[w12, 0]}}, p0/z, [{s2}, {at}, lsl #2]",
                        "ld1w {{za3h.s[w12, 0]}}, p0/z, [{s3}, {at}, lsl #2]"
                    ],
                    [
                        "ldr z0, [{acts}]",
                        "ldr z1, [{acts}, #16, mul vl]",
                        "ldr z2, [{weights}]",
                        "ldr z3, [{weights}, #16, mul vl]",
                        "bfmopa za0.s, p0/m, p0/m, z0.h, z2.h",
                        "bfmopa za1.s, p0/m, p0/m, z0.h, z3.h",
                        "bfmopa za2.s, p0/m, p0/m, z1.h, z2.h",
                        "bfmopa za3.s, p0/m, p0/m, z1.h, z3.h"
                    ],
                    [
                        "st1w {{za0h.s[w12, 0]}}, p0, [{s0}, {at}, lsl #2]",
                        "st1w {{za1h.s[w12, 0]}}, p0, [{s1}, {at}, lsl #2]",
                        "st1w {{za2h.s[w12, 0]}}, p0, [{s2}, {at}, lsl #2]",
                        "st1w {{za3h.s[w12, 0]}}, p0, [{s3}, {at}, lsl #2]"
                    ]
                ),
                (1, 2) => product!(
                    p,
                    [
                        "ld1w {{za0h.s[w12, 0]}}, p0/z, [{s0}, {at}, lsl #2]",
                        "ld1w {{za1h.s[w12, 0]}}, p0/z, [{s1}, {at}, lsl #2]"
                    ],
                    [
                        "ldr z0, [{acts}]",
                        "ldr z2, [{weights}]",
                        "ldr z3, [{weights}, #16, mul vl]",
                        "bfmopa za0.s, p0/m, p0/m, z0.h, z2.h",
                        "bfmopa za1.s, p0/m, p0/m, z0.h, z3.h"
                    ],
                    [
                        "st1w {{za0h.s[w12, 0]}}, p0, [{s0}, {at}, lsl #2]",
                        "st1w {{za1h.s[w12, 0]}}, p0, [{s1}, {at}, lsl #2]"
                    ]
                ),
                (2, _) => product!(
                    p,
                    [
                        "ld1w {{za0h.s[w12, 0]}}, p0/z, [{s0}, {at}, lsl #2]",
                        "ld1w {{za2h.s[w12, 0]}}, p0/z, [{s2}, {at}, lsl #2]"
                    ],
                    [
                        "ldr z0, [{acts}]",
                        "ldr z1, [{acts}, #16, mul vl]",
                        "ldr z2, [{weights}]",
                        "bfmopa za0.s, p0/m, p0/m, z0.h, z2.h",
                        "bfmopa za2.s, p0/m, p0/m, z1.h, z2.h"
                    ],
                    [
                        "st1w {{za0h.s[w12, 0]}}, p0, [{s0}, {at}, lsl #2]",
                        "st1w {{za2h.s[w12, 0]}}, p0, [{s2}, {at}, lsl #2]"
                    ]
                ),
                _ => product!(
                    p,
                    ["ld1w {{za0h.s[w12, 0]}}, p0/z, [{s0}, {at}, lsl #2]"],
                    ["ldr z0, [{acts}]", "ldr z2, [{weights}]", "bfmopa za0.s, p0/m, p0/m, z0.h, z2.h"],
                    ["st1w {{za0h.s[w12, 0]}}, p0, [{s0}, {at}, lsl #2]"]
                ),
            }
        }
    }

    /// Multiplies in registers, as [`Self::multiply`] combines them, and returns how many operations that were: two for each product.
    pub(crate) fn rounds(&self, rounds: usize) -> u64 {
        // Ordinary numbers: 0.5 to 2 with many patterns of digits, as power and so the clock depend on them.
        let numbers: [u16; 128] = std::array::from_fn(|i| 0x3f00 | ((i * 0x9e37) >> 3) as u16 & 0x80ff);
        let rounds = rounds.max(1);
        // SAFETY: as in `multiply`; four registers of 64 bytes are read, which is the array.
        unsafe {
            streaming!(
                [
                    "zero {{za}}",
                    "ldr z0, [{numbers}]",
                    "ldr z1, [{numbers}, #1, mul vl]",
                    "ldr z2, [{numbers}, #2, mul vl]",
                    "ldr z3, [{numbers}, #3, mul vl]",
                    "2:",
                    "bfmopa za0.s, p0/m, p0/m, z0.h, z2.h",
                    "bfmopa za1.s, p0/m, p0/m, z0.h, z3.h",
                    "bfmopa za2.s, p0/m, p0/m, z1.h, z2.h",
                    "bfmopa za3.s, p0/m, p0/m, z1.h, z3.h",
                    "subs {rounds}, {rounds}, #1",
                    "b.ne 2b",
                ],
                numbers = in(reg) &numbers,
                rounds = inout(reg) rounds => _,
            );
        }
        (rounds * 4 * TILE_ROWS * TILE_ROWS * 2 * 2) as u64
    }
}

#[cfg(test)]
mod tests;
