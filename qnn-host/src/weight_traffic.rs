//! What a run of a graph reads of its weights, computed from a context binary alone.
//!
//! *Units*: bytes as the kernels read them (the packed form, where the file has one of a kind that this build knows), and
//! elements. A look-up reads the rows that it looks up; everything else reads its static operands once.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;
use thiserror::Error;

use crate::bytes::Bytes;
use crate::container::{FormatError, Image, Verify, decode, is_ours};
use crate::ir::{Node, Quant, Role, SourceGraph, TensorId};
use crate::kernels::packed::Packing;

/// What one node reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The node.
    pub node: String,
    /// Bytes.
    pub bytes: u64,
    /// Weights that each row of activations is multiplied with; 0 for what is no product.
    pub products: u64,
    /// Extent of the output's last axis.
    pub width: u64,
}

/// What each graph of a context binary reads.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    graphs: Vec<(String, Vec<Read>)>,
}

/// Why a context binary cannot be read.
#[derive(Debug, Error)]
pub enum TrafficError {
    /// The file cannot be read.
    #[error("cannot read it")]
    Io(#[from] std::io::Error),
    /// It is damaged, or torn.
    #[error(transparent)]
    Format(#[from] FormatError),
}

impl Traffic {
    /// From a file; `None` if another backend made it. The file must not change meanwhile.
    ///
    /// # Errors
    /// Files that cannot be read or are damaged.
    pub fn of_file(path: &Path) -> Result<Option<Self>, TrafficError> {
        let file = File::open(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(None);
        }
        // SAFETY: the mapping is only read, and the documentation requires that the file stays as it is.
        let map = Arc::new(unsafe { Mmap::map(&file) }?);
        let whole = 0..map.len();
        match Bytes::mapped(map, whole).filter(|bytes| is_ours(bytes)) {
            Some(bytes) => Ok(Some(Self::of(&decode(&bytes, Verify::Small)?))),
            None => Ok(None),
        }
    }

    /// From a binary that was read.
    pub fn of(image: &Image) -> Self {
        let reads = |graph: &SourceGraph| graph.nodes.iter().filter_map(|node| read(image, graph, node)).collect();
        Self { graphs: image.graphs.iter().map(|graph| (graph.name.clone(), reads(graph))).collect() }
    }

    /// What the nodes of a graph read, in their order; those that read nothing are left out.
    pub fn graph(&self, name: &str) -> Option<&[Read]> {
        self.graphs.iter().find(|(graph, _)| graph == name).map(|(_, reads)| reads.as_slice())
    }
}

fn read(image: &Image, graph: &SourceGraph, node: &Node) -> Option<Read> {
    let look_up = matches!(node.op.as_str(), "Gather" | "GatherElements" | "GatherNd");
    let product = matches!(node.op.as_str(), "FullyConnected" | "MatMul" | "Conv2d");
    let last = |id: &TensorId| graph.tensor(*id).dims.last().copied().unwrap_or(1);
    let width = node.outputs.first().map_or(1, last).into();
    let mut read = Read { node: node.name.clone(), bytes: 0, products: 0, width };
    for (slot, &id) in node.inputs.iter().enumerate() {
        let tensor = graph.tensor(id);
        let Role::Static(data) = &tensor.role else { continue };
        let (all, elems) = (size_bytes(image, data, &tensor.quant) as u64, tensor.n_elems().max(1) as u64);
        if look_up && slot == 0 {
            let looked_up: u64 = node.outputs.iter().map(|&o| graph.tensor(o).n_elems() as u64).sum();
            read.bytes += (u128::from(all) * u128::from(looked_up) / u128::from(elems)) as u64;
            continue;
        }
        read.bytes += all;
        // Minima are multiplied with in the step of their weights.
        let minima = form_of(image, data).is_some_and(|(packing, _)| packing.is_minima());
        if product && slot == 1 && !minima {
            read.products += elems;
        }
    }
    (read.bytes > 0).then_some(read)
}

/// The packed form of static data, of a kind that this build knows: its format and bytes.
fn form_of(image: &Image, data: &Bytes) -> Option<(Packing, usize)> {
    image.packed.iter().find_map(|form| {
        let of = &image.graphs[form.of.0].tensor(form.of.1).role;
        let same = matches!(of, Role::Static(d) if d.id() == data.id() && d.len() == data.len());
        Packing::from_tag(form.tag).filter(|_| same).map(|packing| (packing, form.data.len()))
    })
}

/// Bytes of a static tensor: of its packed form if it has one, else of its quantised values and scales.
fn size_bytes(image: &Image, data: &Bytes, quant: &Quant) -> usize {
    if let Some((_, len)) = form_of(image, data) {
        return len;
    }
    let scales = match quant {
        Quant::None | Quant::PerTensor { .. } => 0,
        Quant::PerAxis { scales, .. } => size_of_val::<[f32]>(scales),
        Quant::Block { scales, .. } => scales.bytes().len(),
    };
    data.len() + scales
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::{Packed, encode};
    use crate::ir::{Dtype, Param};
    use crate::kernels::packed::{Bits, Scales};
    use crate::testing::Build;

    /// A look-up of 2 rows of 64 in a table of 16, and a layer that shares the table.
    fn tied() -> SourceGraph {
        let mut b = Build::new();
        let ids = b.input("ids", &[2], Dtype::I32);
        let table = Role::Static(Bytes::copy_from(&[1; 16 * 64 * 2]));
        let w = b.tensor("w", &[16, 64], Dtype::F16, Quant::None, table);
        let x = b.tensor("x", &[2, 64], Dtype::F16, Quant::None, Role::Native);
        let y = b.output("y", &[2, 16], Dtype::F16);
        b.node("Gather", &[("axis", Param::Int(0))], &[w, ids], &[x]);
        b.node("FullyConnected", &[], &[x, w], &[y]);
        SourceGraph { name: "tied".into(), ..b.graph }
    }

    #[test]
    fn look_ups_read_rows_and_layers_all() {
        let image = Image { graphs: vec![tied()], packed: Vec::new() };
        let traffic = Traffic::of(&image);
        let [look_up, layer] = traffic.graph("tied").expect("it is there") else { panic!("{traffic:?}") };
        assert_eq!((look_up.bytes, look_up.products), (2 * 64 * 2, 0));
        assert_eq!((layer.bytes, layer.products, layer.width), (16 * 64 * 2, 16 * 64, 16));
        assert_eq!(traffic.graph("other"), None);
    }

    #[test]
    fn a_packed_form_is_what_is_read_and_an_unknown_one_is_not() {
        let mut b = Build::new();
        let x = b.input("x", &[1, 64], Dtype::F32);
        let quant =
            Quant::Block { block_dims: [1, 32].into(), scales: (0..32).map(|_| 1.0).collect(), offsets: [].into() };
        let codes = Role::Static(Bytes::copy_from(&[1; 16 * 64]));
        let w = b.tensor("w", &[16, 64], Dtype::SFixed4, quant, codes);
        let y = b.output("y", &[1, 16], Dtype::F32);
        b.node("FullyConnected", &[], &[x, w], &[y]);
        let mut image = Image { graphs: vec![SourceGraph { name: "g".into(), ..b.graph }], packed: Vec::new() };
        let bytes = |image: &Image| Traffic::of(image).graph("g").expect("it is there")[0].bytes;
        assert_eq!(bytes(&image), 16 * 64 + 32 * 4, "codes and scales");
        let packing = Packing { bits: Bits::Four, scales: Scales::Block };
        let data = Bytes::copy_from(&vec![0; packing.size_bytes(16, 64).expect("small")]);
        image.packed.push(Packed { of: (0, w), tag: packing.tag(), data });
        assert_eq!(bytes(&image), 16 * 32 + 64);
        image.packed[0].tag = 0xFFFF_FFFF;
        assert_eq!(bytes(&image), 16 * 64 + 32 * 4);
    }

    #[test]
    fn minima_are_read_and_are_no_weights() {
        let mut b = Build::new();
        let sums = b.input("sums", &[1, 8], Dtype::F32);
        let quant = Quant::Block { block_dims: [1, 8].into(), scales: [1.0; 16].into(), offsets: [].into() };
        let m = b.tensor("m", &[16, 8], Dtype::UFixed8, quant, Role::Static(Bytes::copy_from(&[1; 16 * 8])));
        let y = b.output("y", &[1, 16], Dtype::F32);
        b.node("FullyConnected", &[], &[sums, m], &[y]);
        let graphs = vec![SourceGraph { name: "g".into(), ..b.graph }];
        let packing = Packing::MINIMA;
        let data = Bytes::copy_from(&vec![0; packing.size_bytes(16, 8).expect("small")]);
        let image = Image { graphs, packed: vec![Packed { of: (0, m), tag: packing.tag(), data }] };
        let traffic = Traffic::of(&image);
        let read = &traffic.graph("g").expect("it is there")[0];
        assert_eq!((read.bytes, read.products), (16 * 4 + 16 * 8, 0));
    }

    #[test]
    fn files_of_others_tell_nothing_and_torn_ones_say_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.bin");
        assert!(matches!(Traffic::of_file(&path), Err(TrafficError::Io(_))));
        std::fs::write(&path, "something else").expect("writes");
        assert!(matches!(Traffic::of_file(&path), Ok(None)));
        let file = encode(&Image { graphs: vec![tied()], packed: Vec::new() }).expect("encodes");
        std::fs::write(&path, &file).expect("writes");
        assert!(Traffic::of_file(&path).expect("reads").expect("is ours").graph("tied").is_some());
        std::fs::write(&path, &file[..200]).expect("writes");
        assert!(matches!(Traffic::of_file(&path), Err(TrafficError::Format(_))));
    }
}
