//! Equal tensors of a shard, one layer's after the other's: an append is the same copy in each, so it is planned once for all.
//!
//! ```text
//!   block of a shard   | keys 0 | values 0 | scales.. | keys 1 | values 1 | ..
//!                      |- first -|--------- step -----|
//! ```
//!
//! A token's rows are a few hundred bytes in each tensor: planning each by itself costs several times the copy. *Not here*: modes whose
//! rows move when others come, and tiles; each tensor does its own.

use crate::copy_plan::{self, CopyPlan};
use crate::geometry::KvTensor;
use crate::mode::CacheMode;
use crate::rows::run_in_each;
use crate::tensor_buf::{Run, TensorBuf};

/// Equal tensors at even distances of a block.
#[derive(Debug)]
pub(crate) struct Series {
    /// Of each tensor; the layer is the first one's.
    spec: KvTensor,
    /// Bytes from a tensor's part to its new columns.
    new_at: usize,
    /// Byte of the first tensor's part.
    first: usize,
    /// Bytes from a tensor's part to the next one's.
    step: usize,
    n: usize,
}

impl Series {
    /// The tensors of a block, one behind the other, as few series.
    pub(crate) fn of(tensors: &[TensorBuf]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        let mut at = 0;
        for tensor in tensors {
            match all.iter_mut().find(|series| series.goes_on_with(tensor, at)) {
                Some(series) => {
                    (series.step, series.n) = (at - series.first - series.step * (series.n - 1), series.n + 1);
                }
                None => {
                    let (spec, new_at) = (tensor.spec, tensor.new_at());
                    all.push(Self { spec, new_at, first: at, step: 0, n: 1 });
                }
            }
            at += tensor.block_bytes();
        }
        all
    }

    fn goes_on_with(&self, tensor: &TensorBuf, at: usize) -> bool {
        let shape = |t: &KvTensor| (t.group, t.kind, t.n_lines(), t.unit_bytes());
        let even = self.n == 1 || at == self.first + self.step * self.n;
        even && shape(&self.spec) == shape(&tensor.spec) && self.new_at == tensor.new_at()
    }

    /// The cache group of its tensors.
    pub(crate) fn group(&self) -> usize {
        self.spec.group
    }

    /// Copies new columns of a step of `ar` behind a past of `past_len` rows, in every tensor.
    pub(crate) fn append(&self, block: &mut [u8], mode: &dyn CacheMode, runs: &[Run], (past_len, ar): (usize, usize)) {
        for run in runs.iter().filter(|run| run.len > 0) {
            let (from, to) = (mode.new_place(ar), mode.place(past_len, past_len));
            let plan = copy_plan::transfer(&self.spec, run.len, (from, run.col), (to, run.slot));
            self.copy(block, &plan);
        }
    }

    fn copy(&self, block: &mut [u8], plan: &CopyPlan) {
        let mut rest = &mut block[self.first..];
        let pairs = (0..self.n).map(|_| {
            let len = if self.step == 0 { rest.len() } else { self.step.min(rest.len()) };
            let (own, tail) = std::mem::take(&mut rest).split_at_mut(len);
            rest = tail;
            let (past, new) = own.split_at_mut(self.new_at);
            (&*new, past)
        });
        run_in_each(pairs, plan);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{KvDtype, KvGeometry, KvKind};
    use crate::mode::ModeKind;
    use crate::tensor_buf::{Op, Runs};
    use crate::worker::Shard;
    use proptest::prelude::*;

    fn buffers(tensors: &[KvTensor], capacity: usize, max_ar: usize) -> Vec<TensorBuf> {
        let mode = ModeKind::SMART_MASK;
        tensors.iter().map(|t| TensorBuf::new(*t, mode.mode(), capacity, capacity, max_ar)).collect()
    }

    /// Group, kind, first layer and length of each series.
    fn shapes(tensors: &[KvTensor]) -> Vec<(usize, KvKind, usize, usize)> {
        let all = Series::of(&buffers(tensors, 64, 8));
        all.iter().map(|s| (s.spec.group, s.spec.kind, s.spec.layer.0, s.n)).collect()
    }

    #[test]
    fn equal_tensors_at_even_distances_are_one_series() {
        let tensors = |g: KvGeometry| g.splits[0].tensors.clone();
        let blocks = tensors(KvGeometry::in_blocks(5, 2, 32));
        let four = KvKind::ALL.map(|kind| (0, kind, 0, 5));
        assert_eq!(shapes(&blocks), four);
        let mut windows = blocks;
        // Layers 1 and 3 have a window: a group of their own.
        windows.iter_mut().filter(|t| t.layer.0 % 2 == 1).for_each(|t| t.group = 1);
        let by_group =
            KvKind::ALL.map(|kind| (0, kind, 0, 3)).into_iter().chain(KvKind::ALL.map(|kind| (1, kind, 1, 2)));
        assert_eq!(shapes(&windows), by_group.collect::<Vec<_>>());
        // A wider layer puts those behind it out of step.
        let mut uneven = tensors(KvGeometry::uniform(4, 2, 32, KvDtype::F16));
        uneven.iter_mut().filter(|t| t.layer.0 == 1).for_each(|t| t.head_dim = 64);
        let (key, value) = (KvKind::Key, KvKind::Value);
        let found = shapes(&uneven);
        let wanted =
            [(0, key, 0, 2), (0, value, 0, 2), (0, key, 1, 1), (0, value, 1, 1), (0, key, 3, 1), (0, value, 3, 1)];
        assert_eq!(found, wanted);
        assert_eq!(shapes(&[]), []);
    }

    fn any_tensor() -> impl Strategy<Value = KvTensor> {
        let kind = prop_oneof![Just(KvKind::Key), Just(KvKind::Value), Just(KvKind::KeyScale)];
        let dtype = prop_oneof![Just(KvDtype::U8), Just(KvDtype::F16), Just(KvDtype::F32)];
        (kind, dtype, 1..4usize, 1..40usize, 0..2usize, any::<bool>()).prop_map(
            |(kind, dtype, heads, dim, group, by_row)| {
                let tensor = KvTensor { group, ..KvTensor::new(kind, 0, heads, dim, dtype) };
                if by_row { tensor.by_row() } else { tensor }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 500 }))]

        #[test]
        fn a_series_copies_what_each_tensor_would(
            kinds in proptest::collection::vec(any_tensor(), 1..4), layers in 1..6usize, (past_len, ar) in (1..40usize, 1..9usize),
            extents in (0..40usize, 0..40usize), group in 0..2usize, wider in any::<bool>(), split in any::<bool>(), seed in any::<u8>(),
        ) {
            let mode = ModeKind::SMART_MASK;
            let tensors: Vec<KvTensor> = (0..layers).flat_map(|_| kinds.clone()).collect();
            let shard = || {
                let mut shard = Shard::new(0, buffers(&tensors, 40, 8), None).unwrap();
                let shape = Op::Shape { group, past_len, ar };
                let held = Op::Extent { group, extent: extents.0.min(past_len) };
                for (i, (tensor, bytes)) in shard.parts_mut().enumerate() {
                    bytes.iter_mut().enumerate().for_each(|(b, byte)| *byte = (31 * i + 7 * b + b / 251) as u8 ^ seed);
                    [&shape, &held].into_iter().for_each(|op| tensor.apply(bytes, op, mode.mode()));
                }
                shard
            };
            // All columns in one run, or the last of them first.
            let n = ar.min(past_len);
            let slot = extents.1.min(past_len - n);
            let runs = match n {
                2.. if split => [Run { col: n - 1, slot, len: 1 }, Run { col: 0, slot: slot + 1, len: n - 1 }],
                _ => [Run { col: ar - n, slot, len: n }, Run::default()],
            };
            // A past that is longer afterwards moves rows first.
            let past_len = if wider { 40 } else { past_len };
            let op = Op::Append { group, runs: Runs::new(&runs), extent: slot + n, past_len };
            let (mut together, mut alone) = (shard(), shard());
            together.apply(&op, mode.mode());
            alone.parts_mut().for_each(|(tensor, bytes)| tensor.apply(bytes, &op, mode.mode()));
            for ((a, found), (b, expected)) in together.parts().zip(alone.parts()) {
                prop_assert_eq!((a.past_len(), a.extent(), a.moved), (b.past_len(), b.extent(), b.moved));
                prop_assert_eq!(found, expected);
            }
        }
    }
}
