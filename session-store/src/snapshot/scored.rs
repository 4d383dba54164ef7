//! What `KeyDiff` drops next, to bytes and back. The layout is in the table of `sections`.

use genie_types::LayerIdx;
use kvmanager::{ScoredHead, ScoredRows};

use super::container::Reader;
use crate::error::Corruption;

pub(super) fn write(scored: &ScoredRows) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend((scored.age as u64).to_le_bytes());
    let mut number = |n: usize| out.extend((n as u32).to_le_bytes());
    number(scored.sinks);
    number(scored.heads.len());
    for head in &scored.heads {
        number(head.layer.0);
        number(head.own_head.unwrap_or(u32::MAX as usize));
        number(head.head);
        number(head.rows.len());
        head.rows.iter().for_each(|&row| number(row));
    }
    out
}

pub(super) fn read(bytes: &[u8]) -> Result<ScoredRows, Corruption> {
    let mut reader = Reader::new(bytes, "order of eviction");
    // A number of steps may be any; a rule scores again long before it matters.
    let age = usize::try_from(reader.u64()?).unwrap_or(usize::MAX);
    let sinks = reader.u32()? as usize;
    let mut heads = Vec::new();
    for _ in 0..reader.u32()? {
        let mut number = || reader.u32().map(|n| n as usize);
        let (layer, own_head, head, n) = (LayerIdx(number()?), number()?, number()?, number()?);
        let rows = (0..n).map(|_| number()).collect::<Result<_, _>>()?;
        heads.push(ScoredHead { layer, own_head: (own_head != u32::MAX as usize).then_some(own_head), head, rows });
    }
    reader.end()?;
    Ok(ScoredRows { age, sinks, heads })
}
