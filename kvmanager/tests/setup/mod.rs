//! What a random sequence is played on: the cache's mode, type, variants, form and the rules of its groups.

use std::ops::Range;

use crate::actions::Action;
use crate::naive::{Scorer, spec};
use kvmanager::mode::{NativeKv, Tile};
use kvmanager::{
    CacheGroup, Eviction, HolePolicy, KeyScorer, KvCache, KvDtype, KvError, KvForm, KvGeometry, KvKind, KvOptions,
    KvTensor, ModeKind, RopeSpec, SplitGeometry, Variants,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
pub struct Setup {
    pub mode: usize,
    pub dtype: KvDtype,
    pub form: KvForm,
    pub shapes: usize,
    pub holes: HolePolicy,
    pub n_threads: usize,
    pub per_head: bool,
    /// Values with the sequence last.
    pub transposed: bool,
    /// Keys row by row.
    pub keys_by_row: bool,
    /// Another type for the values, and for layer 1 the other way round.
    pub mixed_types: bool,
    pub rules: Rules,
    pub window: usize,
    pub sinks: usize,
    /// Steps from a scoring of keys to the next.
    pub update_every: usize,
}

/// The groups, and what each keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    Plain,
    Window,
    PlainAndWindow,
    /// Of one sequence.
    Ring,
    KeyDiff,
    PlainAndKeyDiff,
    WindowAndKeyDiff,
    /// A window in the slots that libGenie takes, of scatter graphs.
    PlainAndFirstFit,
}

impl Rules {
    pub const ALL: [Self; 8] = [
        Self::Plain,
        Self::Window,
        Self::PlainAndWindow,
        Self::Ring,
        Self::KeyDiff,
        Self::PlainAndKeyDiff,
        Self::WindowAndKeyDiff,
        Self::PlainAndFirstFit,
    ];
    /// In reports of effects.
    pub const NAMES: [&str; 8] =
        ["plain", "window", "plain+window", "ring", "keydiff", "plain+keydiff", "window+keydiff", "plain+first fit"];

    pub fn has_two(self) -> bool {
        matches!(self, Self::PlainAndWindow | Self::PlainAndKeyDiff | Self::WindowAndKeyDiff | Self::PlainAndFirstFit)
    }

    pub fn scores(self) -> bool {
        matches!(self, Self::KeyDiff | Self::PlainAndKeyDiff | Self::WindowAndKeyDiff)
    }
}

pub const TILE: NativeKv = NativeKv { tile: Tile { rows: 4, cols: 4, word_bytes: 4 } };

pub fn mode(i: usize) -> ModeKind {
    [ModeKind::SMART_MASK, ModeKind::SHIFT_CONCAT, ModeKind::POINTER_SHIFT, ModeKind::NativeKv(TILE)][i % 4]
}

pub const DTYPES: [KvDtype; 4] = [KvDtype::U8, KvDtype::U16, KvDtype::F16, KvDtype::F32];

pub const SHAPES: [&[(u32, u32)]; 5] = [
    &[(1, 12), (4, 12)],
    &[(1, 10), (3, 10), (1, 24), (8, 24)],
    &[(4, 16), (1, 32)],
    &[(1, 8), (16, 16), (1, 20), (4, 20)],
    &[(2, 9), (5, 24)],
];

pub fn geometry(setup: &Setup) -> KvGeometry {
    let tensor = |kind, layer: usize, heads| {
        let other = setup.mixed_types && (kind == KvKind::Value) != (layer == 1);
        let at = DTYPES.iter().position(|&d| d == setup.dtype).unwrap();
        let dtype = DTYPES[(at + usize::from(other)) % DTYPES.len()];
        let tensor = KvTensor {
            group: if setup.rules.has_two() { layer % 2 } else { 0 },
            ..KvTensor::new(kind, layer, heads, 4, dtype)
                .with_quant(1.0 / 16.0, if dtype == KvDtype::U8 { -128 } else { -32_768 })
        };
        match kind {
            KvKind::Key if setup.keys_by_row => tensor.by_row(),
            KvKind::Value if setup.transposed => tensor.transposed(),
            _ => tensor,
        }
    };
    let split = |layers: Range<usize>| {
        let kinds = [KvKind::Key, KvKind::Value];
        let heads = layers.flat_map(|l| kinds.map(|k| (k, l))).flat_map(|(kind, layer)| {
            if setup.per_head {
                vec![tensor(kind, layer, 1).for_head(0), tensor(kind, layer, 1).for_head(1)]
            } else {
                vec![tensor(kind, layer, 2)]
            }
        });
        SplitGeometry { tensors: heads.collect() }
    };
    KvGeometry { splits: vec![split(0..1), SplitGeometry::default(), split(1..2)] }
}

pub fn build(setup: &Setup, mode: ModeKind, shapes: usize) -> Result<KvCache, KvError> {
    let specs: Vec<_> = SHAPES[shapes % SHAPES.len()].iter().map(|&(ar, cl)| spec(ar, cl)).collect();
    let window = Eviction::Window { size: setup.window, sinks: setup.sinks };
    let scored = Eviction::KeyDiff { sinks: setup.sinks, update_every: setup.update_every };
    let (first, second) = match setup.rules {
        Rules::Plain => (Eviction::None, None),
        Rules::Window => (window, None),
        Rules::PlainAndWindow => (Eviction::None, Some(window)),
        Rules::Ring => (Eviction::Ring { sinks: setup.sinks }, None),
        Rules::KeyDiff => (scored, None),
        Rules::PlainAndKeyDiff => (Eviction::None, Some(scored)),
        Rules::WindowAndKeyDiff => (window, Some(scored)),
        Rules::PlainAndFirstFit => {
            (Eviction::None, Some(Eviction::FirstFit { size: setup.window, sinks: setup.sinks }))
        }
    };
    let mut groups = vec![CacheGroup { long: first, ..CacheGroup::plain(setup.form) }];
    if let Some(long) = second {
        let least = if setup.rules.scores() { setup.sinks + 1 } else { 1 };
        let slots = |s: genie_types::Variant| s.cl().get().div_ceil(2).max(s.ar().get() + least);
        // Of libGenie's slots all graphs have the same number.
        let same = (setup.rules == Rules::PlainAndFirstFit).then(|| specs.iter().map(|&s| slots(s)).max()).flatten();
        let ctx = specs.iter().map(|&s| (s, same.unwrap_or(slots(s)))).collect();
        groups.push(CacheGroup { prefix: "swa_".to_owned(), form: setup.form, ctx, long });
    }
    let endless = first != Eviction::None;
    let variants = Variants::with_groups(specs, groups, endless.then_some(60)).unwrap();
    let rope = Some(RopeSpec { frequencies: frequencies(setup.rules).to_vec(), pairs: Default::default() });
    let scorer: Option<Box<dyn KeyScorer>> = Some(Box::new(Scorer));
    let n_threads = setup.n_threads;
    let options = KvOptions { mode, n_threads, holes: setup.holes, rope, scorer, ..KvOptions::default() };
    KvCache::new(&geometry(setup), variants, options)
}

/// Of rotations. Keys that are scored keep two elements, which tell tokens apart.
pub fn frequencies(rules: Rules) -> [f64; 2] {
    [if rules.scores() { 0.0 } else { 1.0 }, 100f64.powf(-0.5)]
}

pub fn any_setup(mode: usize, dtype: KvDtype, shapes: usize) -> impl Strategy<Value = Setup> {
    // Scatter graphs need their rows at the left: the first and the last mode.
    let forms = if mode.is_multiple_of(3) { vec![KvForm::Concat, KvForm::Scatter] } else { vec![KvForm::Concat] };
    let form = prop::sample::select(forms);
    let holes = prop::sample::select(vec![HolePolicy::Close, HolePolicy::Keep]);
    let threads = prop::sample::select(if cfg!(miri) { vec![0] } else { vec![0, 0, 0, 0, 0, 0, 0, 2] });
    let tensors = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let rules = prop::sample::select(Rules::ALL.to_vec());
    (form, holes, threads, tensors, rules, 1..9usize, 0..3usize, 1..6usize).prop_map(
        move |(
            form,
            holes,
            n_threads,
            (per_head, transposed, keys_by_row, mixed_types),
            rules,
            window,
            sinks,
            update_every,
        )| {
            // Its slots are those of scatter graphs.
            let concat = rules == Rules::PlainAndFirstFit && form == KvForm::Concat;
            let rules = if concat { Rules::PlainAndWindow } else { rules };
            Setup {
                mode,
                dtype,
                form,
                shapes,
                holes,
                n_threads,
                per_head,
                transposed,
                keys_by_row,
                mixed_types,
                rules,
                window,
                sinks,
                update_every,
            }
        },
    )
}

/// A windowed setup from which shrunk failures differ in little.
pub fn windowed(form: KvForm, shapes: usize, rules: Rules, window: usize, sinks: usize) -> Setup {
    let (mode, dtype, holes) = (0, KvDtype::U8, HolePolicy::Close);
    Setup {
        mode,
        dtype,
        form,
        shapes,
        holes,
        n_threads: 0,
        per_head: false,
        transposed: false,
        keys_by_row: false,
        mixed_types: false,
        rules,
        window,
        sinks,
        update_every: 1,
    }
}

/// KeyDiff on AR-1 and AR-4 of CL-12, after steps of one token that fill the past of AR-1.
pub fn full(sinks: usize) -> (Setup, Vec<Action>) {
    let setup = Setup { per_head: true, ..windowed(KvForm::Concat, 0, Rules::KeyDiff, 1, sinks) };
    (setup, vec![Action::Process(1); 11])
}
