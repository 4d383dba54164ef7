//! Reads a context binary and checks every field: the bytes are untrusted.

use xxhash_rust::xxh3::xxh3_64;

use crate::bytes::Bytes;
use crate::ir::{BlockScales, Dtype, Node, Quant, Role, SourceGraph, Tensor, TensorId};
use crate::validate;

use super::packed_only::Unpacked;
use super::params;
use super::wire::Reader;
use super::{BLOB_ALIGN, EAGER_BYTES, FormatError, HEADER_BYTES, Image, MAGIC, NEWEST_VERSION, PAGE, Packed, Verify};

/// Contents of the header and metadata; the weights are not read.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The build that wrote it.
    pub build_id: String,
    /// Its format version.
    pub format_version: u32,
    /// Bytes of all weights, shared ones once.
    pub weights_bytes: u64,
    /// Distinct static tensors (and packed forms).
    pub blobs: usize,
    /// Size of the whole binary, in bytes.
    pub total_bytes: u64,
}

/// True when the bytes begin as a context binary of this backend does.
pub fn is_ours(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

pub(super) struct Header {
    total: u64,
    pub(super) meta: std::ops::Range<usize>,
    meta_hash: u64,
    pub(super) weights: std::ops::Range<usize>,
    blobs: u32,
    graphs: u32,
    version: u32,
}

pub(super) struct Blob {
    pub(super) range: std::ops::Range<usize>,
    pub(super) hash: u64,
}

/// Reads the header and the metadata's frame only.
///
/// # Errors
/// As [`decode`], for what it reads.
pub fn summary(bytes: &[u8]) -> Result<Summary, FormatError> {
    let header = read_header(bytes, bytes.len() as u64)?;
    let (build_id, ..) = read_tables(&bytes[header.meta.clone()], &header)?;
    Ok(Summary {
        build_id,
        format_version: header.version,
        weights_bytes: header.weights.len() as u64,
        blobs: header.blobs as usize,
        total_bytes: header.total,
    })
}

/// Reads a context binary; static tensors refer to `bytes`, nothing of the weights is copied.
///
/// # Errors
/// The bytes are torn, foreign, newer, damaged or malformed, or a graph breaks a rule of [`validate`].
pub fn decode(bytes: &Bytes, verify: Verify) -> Result<Image, FormatError> {
    let header = read_header(bytes, bytes.len() as u64)?;
    let (_, blobs, mut r) = read_tables(&bytes[header.meta.clone()], &header)?;
    let verify = verify == Verify::All || header.weights.len() as u64 <= EAGER_BYTES;
    if verify {
        for (i, blob) in blobs.iter().enumerate() {
            let found = xxh3_64(&bytes[blob.range.clone()]);
            if found != blob.hash {
                return Err(FormatError::Checksum { what: format!("weights blob {i}"), expected: blob.hash, found });
            }
        }
    }
    let data = |r: &Reader<'_>, index: u32| {
        let blob = blobs.get(index as usize);
        let blob = blob.ok_or_else(|| r.malformed(format!("expected a blob below {}, found {index}", blobs.len())))?;
        bytes.slice(blob.range.clone()).ok_or_else(|| r.malformed("a blob outside of the file"))
    };

    let n = r.count(12)?;
    if n != header.graphs as usize {
        return Err(r.malformed(format!("expected {} graphs as the header says, found {n}", header.graphs)));
    }
    let mut graphs: Vec<SourceGraph> = Vec::new();
    let mut forms = Forms { unpacked: Unpacked::default(), verify, graph: 0, found: Vec::new() };
    for g in 0..n {
        forms.graph = g;
        let graph = read_graph(&mut r, &data, &mut forms)?;
        if graph.name.is_empty() || graphs.iter().any(|g| g.name == graph.name) {
            return Err(r.malformed(format!("expected graph names that differ, found `{}` again", graph.name)));
        }
        graphs.push(graph);
    }
    let mut packed = forms.found;
    for _ in 0..r.count(12)? {
        let (source, tag, form) = (r.u32()?, r.u32()?, r.u32()?);
        let of = find_static(&graphs, &data(&r, source)?);
        let data = data(&r, form)?;
        packed.extend(of.map(|of| Packed { of, tag, data }));
    }
    r.finish()?;
    for graph in &graphs {
        // Scales that lie in packed forms were checked there.
        let mut read = graph
            .tensors
            .iter()
            .filter(|t| !matches!(&t.quant, Quant::Block { scales, .. } if !scales.bytes().is_made()));
        let scales = |()| if verify { read.try_for_each(validate::check_scales) } else { Ok(()) };
        let checked = validate::check_graph(graph).and_then(scales);
        checked.map_err(|source| FormatError::Graph { graph: graph.name.clone(), source })?;
    }
    Ok(Image { graphs, packed })
}

fn find_static(graphs: &[SourceGraph], data: &Bytes) -> Option<(usize, TensorId)> {
    graphs.iter().enumerate().find_map(|(g, graph)| {
        let same = |t: &Tensor| matches!(&t.role, Role::Static(d) if d.id() == data.id() && d.len() == data.len());
        graph.tensors.iter().position(same).map(|t| (g, TensorId(t as u32)))
    })
}

/// Reads the header off the first bytes of a file of `file_bytes`.
pub(super) fn read_header(bytes: &[u8], file_bytes: u64) -> Result<Header, FormatError> {
    let torn = |expected: u64| FormatError::Torn { expected, found: file_bytes };
    let Some(found) = bytes.first_chunk::<8>() else {
        return Err(torn(HEADER_BYTES as u64));
    };
    if *found != MAGIC {
        return Err(FormatError::Foreign { found: *found });
    }
    let head = bytes.get(..HEADER_BYTES).ok_or_else(|| torn(HEADER_BYTES as u64))?;
    let mut r = Reader::new(&head[8..], 8);
    let version = r.u32()?;
    // Before the checksum: a newer format may store its checksum elsewhere.
    if version > NEWEST_VERSION {
        return Err(FormatError::Newer { found: version });
    }
    let stored = u64::from_le_bytes(*head.last_chunk::<8>().expect("the header has 128 bytes"));
    let computed = xxh3_64(&head[..HEADER_BYTES - 8]);
    if stored != computed {
        return Err(FormatError::Checksum { what: "the header".to_owned(), expected: stored, found: computed });
    }
    if version == 0 {
        return Err(r.malformed("format version 0"));
    }
    let header_bytes = r.u32()?;
    if header_bytes as usize != HEADER_BYTES {
        return Err(r.malformed(format!("expected a header of {HEADER_BYTES} bytes, found {header_bytes}")));
    }
    let total = r.u64()?;
    if total != file_bytes {
        if total > file_bytes {
            return Err(torn(total));
        }
        return Err(r.malformed(format!("expected a file of {total} bytes, found {file_bytes}")));
    }
    let part = |r: &mut Reader<'_>, what: &str, hash: bool| {
        let (offset, len) = (r.u64()?, r.u64()?);
        let hash = if hash { r.u64()? } else { 0 };
        let end = offset.checked_add(len).filter(|&end| offset >= HEADER_BYTES as u64 && end <= total);
        let end = end.ok_or_else(|| r.malformed(format!("{what} outside of the file: {len} bytes at {offset}")))?;
        // Both are at most the length of a file that is mapped or was read.
        Ok::<_, FormatError>((offset as usize..end as usize, hash))
    };
    let (meta, meta_hash) = part(&mut r, "metadata", true)?;
    let (weights, _) = part(&mut r, "weights", false)?;
    if weights.start % PAGE != 0 || weights.start < meta.end || weights.end as u64 != total {
        return Err(r.malformed(format!("weights at {weights:?} of {total} after metadata at {meta:?}")));
    }
    Ok(Header { total, meta, meta_hash, weights, blobs: r.u32()?, graphs: r.u32()?, version })
}

/// Reads the build id and the table of blobs off the metadata; the reader then stands at the graphs.
pub(super) fn read_tables<'a>(meta: &'a [u8], header: &Header) -> Result<(String, Vec<Blob>, Reader<'a>), FormatError> {
    let found = xxh3_64(meta);
    if found != header.meta_hash {
        return Err(FormatError::Checksum { what: "the metadata".to_owned(), expected: header.meta_hash, found });
    }
    let mut r = Reader::new(meta, header.meta.start as u64);
    let build_id = r.text()?;
    let n = r.count(24)?;
    if n != header.blobs as usize {
        return Err(r.malformed(format!("expected {} blobs as the header says, found {n}", header.blobs)));
    }
    let mut blobs = Vec::with_capacity(n);
    for _ in 0..n {
        let (offset, len, hash) = (r.u64()?, r.u64()?, r.u64()?);
        let available = header.weights.len() as u64;
        if offset % BLOB_ALIGN as u64 != 0 || offset.checked_add(len).is_none_or(|end| end > available) {
            return Err(r.malformed(format!("a blob of {len} bytes at {offset} in weights of {available} bytes")));
        }
        let start = header.weights.start + offset as usize;
        blobs.push(Blob { range: start..start + len as usize, hash });
    }
    Ok((build_id, blobs, r))
}

type Data<'a> = dyn Fn(&Reader<'_>, u32) -> Result<Bytes, FormatError> + 'a;

/// Tensors that are here in packed form alone.
struct Forms {
    unpacked: Unpacked,
    /// Whether their scales are read now.
    verify: bool,
    /// The graph that is being read.
    graph: usize,
    /// Each form once.
    found: Vec<Packed>,
}

impl Forms {
    /// Reads what stands instead of a blob, and gives the tensor its values and scales.
    fn read(
        &mut self,
        r: &mut Reader<'_>,
        data: &Data<'_>,
        index: usize,
        tensor: &mut Tensor,
    ) -> Result<(), FormatError> {
        let form = r.u32()?;
        let (form, tag) = (data(r, form)?, r.u32()?);
        let halves = match r.u8()? {
            v @ 0..=1 => v == 1,
            v => return Err(r.malformed(format!("expected 0 or 1, found {v}"))),
        };
        let made = self.unpacked.of(&form, tag, halves, tensor, self.verify);
        let wrong = |(expected, found)| {
            r.malformed(format!("packed weights `{}`: expected {expected}, found {found}", tensor.name))
        };
        let (values, made_scales) = made.map_err(wrong)?;
        if let Quant::Block { scales, .. } = &mut tensor.quant {
            *scales = made_scales;
        }
        tensor.role = Role::Static(values);
        if !self.found.iter().any(|known| known.data.id() == form.id()) {
            self.found.push(Packed { of: (self.graph, TensorId(index as u32)), tag, data: form });
        }
        Ok(())
    }
}

fn read_graph(r: &mut Reader<'_>, data: &Data<'_>, forms: &mut Forms) -> Result<SourceGraph, FormatError> {
    let name = r.text()?;
    let n = r.count(18)?;
    let tensors = (0..n).map(|i| read_tensor(r, data, forms, i)).collect::<Result<Vec<_>, _>>()?;
    let n = r.count(20)?;
    let nodes = (0..n).map(|_| read_node(r, tensors.len())).collect::<Result<Vec<_>, _>>()?;
    Ok(SourceGraph { name, tensors, nodes })
}

fn read_tensor(r: &mut Reader<'_>, data: &Data<'_>, forms: &mut Forms, index: usize) -> Result<Tensor, FormatError> {
    let name = r.text()?;
    let dims = r.u32s()?;
    let number = r.u32()?;
    let dtype = Dtype::from_qnn(number).ok_or_else(|| r.malformed(format!("unknown element type {number:#06x}")))?;
    let quant = read_quant(r, data)?;
    let data_format = r.u32()?;
    let role = match r.u8()? {
        5 => {
            let mut tensor = Tensor { name, dims, dtype, quant, data_format, role: Role::Native };
            forms.read(r, data, index, &mut tensor)?;
            return Ok(tensor);
        }
        0 => Role::Input,
        1 => Role::Output,
        2 => Role::Native,
        3 => Role::Null,
        4 => {
            let index = r.u32()?;
            Role::Static(data(r, index)?)
        }
        other => return Err(r.malformed(format!("unknown tensor role {other}"))),
    };
    Ok(Tensor { name, dims, dtype, quant, data_format, role })
}

fn read_quant(r: &mut Reader<'_>, data: &Data<'_>) -> Result<Quant, FormatError> {
    let scales = |r: &mut Reader<'_>| Ok::<_, FormatError>(r.u32s()?.into_iter().map(f32::from_bits));
    let offsets = |r: &mut Reader<'_>| Ok::<_, FormatError>(r.u32s()?.into_iter().map(|v| v as i32).collect());
    Ok(match r.u8()? {
        0 => Quant::None,
        1 => Quant::PerTensor { scale: r.f32()?, offset: r.u32()? as i32 },
        2 => {
            let (axis, bits) = (r.u32()?, r.u32()?);
            Quant::PerAxis { axis, bits, scales: scales(r)?.collect(), offsets: offsets(r)? }
        }
        3 => {
            let block_dims = r.u32s()?.into();
            Quant::Block { block_dims, scales: scales(r)?.collect(), offsets: offsets(r)? }
        }
        4 => {
            let (block_dims, blob) = (r.u32s()?.into(), r.u32()?);
            let scales = BlockScales::new(data(r, blob)?);
            let scales = scales.ok_or_else(|| r.malformed("scales that are no whole number of f32"))?;
            Quant::Block { block_dims, scales, offsets: offsets(r)? }
        }
        // The scales come with the role.
        5 => Quant::Block { block_dims: r.u32s()?.into(), scales: [].into(), offsets: [].into() },
        other => return Err(r.malformed(format!("unknown encoding {other}"))),
    })
}

fn read_node(r: &mut Reader<'_>, n_tensors: usize) -> Result<Node, FormatError> {
    let (name, op) = (r.text()?, r.text()?);
    let mut params = Vec::new();
    for _ in 0..r.count(6)? {
        let name = r.text()?;
        params.push((name, params::read(r)?));
    }
    let ids = |r: &mut Reader<'_>| {
        let ids = r.u32s()?;
        match ids.iter().find(|&&id| id as usize >= n_tensors) {
            Some(id) => Err(r.malformed(format!("expected a tensor below {n_tensors}, found {id}"))),
            None => Ok(ids.into_iter().map(TensorId).collect()),
        }
    };
    let (inputs, outputs) = (ids(r)?, ids(r)?);
    Ok(Node { name, op, params, inputs, outputs })
}
