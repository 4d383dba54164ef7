//! Writes a context binary: first the plan with all offsets (so its size is known), then the bytes.
//!
//! ```text
//! metadata = text build | n { u64 offset  u64 bytes  u64 xxh3 } blobs | n graph | n { u32 blob  u32 tag  u32 blob } packed
//! graph    = text name | n tensor | n node
//! tensor   = text name | n u32 dims | u32 dtype | quant | u32 format | u8 role | [u32 blob]
//! node     = text name | text op | n { text name  param } | n u32 inputs | n u32 outputs
//! ```
//! *Units*: offsets of blobs are bytes from the start of the weights section; packed forms are blobs too.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::bytes::Bytes;
use crate::ir::{Node, Param, Quant, Role, SourceGraph, Tensor};

use super::wire::Writer;
use super::{BLOB_ALIGN, FORMAT_VERSION, FormatError, HEADER_BYTES, Image, MAGIC, PAGE};

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
        let to = to.get_mut(..self.total)?;
        let (head, weights) = to.split_at_mut(self.weights_offset);
        head[..self.head.len()].copy_from_slice(&self.head);
        head[self.head.len()..].fill(0);
        let mut end = 0;
        for (offset, data) in &self.blobs {
            weights[end..*offset].fill(0);
            end = offset + data.len();
            weights[*offset..end].copy_from_slice(data);
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

/// Blobs by content, in order of first use.
#[derive(Default)]
struct Blobs {
    list: Vec<(usize, Bytes)>,
    hashes: Vec<u64>,
    by_hash: HashMap<(u64, usize), Vec<u32>>,
    /// Blobs by place: the store of a context already shares equal bytes, so most are found by address.
    by_place: HashMap<(usize, usize), u32>,
    end: usize,
}

impl Blobs {
    fn index(&mut self, data: &Bytes) -> u32 {
        let place = (data.as_ptr().addr(), data.len());
        if let Some(&i) = self.by_place.get(&place) {
            return i;
        }
        let hash = xxh3_64(data);
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
        self.by_place.insert(place, index);
        index
    }
}

/// Lays a context binary out, without copying weights.
///
/// # Errors
/// More than the format can count.
pub fn plan(image: &Image) -> Result<Plan, FormatError> {
    let mut blobs = Blobs::default();
    let mut graphs = Writer::default();
    graphs.len(image.graphs.len())?;
    for graph in &image.graphs {
        write_graph(&mut graphs, graph, &mut blobs)?;
    }
    graphs.len(image.packed.len())?;
    for packed in &image.packed {
        let (graph, tensor) = packed.of;
        let source = image.graphs.get(graph).and_then(|g| g.tensors.get(tensor.0 as usize)).map(|t| &t.role);
        let Some(Role::Static(data)) = source else {
            return Err(FormatError::TooLarge { what: "a packed form of a tensor that is not static".to_owned() });
        };
        let of = blobs.index(data);
        graphs.u32(of);
        graphs.u32(packed.tag);
        let form = blobs.index(&packed.data);
        graphs.u32(form);
    }

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
    head.u32(FORMAT_VERSION);
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

fn write_graph(w: &mut Writer, graph: &SourceGraph, blobs: &mut Blobs) -> Result<(), FormatError> {
    w.text(&graph.name)?;
    w.len(graph.tensors.len())?;
    for tensor in &graph.tensors {
        write_tensor(w, tensor, blobs)?;
    }
    w.len(graph.nodes.len())?;
    for node in &graph.nodes {
        write_node(w, node)?;
    }
    Ok(())
}

fn write_tensor(w: &mut Writer, tensor: &Tensor, blobs: &mut Blobs) -> Result<(), FormatError> {
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
        Quant::Block { block_dims, scales, offsets } => {
            w.u8(4);
            w.u32s(block_dims.iter().copied())?;
            w.u32(blobs.index(scales.bytes()));
            w.u32s(offsets.iter().map(|&o| o as u32))?;
        }
    }
    w.u32(tensor.data_format);
    match &tensor.role {
        Role::Input => w.u8(0),
        Role::Output => w.u8(1),
        Role::Native => w.u8(2),
        Role::Null => w.u8(3),
        Role::Static(data) => {
            w.u8(4);
            let blob = blobs.index(data);
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
        match param {
            Param::F32(v) => {
                w.u8(0);
                w.u32(v.to_bits());
            }
            Param::Int(v) => {
                w.u8(1);
                w.u64(*v as u64);
            }
            Param::UInt(v) => {
                w.u8(2);
                w.u64(*v);
            }
            Param::Bool(v) => {
                w.u8(3);
                w.u8(u8::from(*v));
            }
            Param::Ints(dims, values) => {
                w.u8(4);
                w.u32s(dims.iter().copied())?;
                w.len(values.len())?;
                values.iter().for_each(|&v| w.u64(v as u64));
            }
        }
    }
    w.u32s(node.inputs.iter().map(|id| id.0))?;
    w.u32s(node.outputs.iter().map(|id| id.0))
}
