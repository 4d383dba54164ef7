//! The moves that both benches time, each with the bytes it has to move: two Llama geometries at CL 4,096, uint8,
//! float16, float16 with keys by row, and q8_0.
//!
//! Trap: the keys of one token, where they do not lie by row, are one element in each of `heads * head_dim` lines, so an append of one token writes
//! that many lines of the processor's cache, 64 bytes for each 1 or 2. `lines_bytes` says how much that is: no layout
//! with the sequence last can come nearer to a block copy.

use genie_types::{SplitIdx, Variant};
use kvmanager::mode::RowLayout;
use kvmanager::{
    CacheGroup, Columns, Eviction, Keep, KvCache, KvDtype, KvForm, KvGeometry, KvKind, KvOptions, KvTensor, ModeKind,
    SeqId, Variants, copy_plan,
};
use session_store::Snapshot;
use std::path::Path;

/// A model's cache tensors.
pub struct Model {
    pub name: String,
    geometry: KvGeometry,
    /// One tensor per head, as pointer shift wants it.
    by_head: KvGeometry,
}

/// Something to time: `run`, but not `reset`.
pub struct Case {
    pub op: &'static str,
    pub who: &'static str,
    /// Bytes of the rows that move: what `memcpy` is given.
    pub bytes: usize,
    /// Bytes of the cache lines written, where that is another number.
    pub lines_bytes: Option<usize>,
    pub kv: KvCache,
    pub run: Box<dyn Fn(&mut KvCache)>,
    pub reset: Box<dyn Fn(&mut KvCache)>,
}

/// KV shapes of Llama 3.2 1B and Llama 3.1 8B.
pub fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for (model, layers, heads, dim) in [("1B", 16, 8, 64), ("8B", 32, 8, 128)] {
        for (name, geometry) in [
            ("u8", KvGeometry::uniform(layers, heads, dim, KvDtype::U8)),
            ("f16", KvGeometry::uniform(layers, heads, dim, KvDtype::F16)),
            ("f16 rows", KvGeometry::uniform(layers, heads, dim, KvDtype::F16).with_keys_by_row()),
            ("q8_0", KvGeometry::in_blocks(layers, heads, dim)),
        ] {
            let mut by_head = geometry.clone();
            let tensors = std::mem::take(&mut by_head.splits[0].tensors);
            by_head.splits[0].tensors =
                tensors.iter().flat_map(|t| (0..heads).map(|h| t.for_head(h)).collect::<Vec<KvTensor>>()).collect();
            models.push(Model { name: format!("{model}/{name}"), geometry, by_head });
        }
    }
    models
}

fn spec(ar: u32, cl: u32) -> Variant {
    Variant::new(ar, cl).unwrap()
}

fn manager(geometry: &KvGeometry, mode: ModeKind, long: Eviction, n_threads: usize) -> KvCache {
    let specs = [1024, 4096].iter().flat_map(|&cl| [spec(1, cl), spec(128, cl)]);
    let group = CacheGroup { long, ..CacheGroup::plain(KvForm::Concat) };
    let size = (long != Eviction::None).then_some(1 << 30);
    let variants = Variants::with_groups(specs, vec![group], size).unwrap();
    KvCache::new(geometry, variants, KvOptions { mode, n_threads, ..KvOptions::default() }).unwrap()
}

/// One step of `n` tokens, its graphs aside, and all jobs of it.
fn push(kv: &mut KvCache, variant: Variant, n: usize) {
    let next = kv.next_pos(SeqId(0));
    let planned = kv.step(variant, Columns::of(SeqId(0), next, n));
    let mut step = kv.begin(&planned).unwrap();
    step.commit(SplitIdx(0), Keep::All).unwrap();
    step.finish().unwrap();
    kv.wait_all().unwrap();
}

/// Fills the cache with `n` rows by steps of 128 of CL 4,096, then takes a shape.
fn filled(kv: &mut KvCache, n: usize, shape: Variant) {
    kv.clear().unwrap();
    let wide = spec(128, 4096);
    (0..n).step_by(128).for_each(|past| push(kv, wide, 128.min(n - past)));
    set(kv, shape);
}

fn set(kv: &mut KvCache, shape: Variant) {
    kv.set_variant(shape).unwrap();
    kv.wait_all().unwrap();
}

const BASE: usize = 2048;

fn append(
    geometry: &KvGeometry,
    op: &'static str,
    who: &'static str,
    mode: ModeKind,
    n: usize,
    threads: usize,
) -> Case {
    let shape = spec(n as u32, 4096);
    let mut kv = manager(geometry, mode, Eviction::None, threads);
    filled(&mut kv, BASE, shape);
    let bytes = geometry.rows_bytes(n);
    let lines = |t: &KvTensor| {
        let to = RowLayout::dense(shape.past_capacity());
        copy_plan::transfer(t, n, (RowLayout::dense(n), 0), (to, BASE)).cache_lines(64) * 64
    };
    let lines_bytes = geometry.splits[0].tensors.iter().map(lines).sum::<usize>();
    Case {
        op,
        who,
        bytes,
        lines_bytes: (n == 1).then_some(lines_bytes),
        kv,
        run: Box::new(move |kv| push(kv, shape, n)),
        reset: Box::new(|kv| kv.rewind(SeqId(0), BASE).unwrap()),
    }
}

fn switch(model: &Model, op: &'static str, from: Variant, to: Variant, rows: usize, threads: usize) -> Case {
    let mut kv = manager(&model.geometry, ModeKind::SMART_MASK, Eviction::None, threads);
    filled(&mut kv, rows, from);
    Case {
        op,
        who: if threads > 0 { "smart-mask, 2 threads" } else { "smart-mask" },
        bytes: model.geometry.rows_bytes(rows),
        lines_bytes: None,
        kv,
        run: Box::new(move |kv| set(kv, to)),
        reset: Box::new(move |kv| set(kv, from)),
    }
}

fn rewind(model: &Model) -> Case {
    let shape = spec(128, 4096);
    let mut kv = manager(&model.geometry, ModeKind::SMART_MASK, Eviction::None, 0);
    filled(&mut kv, BASE + 128, shape);
    Case {
        op: "rewind 128",
        who: "smart-mask",
        bytes: model.geometry.rows_bytes(128),
        lines_bytes: None,
        kv,
        run: Box::new(|kv| kv.rewind(SeqId(0), BASE).unwrap()),
        reset: Box::new(move |kv| push(kv, shape, 128)),
    }
}

/// A full ring: each step of 128 overwrites the oldest 128 rows.
fn ring(model: &Model) -> Case {
    let shape = spec(128, 4096);
    let mut kv = manager(&model.geometry, ModeKind::SMART_MASK, Eviction::Ring { sinks: 4 }, 0);
    filled(&mut kv, 4096, shape);
    Case {
        op: "window eviction 128",
        who: "smart-mask",
        bytes: model.geometry.rows_bytes(128),
        lines_bytes: None,
        kv,
        run: Box::new(move |kv| push(kv, shape, 128)),
        reset: Box::new(|_| {}),
    }
}

fn snapshot(model: &Model, dir: &Path, save: bool) -> Case {
    let rows = 1024;
    let mut kv = manager(&model.geometry, ModeKind::SMART_MASK, Eviction::None, 0);
    filled(&mut kv, rows, spec(128, 4096));
    let path = dir.join(format!("{}.kvs", model.name.replace('/', "-")));
    let write = {
        let path = path.clone();
        move |kv: &mut KvCache| {
            let image = kv.export().unwrap();
            Snapshot { image, ..Snapshot::default() }.write(&path).unwrap();
        }
    };
    write(&mut kv);
    let read = move |kv: &mut KvCache| kv.import(&Snapshot::read(&path).unwrap().image).unwrap();
    Case {
        op: if save { "snapshot save 1024" } else { "snapshot restore 1024" },
        who: if save { "with fsync" } else { "smart-mask" },
        bytes: model.geometry.rows_bytes(rows),
        lines_bytes: None,
        kv,
        run: if save { Box::new(write) } else { Box::new(read) },
        reset: Box::new(|_| {}),
    }
}

/// The cases of a model whose operation holds the word `only`, each made when its turn comes: a cache of the larger model takes a gigabyte.
pub fn cases<'a>(model: &'a Model, dir: &'a Path, only: &str) -> impl Iterator<Item = Case> + 'a {
    let mut values = model.by_head.clone();
    values.splits[0].tensors.retain(|t| t.kind == KvKind::Value);
    type Make<'a> = (&'static str, Box<dyn FnOnce() -> Case + 'a>);
    let (flat, by_head) = (&model.geometry, &model.by_head);
    let (smart, pointer, shift) = (ModeKind::SMART_MASK, ModeKind::POINTER_SHIFT, ModeKind::SHIFT_CONCAT);
    let makes: Vec<Make<'_>> = vec![
        ("append 128", Box::new(move || append(flat, "append 128", "smart-mask", smart, 128, 0))),
        ("append 128", Box::new(move || append(flat, "append 128", "smart-mask, 2 threads", smart, 128, 2))),
        ("append 128", Box::new(move || append(by_head, "append 128", "pointer-shift", pointer, 128, 0))),
        ("append 128", Box::new(move || append(&values, "append 128", "pointer-shift, values", pointer, 128, 0))),
        ("append 128", Box::new(move || append(flat, "append 128", "shift-concat", shift, 128, 0))),
        ("append 1", Box::new(move || append(flat, "append 1", "smart-mask", smart, 1, 0))),
        ("append 1", Box::new(move || append(flat, "append 1", "smart-mask, 2 threads", smart, 1, 2))),
        ("append 1", Box::new(move || append(by_head, "append 1", "pointer-shift", pointer, 1, 0))),
        (
            "switch AR-128 -> AR-1",
            Box::new(move || switch(model, "switch AR-128 -> AR-1", spec(128, 4096), spec(1, 4096), BASE, 0)),
        ),
        (
            "switch AR-128 -> AR-1",
            Box::new(move || switch(model, "switch AR-128 -> AR-1", spec(128, 4096), spec(1, 4096), BASE, 2)),
        ),
        (
            "switch AR-1 -> AR-128",
            Box::new(move || switch(model, "switch AR-1 -> AR-128", spec(1, 4096), spec(128, 4096), BASE, 0)),
        ),
        (
            "CL 1,024 -> 4,096",
            Box::new(move || switch(model, "CL 1,024 -> 4,096", spec(128, 1024), spec(128, 4096), 896, 0)),
        ),
        (
            "CL 4,096 -> 1,024",
            Box::new(move || switch(model, "CL 4,096 -> 1,024", spec(128, 4096), spec(128, 1024), 896, 0)),
        ),
        ("rewind", Box::new(move || rewind(model))),
        ("window", Box::new(move || ring(model))),
        ("snapshot save", Box::new(move || snapshot(model, dir, true))),
        ("snapshot restore", Box::new(move || snapshot(model, dir, false))),
    ];
    let only = only.to_owned();
    makes.into_iter().filter(move |(op, _)| op.contains(&only)).map(|(_, make)| make())
}
