//! The sections of a snapshot, to bytes and back.
//!
//! | kind | section, little-endian |
//! |---|---|
//! | 1 | model hash, 32 bytes |
//! | 2 | version 1 only: tokens of sequence 0, u32 each |
//! | 3 | u32 count, then next position of each sequence (u32, u64); u32 count, then for each group u32 whether heads differ, u64 count of cells, and for each cell u64 position, u64 owners |
//! | 4 | u32 count, then tensors: layer, head or all ones, key or value, heads, head_dim, type, group (u32 each), scale f32, offset i32 |
//! | 5 | rows of tensor `index` |
//! | 6 | the caller's own bytes |
//! | 7 | sequence `index`: for each token u32 token, u32 whether it was generated, u64 position |
//! | 8 | dialog: u32 flags (1 open, 2 unprocessed token), u32 that token |
//! | 9 | dialog: random state of the sampler, text |
//! | 10 | the bundle's name, text; may be absent, and a reader that does not know it skips it |
//! | 11 | the LoRA adapters applied last, text, empty for none; may be absent like the name |
//! | 12 | what `KeyDiff` drops next in group `index`; may be absent: u64 rows of a head dropped since the scoring, u32 reserved tokens, u32 count, then for each head layer, own head or all ones, head and count (u32 each), and as many rows (u32) |
//! | 13 | what the scorer has learned, bytes of its own; may be absent |
//! | 14 | dialog: the grammar of its replies: u64 which, u32 flags (1 ended), then the tokens it has taken, u32 each; may be absent |
//! | 15 | dialog: mirostat's bound of the surprise in bits, f64; may be absent |

use std::io::{Read, Write};

use genie_types::{LayerIdx, TokenId};
use kvmanager::{Cell, GroupImage, KvDtype, KvImage, KvKind, KvLayout, KvTensor, SeqId};

use super::container::{self, ReadError, Reader, Tag};
use super::{DialogState, GrammarState, SavedSequence, SavedToken, Snapshot, scored, v1};
use crate::error::Corruption;
use crate::names::VERSION;
use crate::{ModelHash, StoreError};

const MODEL: u32 = 1;
const TOKENS: u32 = 2;
const GROUPS: u32 = 3;
const GEOMETRY: u32 = 4;
const ROWS: u32 = 5;
const USER_DATA: u32 = 6;
const SEQUENCE: u32 = 7;
const DIALOG: u32 = 8;
const RANDOM_STATE: u32 = 9;
const BUNDLE: u32 = 10;
const ADAPTERS: u32 = 11;
const SCORED: u32 = 12;
const SCORER: u32 = 13;
const GRAMMAR: u32 = 14;
const MIROSTAT: u32 = 15;

const OPEN: u32 = 1;
const UNPROCESSED: u32 = 2;
const ENDED: u32 = 1;

pub(super) fn write(snapshot: &Snapshot, out: &mut dyn Write) -> std::io::Result<()> {
    let (groups, geometry) = (write_groups(&snapshot.image), write_geometry(&snapshot.image.tensors));
    let sequences: Vec<_> = snapshot.sequences.iter().map(|s| (s.seq, write_sequence(&s.tokens))).collect();
    let dialog = snapshot.dialog.as_ref().map(|d| (write_dialog(d), d.random_state.as_bytes()));
    let grammar = snapshot.dialog.as_ref().and_then(|d| d.grammar.as_ref()).map(write_grammar);
    let mirostat_mu = snapshot.dialog.as_ref().and_then(|d| d.mirostat_mu).map(f64::to_le_bytes);
    let mut sections: Vec<(Tag, &[u8])> = vec![(Tag::new(MODEL, 0), &snapshot.model.0)];
    sections.extend(sequences.iter().map(|(seq, bytes)| (Tag::new(SEQUENCE, seq.0.into()), bytes.as_slice())));
    if let Some((dialog, random_state)) = &dialog {
        sections.extend([(Tag::new(DIALOG, 0), dialog.as_slice()), (Tag::new(RANDOM_STATE, 0), random_state)]);
    }
    sections.extend(grammar.iter().map(|bytes| (Tag::new(GRAMMAR, 0), bytes.as_slice())));
    sections.extend(mirostat_mu.iter().map(|bytes| (Tag::new(MIROSTAT, 0), bytes.as_slice())));
    sections.extend([(Tag::new(GROUPS, 0), groups.as_slice()), (Tag::new(GEOMETRY, 0), &geometry)]);
    if !snapshot.user_data.is_empty() {
        sections.push((Tag::new(USER_DATA, 0), &snapshot.user_data));
    }
    if !snapshot.bundle.is_empty() {
        sections.push((Tag::new(BUNDLE, 0), snapshot.bundle.as_bytes()));
    }
    if let Some(adapters) = &snapshot.adapters {
        sections.push((Tag::new(ADAPTERS, 0), adapters.as_bytes()));
    }
    let scored = snapshot.image.groups.iter().zip(0..);
    let scored: Vec<_> = scored.filter_map(|(group, i)| Some((i, scored::write(group.scored.as_ref()?)))).collect();
    sections.extend(scored.iter().map(|(group, bytes)| (Tag::new(SCORED, *group), bytes.as_slice())));
    if !snapshot.image.scorer.is_empty() {
        sections.push((Tag::new(SCORER, 0), &snapshot.image.scorer));
    }
    let rows = snapshot.image.data.iter().enumerate();
    sections.extend(rows.map(|(i, rows)| (Tag::new(ROWS, i as u32), rows.as_slice())));
    container::write(VERSION, &sections, out)
}

/// Sections that have come, before they make a snapshot.
#[derive(Default)]
struct Parts {
    model: Option<ModelHash>,
    v1_tokens: Option<Vec<TokenId>>,
    groups: Option<()>,
    geometry: Option<()>,
    image: KvImage,
    sequences: Vec<SavedSequence>,
    dialog: Option<DialogState>,
    random_state: Option<String>,
    grammar: Option<GrammarState>,
    mirostat_mu: Option<f64>,
    user_data: Option<Vec<u8>>,
    bundle: Option<String>,
    adapters: Option<String>,
}

/// Reads a snapshot of `found` bytes.
pub(super) fn read(source: &mut dyn Read, found: u64) -> Result<Snapshot, ReadError> {
    let mut parts = Parts::default();
    let version = container::read(source, found, &mut |tag, bytes| parts.take(tag, bytes))?;
    let missing = |kind| Corruption::SectionMissing { kind };
    let model = parts.model.ok_or_else(|| missing(MODEL))?;
    parts.groups.ok_or_else(|| missing(GROUPS))?;
    parts.geometry.ok_or_else(|| missing(GEOMETRY))?;
    let user_data = parts.user_data.unwrap_or_default();
    let bundle = parts.bundle.unwrap_or_default();
    let snapshot = if version == 1 {
        v1::convert(model, parts.image, parts.v1_tokens.ok_or_else(|| missing(TOKENS))?, user_data)?
    } else {
        let mut dialog = parts.dialog;
        match (&mut dialog, parts.random_state) {
            (Some(dialog), Some(text)) => dialog.random_state = text,
            (None, None) => {}
            (Some(_), None) => return Err(missing(RANDOM_STATE).into()),
            (None, Some(_)) => return Err(missing(DIALOG).into()),
        }
        match &mut dialog {
            Some(dialog) => (dialog.grammar, dialog.mirostat_mu) = (parts.grammar, parts.mirostat_mu),
            None if parts.grammar.is_some() || parts.mirostat_mu.is_some() => return Err(missing(DIALOG).into()),
            None => {}
        }
        Snapshot {
            model,
            image: parts.image,
            sequences: parts.sequences,
            dialog,
            user_data,
            bundle,
            adapters: parts.adapters,
        }
    };
    snapshot.image.check()?;
    Ok(snapshot)
}

impl Parts {
    fn take(&mut self, tag: Tag, bytes: Vec<u8>) -> Result<(), StoreError> {
        fn once<T>(field: &mut Option<T>, tag: Tag, value: T) -> Result<(), StoreError> {
            if field.replace(value).is_some() { Err(tag.out_of_order().into()) } else { Ok(()) }
        }
        match tag.kind {
            MODEL => {
                let hash = bytes.as_slice().try_into();
                let hash = hash.map_err(|_| Corruption::Length { what: "model hash", n_bytes: bytes.len() })?;
                once(&mut self.model, tag, ModelHash(hash))
            }
            TOKENS => once(&mut self.v1_tokens, tag, v1::read_tokens(&bytes)?),
            GROUPS => {
                once(&mut self.groups, tag, ())?;
                Ok(read_groups(&bytes, &mut self.image)?)
            }
            GEOMETRY => {
                once(&mut self.geometry, tag, ())?;
                self.image.tensors = read_geometry(&bytes)?;
                Ok(())
            }
            ROWS if tag.index as usize == self.image.data.len() => {
                self.image.data.push(bytes);
                Ok(())
            }
            ROWS => Err(tag.out_of_order().into()),
            USER_DATA => once(&mut self.user_data, tag, bytes),
            SEQUENCE => {
                let seq = sequence_id(tag.index)?;
                if self.sequences.last().is_some_and(|last| last.seq.0 >= seq.0) {
                    return Err(tag.out_of_order().into());
                }
                self.sequences.push(SavedSequence { seq, tokens: read_sequence(&bytes)? });
                Ok(())
            }
            DIALOG => once(&mut self.dialog, tag, read_dialog(&bytes)?),
            RANDOM_STATE => {
                let text = String::from_utf8(bytes).map_err(|_| Corruption::NotText { what: "random state" })?;
                once(&mut self.random_state, tag, text)
            }
            BUNDLE => {
                let name = String::from_utf8(bytes).map_err(|_| Corruption::NotText { what: "bundle's name" })?;
                once(&mut self.bundle, tag, name)
            }
            GRAMMAR => once(&mut self.grammar, tag, read_grammar(&bytes)?),
            MIROSTAT => once(&mut self.mirostat_mu, tag, read_mirostat_mu(&bytes)?),
            ADAPTERS => {
                let text = String::from_utf8(bytes).map_err(|_| Corruption::NotText { what: "LoRA adapters" })?;
                once(&mut self.adapters, tag, text)
            }
            SCORED => {
                let group = self.image.groups.get_mut(tag.index as usize).ok_or_else(|| tag.out_of_order())?;
                once(&mut group.scored, tag, scored::read(&bytes)?)
            }
            SCORER if self.image.scorer.is_empty() => {
                self.image.scorer = bytes;
                Ok(())
            }
            SCORER => Err(tag.out_of_order().into()),
            _ => Ok(()),
        }
    }
}

/// A sequence that a cache can have.
pub(super) fn sequence_id(found: u32) -> Result<SeqId, Corruption> {
    let seq = u8::try_from(found).ok().filter(|&seq| usize::from(seq) < SeqId::COUNT);
    seq.map(SeqId).ok_or(Corruption::Sequence { found })
}

fn write_sequence(tokens: &[SavedToken]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 * tokens.len());
    for t in tokens {
        out.extend(t.token.0.to_le_bytes());
        out.extend(u32::from(t.generated).to_le_bytes());
        out.extend((t.position as u64).to_le_bytes());
    }
    out
}

fn read_sequence(bytes: &[u8]) -> Result<Vec<SavedToken>, Corruption> {
    let mut reader = Reader::new(bytes, "sequence");
    let mut tokens = Vec::with_capacity(bytes.len() / 16);
    while !reader.is_empty() {
        let (token, generated, position) = (TokenId(reader.u32()?), reader.u32()? != 0, reader.u64()?);
        let position =
            usize::try_from(position).map_err(|_| Corruption::Number { what: "position", found: position })?;
        tokens.push(SavedToken { token, position, generated });
    }
    Ok(tokens)
}

fn write_dialog(dialog: &DialogState) -> Vec<u8> {
    let flags = u32::from(dialog.open) * OPEN + u32::from(dialog.unprocessed.is_some()) * UNPROCESSED;
    let token = dialog.unprocessed.map_or(0, |t| t.0);
    [flags, token].iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn read_dialog(bytes: &[u8]) -> Result<DialogState, Corruption> {
    let mut reader = Reader::new(bytes, "dialog");
    let (flags, token) = (reader.u32()?, TokenId(reader.u32()?));
    reader.end()?;
    let unprocessed = (flags & UNPROCESSED != 0).then_some(token);
    Ok(DialogState { unprocessed, open: flags & OPEN != 0, ..DialogState::default() })
}

fn write_grammar(state: &GrammarState) -> Vec<u8> {
    let mut out = state.grammar.to_le_bytes().to_vec();
    out.extend((u32::from(state.ended) * ENDED).to_le_bytes());
    state.tokens.iter().for_each(|token| out.extend(token.0.to_le_bytes()));
    out
}

fn read_grammar(bytes: &[u8]) -> Result<GrammarState, Corruption> {
    let mut reader = Reader::new(bytes, "grammar");
    let (grammar, flags) = (reader.u64()?, reader.u32()?);
    let mut tokens = Vec::new();
    while !reader.is_empty() {
        tokens.push(TokenId(reader.u32()?));
    }
    Ok(GrammarState { grammar, tokens, ended: flags & ENDED != 0 })
}

fn read_mirostat_mu(bytes: &[u8]) -> Result<f64, Corruption> {
    let mut reader = Reader::new(bytes, "bound of mirostat");
    let bits = reader.u64()?;
    reader.end()?;
    let mu = Some(f64::from_bits(bits)).filter(|mu| mu.is_finite());
    mu.ok_or(Corruption::Number { what: "bound of mirostat", found: bits })
}

fn write_groups(image: &KvImage) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend((image.next.len() as u32).to_le_bytes());
    for (seq, next) in &image.next {
        out.extend(u32::from(seq.0).to_le_bytes());
        out.extend((*next as u64).to_le_bytes());
    }
    out.extend((image.groups.len() as u32).to_le_bytes());
    for group in &image.groups {
        out.extend(u32::from(group.per_head_rows).to_le_bytes());
        out.extend((group.cells.len() as u64).to_le_bytes());
        for cell in &group.cells {
            out.extend((cell.pos as u64).to_le_bytes());
            out.extend(cell.seqs.to_le_bytes());
        }
    }
    out
}

fn read_groups(bytes: &[u8], image: &mut KvImage) -> Result<(), Corruption> {
    let mut reader = Reader::new(bytes, "groups");
    for _ in 0..reader.u32()? {
        let (seq, next) = (reader.u32()?, reader.usize()?);
        image.next.push((sequence_id(seq)?, next));
    }
    for _ in 0..reader.u32()? {
        let per_head_rows = reader.u32()? != 0;
        let n = reader.usize()?;
        let mut cells = Vec::new();
        for _ in 0..n {
            let (pos, seqs) = (reader.usize()?, reader.u64()?);
            cells.push(Cell { pos, rotated_pos: pos, seqs });
        }
        image.groups.push(GroupImage { per_head_rows, ..GroupImage::of_cells(cells) });
    }
    reader.end()
}

fn write_geometry(tensors: &[KvTensor]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend((tensors.len() as u32).to_le_bytes());
    for t in tensors {
        let dtype = match t.dtype {
            KvDtype::U8 => 0u32,
            KvDtype::U16 => 1,
            KvDtype::F16 => 2,
            KvDtype::F32 => 3,
        };
        let head = t.head.map_or(u32::MAX, |h| h as u32);
        // In the order of the list, to which new kinds are added at the end.
        let kind = KvKind::ALL.iter().position(|kind| *kind == t.kind).unwrap_or_default() as u32;
        for n in [t.layer.0 as u32, head, kind, t.n_heads as u32, t.head_dim as u32, dtype, t.group as u32] {
            out.extend(n.to_le_bytes());
        }
        out.extend(t.scale.to_le_bytes());
        out.extend(t.offset.to_le_bytes());
    }
    out
}

fn read_geometry(bytes: &[u8]) -> Result<Vec<KvTensor>, Corruption> {
    let mut reader = Reader::new(bytes, "geometry");
    let mut tensors = Vec::new();
    for _ in 0..reader.u32()? {
        let mut n = [0; 7];
        for n in &mut n {
            *n = reader.u32()?;
        }
        let [layer, head, kind, n_heads, head_dim, dtype, group] = n;
        let dtype = match dtype {
            0 => KvDtype::U8,
            1 => KvDtype::U16,
            2 => KvDtype::F16,
            3 => KvDtype::F32,
            _ => return Err(Corruption::Number { what: "element type", found: dtype.into() }),
        };
        // Extents that no model has would overflow sizes later on.
        if n_heads == 0 || head_dim == 0 || n_heads > 1 << 16 || head_dim > 1 << 16 {
            return Err(Corruption::Tensor { n_heads, head_dim, kind });
        }
        let Some(&kind) = KvKind::ALL.get(kind as usize) else {
            return Err(Corruption::Tensor { n_heads, head_dim, kind });
        };
        tensors.push(KvTensor {
            layer: LayerIdx(layer as usize),
            head: (head != u32::MAX).then_some(head as usize),
            kind,
            layout: KvLayout::of(kind),
            n_heads: n_heads as usize,
            head_dim: head_dim as usize,
            dtype,
            scale: f32::from_bits(reader.u32()?),
            offset: reader.u32()? as i32,
            group: group as usize,
        });
    }
    reader.end()?;
    Ok(tensors)
}
