//! AMX tiles of bf16: 16 x 16 sums of products along 32 numbers in one instruction.
//!
//! There are eight tile registers, each of 16 rows of 64 bytes. `tmm0..3` hold sums (f32), `tmm4` and `tmm5` rows of activations
//! (`[16][32]` bf16), `tmm6` and `tmm7` weights (`[16 pairs of k][16 outputs][2]` bf16). Products are added in f32, in the order of
//! `k`; subnormal numbers count as 0. For products of bytes two sets of registers hold sums (i32), activations and weights: `tmm0`, `4`, `6` and `tmm1`,
//! `5`, `7` ([`ByteTiles`]).
//!
//! The kernel must permit a process to use tiles, once ([`Amx::detect`]). Their shape is a thread's state: [`Amx::tiles`] or
//! [`Amx::byte_tiles`] sets it and the guard releases it, so that threads that do not multiply have no large state to switch.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::marker::PhantomData;
use std::sync::OnceLock;

use super::super::switch::asked;
use super::avx512_bf16::Avx512Bf16;
use super::matrix::{ASKED_ACTS, ASKED_LINES, Product, TILE_BYTES, TILE_K, TILE_ROWS};

/// The variable that turns the unit off.
const SWITCH: &str = "GENIE_AMX";

/// Proof that the CPU has AMX with bf16, AVX-512 with bf16 beside it, and that the kernel lets this process use tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amx(());

/// Tiles are shaped on this thread while it lives.
pub(crate) struct Tiles(PhantomData<*mut ()>);

/// The same, of shapes for products of bytes.
pub(crate) struct ByteTiles(Tiles);

impl Amx {
    /// A short name for logs and test messages.
    pub(crate) const NAME: &str = "amx";

    /// The unit, if there is one that may be used; `GENIE_AMX=0` says that it may not, as does what turns off [`Avx512Bf16`].
    pub(crate) fn detect() -> Option<Self> {
        static FOUND: OnceLock<bool> = OnceLock::new();
        let found = FOUND.get_or_init(|| {
            asked(SWITCH) != Some(false) && Avx512Bf16::detect().is_some() && cpu_has_tiles() && kernel_permits()
        });
        found.then_some(Self(()))
    }

    /// Shapes this thread's tiles: all of 16 rows of 64 bytes.
    pub(crate) fn tiles(self) -> Tiles {
        self.shaped([(TILE_ROWS, 64); 8])
    }

    /// Shapes them for sums of `rows` (up to 16) rows with 16 outputs, of products along `k` (a multiple of 4, up to 64) bytes.
    pub(crate) fn byte_tiles(self, rows: usize, k: usize) -> ByteTiles {
        let (sums, acts, weights) = ((rows, 64), (rows, k), (k / 4, 64));
        ByteTiles(self.shaped([sums, sums, sums, sums, acts, acts, weights, weights]))
    }

    /// Shapes tiles, each by its rows and the bytes of a row.
    fn shaped(self, shapes: [(usize, usize); 8]) -> Tiles {
        #[repr(C, align(64))]
        struct Config([u8; 64]);
        let mut config = Config([0; 64]);
        config.0[0] = 1;
        for (tile, (rows, bytes)) in shapes.into_iter().enumerate() {
            assert!(
                (1..=TILE_ROWS).contains(&rows) && (1..=64).contains(&bytes),
                "a tile of {rows} rows of {bytes} bytes"
            );
            config.0[16 + 2 * tile] = bytes as u8;
            config.0[48 + tile] = rows as u8;
        }
        // SAFETY: `self` proves that the instruction exists and is permitted; the 64 bytes are a valid shape (palette 1).
        unsafe { asm!("ldtilecfg [{}]", in(reg) &config, options(nostack, readonly, preserves_flags)) };
        Tiles(PhantomData)
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: this thread shaped its tiles; their contents are not used any more.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

/// The loop over `k` for some of the tiles: what is asked for goes between products. Activations pass through once, so they are loaded in a
/// way that leaves the weights in the first-level cache (`tileloaddt1`).
macro_rules! product {
    ($p:expr, [$($zero:literal),*], [$($load:literal),*], [$($first:literal),*], [$($rest:literal),*], [$($store:literal),*]) => {
        asm!(
            "test {add:e}, {add:e}",
            "jnz 3f",
            $($zero,)*
            "jmp 2f",
            "3:",
            $($load,)*
            "2:",
            $($first,)*
            "prefetchw [{next}]",
            "prefetchw [{next} + 64]",
            "prefetchw [{next} + 128]",
            "prefetchw [{next} + 192]",
            "prefetcht1 [{ahead}]",
            "prefetcht1 [{ahead} + 64]",
            "prefetcht1 [{ahead} + 128]",
            $($rest,)*
            "add {next}, {asked}",
            "add {ahead}, {asked_acts}",
            "add {acts}, 2048",
            "add {weights}, 2048",
            "dec {steps}",
            "jnz 2b",
            $($store,)*
            "/* {s0} {s1} {s2} {s3} {stride} {line} */",
            add = in(reg) u32::from($p.add),
            acts = inout(reg) $p.acts => _,
            weights = inout(reg) $p.weights => _,
            steps = inout(reg) $p.steps => _,
            s0 = in(reg) $p.sums[0],
            s1 = in(reg) $p.sums[1],
            s2 = in(reg) $p.sums[2],
            s3 = in(reg) $p.sums[3],
            stride = in(reg) $p.stride,
            next = inout(reg) $p.next_sums => _,
            ahead = inout(reg) $p.next_acts => _,
            line = in(reg) 64usize,
            asked = const 64 * ASKED_LINES,
            asked_acts = const 64 * ASKED_ACTS,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

impl Tiles {
    /// Adds up the products of the first `panels` (1 or 2) panels of activations with the first `groups` (1 or 2) groups of weights.
    ///
    /// # Safety
    /// All operands are readable, sums writable, as [`Product`] describes them.
    pub(crate) unsafe fn multiply(&self, panels: usize, groups: usize, p: Product) {
        debug_assert!(p.steps > 0);
        // SAFETY: the caller promised the operands; tiles are shaped while `self` lives; the unit exists, as only `Amx` makes it.
        unsafe {
            match (panels, groups) {
                (2, 2) => product!(
                    p,
                    ["tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3"],
                    [
                        "tileloadd tmm0, [{s0} + {stride}]",
                        "tileloadd tmm1, [{s1} + {stride}]",
                        "tileloadd tmm2, [{s2} + {stride}]",
                        "tileloadd tmm3, [{s3} + {stride}]"
                    ],
                    [
                        "tileloadd tmm6, [{weights} + {line}]",
                        "tileloaddt1 tmm4, [{acts} + {line}]",
                        "tileloadd tmm7, [{weights} + {line} + 1024]",
                        "tileloaddt1 tmm5, [{acts} + {line} + 1024]",
                        "tdpbf16ps tmm0, tmm4, tmm6"
                    ],
                    ["tdpbf16ps tmm1, tmm4, tmm7", "tdpbf16ps tmm2, tmm5, tmm6", "tdpbf16ps tmm3, tmm5, tmm7"],
                    [
                        "tilestored [{s0} + {stride}], tmm0",
                        "tilestored [{s1} + {stride}], tmm1",
                        "tilestored [{s2} + {stride}], tmm2",
                        "tilestored [{s3} + {stride}], tmm3"
                    ]
                ),
                (1, 2) => product!(
                    p,
                    ["tilezero tmm0", "tilezero tmm1"],
                    ["tileloadd tmm0, [{s0} + {stride}]", "tileloadd tmm1, [{s1} + {stride}]"],
                    [
                        "tileloadd tmm6, [{weights} + {line}]",
                        "tileloaddt1 tmm4, [{acts} + {line}]",
                        "tileloadd tmm7, [{weights} + {line} + 1024]",
                        "tdpbf16ps tmm0, tmm4, tmm6"
                    ],
                    ["tdpbf16ps tmm1, tmm4, tmm7"],
                    ["tilestored [{s0} + {stride}], tmm0", "tilestored [{s1} + {stride}], tmm1"]
                ),
                (2, _) => product!(
                    p,
                    ["tilezero tmm0", "tilezero tmm2"],
                    ["tileloadd tmm0, [{s0} + {stride}]", "tileloadd tmm2, [{s2} + {stride}]"],
                    [
                        "tileloadd tmm6, [{weights} + {line}]",
                        "tileloaddt1 tmm4, [{acts} + {line}]",
                        "tileloaddt1 tmm5, [{acts} + {line} + 1024]",
                        "tdpbf16ps tmm0, tmm4, tmm6"
                    ],
                    ["tdpbf16ps tmm2, tmm5, tmm6"],
                    ["tilestored [{s0} + {stride}], tmm0", "tilestored [{s2} + {stride}], tmm2"]
                ),
                _ => product!(
                    p,
                    ["tilezero tmm0"],
                    ["tileloadd tmm0, [{s0} + {stride}]"],
                    [
                        "tileloadd tmm6, [{weights} + {line}]",
                        "tileloaddt1 tmm4, [{acts} + {line}]",
                        "tdpbf16ps tmm0, tmm4, tmm6"
                    ],
                    [],
                    ["tilestored [{s0} + {stride}], tmm0"]
                ),
            }
        }
    }
}

impl ByteTiles {
    /// Begins the sums of register set `SET` (0 or 1): products of signed bytes, the rows of activations, `stride` bytes apart, with
    /// `[k / 4][16 outputs][4]` weights. Of two sets one can be stored while the other is computed.
    ///
    /// # Safety
    /// The operands are readable.
    #[inline(always)]
    pub(crate) unsafe fn multiply<const SET: usize>(&self, acts: *const u8, stride: usize, weights: *const u8) {
        macro_rules! product {
            ($sums:tt, $acts:tt, $weights:tt) => {
                asm!(
                    concat!("tilezero ", $sums),
                    concat!("tileloadd ", $acts, ", [{acts} + {stride}]"),
                    concat!("tileloadd ", $weights, ", [{weights} + {line}]"),
                    concat!("tdpbssd ", $sums, ", ", $acts, ", ", $weights),
                    acts = in(reg) acts,
                    stride = in(reg) stride,
                    weights = in(reg) weights,
                    line = in(reg) 64usize,
                    out($sums) _,
                    out($acts) _,
                    out($weights) _,
                    options(nostack, readonly, preserves_flags),
                )
            };
        }
        // SAFETY: the caller promised the operands; tiles are shaped while `self` lives; the unit exists, as only `Amx` makes it. No compiled code
        // uses tile registers beside these functions, so their contents stay from one to the other.
        unsafe {
            match SET {
                0 => product!("tmm0", "tmm4", "tmm6"),
                _ => product!("tmm1", "tmm5", "tmm7"),
            }
        }
    }

    /// Stores the sums of register set `SET`, `[rows][16]` i32.
    ///
    /// # Safety
    /// The sums are writable at `to`.
    #[inline(always)]
    pub(crate) unsafe fn store<const SET: usize>(&self, to: *mut i32) {
        macro_rules! store {
            ($sums:literal) => {
                asm!(
                    concat!("tilestored [{to} + {line}], ", $sums),
                    to = in(reg) to,
                    line = in(reg) 64usize,
                    options(nostack, preserves_flags),
                )
            };
        }
        // SAFETY: the caller promised the sums; the rest as in `multiply`.
        unsafe {
            match SET {
                0 => store!("tmm0"),
                _ => store!("tmm1"),
            }
        }
    }
}

/// Operands of [`Tiles::rounds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operands {
    /// Signed bytes, 64 along `k`.
    Int8,
    /// bf16, 32 along `k`.
    Bf16,
}

impl Tiles {
    /// Multiplies tiles in registers, as [`Self::multiply`] combines them, and returns how many operations that were: two for each
    /// product.
    pub(crate) fn rounds(&self, operands: Operands, rounds: usize) -> u64 {
        // Ordinary numbers in either form: 0.5 to 2 with many patterns of digits, as power and so the clock depend on them.
        let tile: [u16; TILE_BYTES] = std::array::from_fn(|i| 0x3f00 | ((i * 0x9e37) >> 3) as u16 & 0x80ff);
        macro_rules! run {
            ($product:literal) => {
                asm!(
                    "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                    "tileloadd tmm4, [{tile} + {line}]",
                    "tileloadd tmm5, [{tile} + {line} + 256]",
                    "tileloadd tmm6, [{tile} + {line} + 512]",
                    "tileloadd tmm7, [{tile} + {line} + 768]",
                    "2:",
                    concat!($product, " tmm0, tmm4, tmm6"),
                    concat!($product, " tmm1, tmm4, tmm7"),
                    concat!($product, " tmm2, tmm5, tmm6"),
                    concat!($product, " tmm3, tmm5, tmm7"),
                    "dec {rounds}",
                    "jnz 2b",
                    tile = in(reg) &tile,
                    line = in(reg) 64usize,
                    rounds = inout(reg) rounds.max(1) => _,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack, readonly),
                )
            };
        }
        // SAFETY: tiles are shaped while `self` lives; each load reads 1,024 bytes of the 2,048.
        unsafe {
            match operands {
                Operands::Int8 => run!("tdpbssd"),
                Operands::Bf16 => run!("tdpbf16ps"),
            }
        }
        let along_k = if operands == Operands::Int8 { 2 * TILE_K } else { TILE_K };
        (rounds.max(1) * 4 * TILE_ROWS * TILE_ROWS * along_k * 2) as u64
    }
}

/// Whether the CPU has tiles and their products of bytes and of bf16.
fn cpu_has_tiles() -> bool {
    /// Products of bf16, tiles, products of bytes.
    const ALL: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & ALL == ALL
}

/// Asks the kernel for the state of tiles, for all threads of the process.
#[cfg(target_os = "linux")]
fn kernel_permits() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XTILEDATA: u64 = 18;
    let mut result = ARCH_PRCTL;
    // SAFETY: this system call changes nothing but what this process may use; the two registers are those that one overwrites.
    unsafe {
        asm!(
            "syscall",
            inout("rax") result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XTILEDATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn kernel_permits() -> bool {
    false
}
