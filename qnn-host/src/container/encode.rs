//! Writes a context binary: first the plan with all offsets (so its size is known), then the bytes.
//!
//! ```text
//! metadata = text build | n { u64 offset  u64 bytes  u64 xxh3 } blobs | n graph | n { u32 blob  u32 tag  u32 blob } packed
//! graph    = text name | n tensor | n node
//! tensor   = text name | n u32 dims | u32 dtype | quant | u32 format | u8 role | [u32 blob | u32 form  u32 tag  u8 halves]
//! node     = text name | text op | n { text name  param } | n u32 inputs | n u32 outputs                  (param: see `params`)
//! ```
//! *Units*: offsets of blobs are bytes from the start of the weights section; packed forms are blobs too. The list at the end
//! has the forms of tensors that are here in portable form; a tensor of role 5 has its form instead of that.

use std::collections::HashMap;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::bytes::Bytes;
use crate::ir::{Node, Quant, Role, SourceGraph, Tensor};

use super::packed_only::{Form, Forms};
use super::params;
use super::wire::Writer;
use super::{BLOB_ALIGN, FormatError, HEADER_BYTES, Image, MAGIC, PAGE};

/// Bytes of weights that are copied at a time.
pub(super) const PART_BYTES: usize = 8 << 20;

/// A context binary with all offsets assigned.
#[derive(Debug)]
pub struct Plan {
    head: Vec<u8>,
    weights_offset: usize,
    blobs: Vec<(usize, Bytes)>,
    total: usize,
}

impl Plan {
    /// Size of the whole binary, in bytes.
    pub fn total_bytes(&self) -> usize {
        self.total
    }

    /// Writes the binary to the front of `to`, which must hold at least [`Plan::total_bytes`]; returns the bytes
    /// written, or `None` when `to` is too small.
    pub fn write(&self, to: &mut [u8]) -> Option<usize> {
        self.write_in_parts(to, |_, _| true)
    }

    /// As [`Plan::write`]; `done` is shown each part of the binary when it is written, so that its pages may leave memory, with
    /// the place of its end in the binary. `None` also as soon as it says false.
    pub(crate) fn write_in_parts(&self, to: &mut [u8], mut done: impl FnMut(&[u8], usize) -> bool) -> Option<usize> {
        let to = to.get_mut(..self.total)?;
        let (head, weights) = to.split_at_mut(self.weights_offset);
        head[..self.head.len()].copy_from_slice(&self.head);
        head[self.head.len()..].fill(0);
        let mut end = 0;
        for (offset, data) in &self.blobs {
            weights[end..*offset].fill(0);
            end = offset + data.len();
            let parts = weights[*offset..end].chunks_mut(PART_BYTES).zip((0..data.len()).step_by(PART_BYTES));
            for (to, from) in parts {
                let to_end = from + to.len();
                let part = from..to_end;
                to.copy_from_slice(&data[part.clone()]);
                if let Some(read) = data.slice(part) {
                    read.forget_pages();
                }
                if !done(to, self.weights_offset + offset + to_end) {
                    return None;
                }
            }
        }
        weights[end..].fill(0);
        Some(self.total)
    }
}

/// The bytes of a context binary; [`plan`] and [`Plan::write`] in one.
///
/// # Errors
/// More than the format can count.
pub fn encode(image: &Image) -> Result<Vec<u8>, FormatError> {
    let plan = plan(image)?;
    let mut bytes = vec![0; plan.total];
    plan.write(&mut bytes);
    Ok(bytes)
}

/// The hash of bytes of which a part is in memory at a time, where they lie in a file; `None` once `go_on`, which is given the
/// length of each part, says no.
fn hash_in_parts(data: &Bytes, mut go_on: impl FnMut(usize) -> bool) -> Option<u64> {
    let mut hasher = Xxh3::new();
    for from in (0..data.len()).step_by(PART_BYTES) {
        let part = from..data.len().min(from + PART_BYTES);
        let n = part.len();
        hasher.update(&data[part.clone()]);
        if let Some(read) = data.slice(part) {
            read.forget_pages();
        }
        if !go_on(n) {
            return None;
        }
    }
    Some(hasher.digest())
}

/// Given how many bytes of weights were read, and of how many; whether to go on.
type GoOn<'w> = dyn FnMut(u64, u64) -> bool + 'w;

/// Blobs by content, in order of first use.
#[derive(Default)]
struct Blobs<'w> {
    list: Vec<(usize, Bytes)>,
    hashes: Vec<u64>,
    by_hash: HashMap<(u64, usize), Vec<u32>>,
    /// Blobs by place: the store of a context already shares equal bytes, so most are found by it.
    by_place: HashMap<((usize, usize), usize), u32>,
    end: usize,
    /// Bytes that were hashed; without a watch, bytes that have to be.
    read: u64,
    /// Who is given how many of how many are hashed. Nothing is read without one: that finds how many there are.
    watch: Option<(u64, &'w mut GoOn<'w>)>,
}

impl Blobs<'_> {
    fn index(&mut self, data: &Bytes) -> Result<u32, FormatError> {
        let place = (data.id(), data.len());
        if let Some(&i) = self.by_place.get(&place) {
            return Ok(i);
        }
        let Some((total, go_on)) = &mut self.watch else {
            self.read += data.len() as u64;
            self.by_place.insert(place, 0);
            return Ok(0);
        };
        let hash = hash_in_parts(data, |n| {
            self.read += n as u64;
            go_on(self.read, *total)
        });
        let hash = hash.ok_or(FormatError::Stopped)?;
        let twins = self.by_hash.entry((hash, data.len())).or_default();
        let found = twins.iter().copied().find(|&i| self.list[i as usize].1[..] == data[..]);
        let index = found.unwrap_or_else(|| {
            let i = self.list.len() as u32;
            twins.push(i);
            let offset = self.end.next_multiple_of(BLOB_ALIGN);
            self.end = offset + data.len();
            self.list.push((offset, data.clone()));
            self.hashes.push(hash);
            i
        });
        data.forget_pages();
        self.by_place.insert(place, index);
        Ok(index)
    }
}

/// Lays a context binary out, without copying weights.
///
/// # Errors
/// More than the format can count.
pub fn plan(image: &Image) -> Result<Plan, FormatError> {
    plan_watched(image, &mut |_, _| true)
}

/// As [`plan`]; `go_on` is given how many bytes of weights were read, of how many, after each part of them.
///
/// # Errors
/// [`FormatError::Stopped`] as soon as `go_on` says false; those of [`plan`].
pub(crate) fn plan_watched(image: &Image, go_on: &mut GoOn<'_>) -> Result<Plan, FormatError> {
    let mut unread = Blobs::default();
    write_graphs(image, &mut unread)?;
    let mut blobs = Blobs { watch: Some((unread.read, go_on)), ..Blobs::default() };
    let graphs = write_graphs(image, &mut blobs)?;

    let mut meta = Writer::default();
    meta.text(crate::BUILD_ID)?;
    meta.len(blobs.list.len())?;
    for ((offset, data), hash) in blobs.list.iter().zip(&blobs.hashes) {
        meta.u64(*offset as u64);
        meta.u64(data.len() as u64);
        meta.u64(*hash);
    }
    meta.bytes.extend_from_slice(&graphs.bytes);

    let weights_offset = (HEADER_BYTES + meta.bytes.len()).next_multiple_of(PAGE);
    let total = weights_offset + blobs.end;
    let mut head = Writer { bytes: MAGIC.to_vec() };
    head.u32(params::format_version(image));
    head.u32(HEADER_BYTES as u32);
    head.u64(total as u64);
    head.u64(HEADER_BYTES as u64);
    head.u64(meta.bytes.len() as u64);
    head.u64(xxh3_64(&meta.bytes));
    head.u64(weights_offset as u64);
    head.u64(blobs.end as u64);
    head.len(blobs.list.len())?;
    head.len(image.graphs.len())?;
    head.bytes.resize(HEADER_BYTES - 8, 0);
    head.u64(xxh3_64(&head.bytes));
    head.bytes.extend_from_slice(&meta.bytes);
    Ok(Plan { head: head.bytes, weights_offset, blobs: blobs.list, total })
}

/// The graphs, and the packed forms beside them.
fn write_graphs(image: &Image, blobs: &mut Blobs<'_>) -> Result<Writer, FormatError> {
    let forms = Forms::of(&image.graphs, &image.packed);
    let mut graphs = Writer::default();
    graphs.len(image.graphs.len())?;
    for graph in &image.graphs {
        write_graph(&mut graphs, graph, blobs, &forms)?;
    }
    let mut beside = Vec::new();
    for packed in &image.packed {
        let (graph, tensor) = packed.of;
        let source = image.graphs.get(graph).and_then(|g| g.tensors.get(tensor.0 as usize));
        let Some((tensor, Role::Static(data))) = source.map(|t| (t, &t.role)) else {
            return Err(FormatError::TooLarge { what: "a packed form of a tensor that is not static".to_owned() });
        };
        if forms.find(tensor).is_none() {
            beside.push((data, packed));
        }
    }
    graphs.len(beside.len())?;
    for (data, packed) in beside {
        let of = blobs.index(data)?;
        graphs.u32(of);
        graphs.u32(packed.tag);
        let form = blobs.index(&packed.data)?;
        graphs.u32(form);
    }
    Ok(graphs)
}

fn write_graph(
    w: &mut Writer,
    graph: &SourceGraph,
    blobs: &mut Blobs<'_>,
    forms: &Forms<'_>,
) -> Result<(), FormatError> {
    w.text(&graph.name)?;
    w.len(graph.tensors.len())?;
    for tensor in &graph.tensors {
        write_tensor(w, tensor, blobs, forms.find(tensor))?;
    }
    w.len(graph.nodes.len())?;
    for node in &graph.nodes {
        write_node(w, node)?;
    }
    Ok(())
}

fn write_tensor(
    w: &mut Writer,
    tensor: &Tensor,
    blobs: &mut Blobs<'_>,
    form: Option<Form<'_>>,
) -> Result<(), FormatError> {
    w.text(&tensor.name)?;
    w.u32s(tensor.dims.iter().copied())?;
    w.u32(tensor.dtype as u32);
    let scale = |w: &mut Writer, scales: &[f32], offsets: &[i32]| {
        w.u32s(scales.iter().map(|s| s.to_bits()))?;
        w.u32s(offsets.iter().map(|&o| o as u32))
    };
    match &tensor.quant {
        Quant::None => w.u8(0),
        Quant::PerTensor { scale, offset } => {
            w.u8(1);
            w.u32(scale.to_bits());
            w.u32(*offset as u32);
        }
        Quant::PerAxis { axis, bits, scales, offsets } => {
            w.u8(2);
            w.u32(*axis);
            w.u32(*bits);
            scale(w, scales, offsets)?;
        }
        // Its scales are in the form.
        Quant::Block { block_dims, .. } if form.is_some() => {
            w.u8(5);
            w.u32s(block_dims.iter().copied())?;
        }
        Quant::Block { block_dims, scales, offsets } => {
            w.u8(4);
            w.u32s(block_dims.iter().copied())?;
            w.u32(blobs.index(scales.bytes())?);
            w.u32s(offsets.iter().map(|&o| o as u32))?;
        }
    }
    w.u32(tensor.data_format);
    if let Some(form) = form {
        w.u8(5);
        let blob = blobs.index(form.data)?;
        w.u32(blob);
        w.u32(form.tag);
        w.u8(u8::from(form.halves));
        return Ok(());
    }
    match &tensor.role {
        Role::Input => w.u8(0),
        Role::Output => w.u8(1),
        Role::Native => w.u8(2),
        Role::Null => w.u8(3),
        Role::Static(data) => {
            w.u8(4);
            let blob = blobs.index(data)?;
            w.u32(blob);
        }
    }
    Ok(())
}

fn write_node(w: &mut Writer, node: &Node) -> Result<(), FormatError> {
    w.text(&node.name)?;
    w.text(&node.op)?;
    w.len(node.params.len())?;
    for (name, param) in &node.params {
        w.text(name)?;
        params::write(w, param)?;
    }
    w.u32s(node.inputs.iter().map(|id| id.0))?;
    w.u32s(node.outputs.iter().map(|id| id.0))
}
