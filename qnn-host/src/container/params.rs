//! Parameters of nodes in a context binary: a form, then the value.
//!
//! ```text
//! param = u8 0 f32 | u8 1 i64 | u8 2 u64 | u8 3 u8 bool | u8 4 n u32 dims  n i64 values
//!       | u8 5 f64 | u8 6 text | u8 7 u32 dtype  n u32 dims  n u8 data          (format 4; ops of packages)
//! ```

use crate::graph::walk::MAX_RANK;
use crate::ir::{Dtype, Param};

use super::wire::{Reader, Writer};
use super::{FORMAT_VERSION, FormatError, Image, NEWEST_VERSION};

/// The oldest format that can hold these graphs, of those that are written.
pub(super) fn format_version(image: &Image) -> u32 {
    let is_new = |param: &Param| matches!(param, Param::F64(_) | Param::Text(_) | Param::Tensor { .. });
    let mut nodes = image.graphs.iter().flat_map(|graph| &graph.nodes);
    if nodes.any(|node| node.params.iter().any(|(_, p)| is_new(p))) { NEWEST_VERSION } else { FORMAT_VERSION }
}

/// Writes a parameter's form and value.
///
/// # Errors
/// More than the format can count.
pub(super) fn write(w: &mut Writer, param: &Param) -> Result<(), FormatError> {
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
        Param::F64(v) => {
            w.u8(5);
            w.u64(v.to_bits());
        }
        Param::Text(v) => {
            w.u8(6);
            w.text(v)?;
        }
        Param::Tensor { dtype, dims, data } => {
            w.u8(7);
            w.u32(*dtype as u32);
            w.u32s(dims.iter().copied())?;
            w.len(data.len())?;
            w.bytes.extend_from_slice(data);
        }
    }
    Ok(())
}

/// Reads what [`write`] wrote.
///
/// # Errors
/// An unknown form, or values that contradict the extents.
pub(super) fn read(r: &mut Reader<'_>) -> Result<Param, FormatError> {
    Ok(match r.u8()? {
        0 => Param::F32(r.f32()?),
        1 => Param::Int(r.u64()? as i64),
        2 => Param::UInt(r.u64()?),
        3 => match r.u8()? {
            v @ 0..=1 => Param::Bool(v == 1),
            v => return Err(r.malformed(format!("expected 0 or 1, found {v}"))),
        },
        4 => {
            let dims = r.u32s()?;
            let n = r.count(8)?;
            let values = (0..n).map(|_| Ok(r.u64()? as i64)).collect::<Result<Vec<_>, FormatError>>()?;
            if dims.iter().try_fold(1usize, |a, &d| a.checked_mul(d as usize)) != Some(values.len()) {
                return Err(r.malformed(format!("expected values for {dims:?}, found {}", values.len())));
            }
            Param::Ints(dims, values)
        }
        5 => Param::F64(f64::from_bits(r.u64()?)),
        6 => Param::Text(r.text()?),
        7 => {
            let number = r.u32()?;
            let dtype =
                Dtype::from_qnn(number).ok_or_else(|| r.malformed(format!("unknown element type {number:#06x}")))?;
            let dims = r.u32s()?;
            let n = r.count(1)?;
            let bytes = dims.iter().try_fold(dtype.size_bytes(), |a, &d| a.checked_mul(d as usize));
            if dims.len() > MAX_RANK || bytes != Some(n) {
                return Err(r.malformed(format!("expected {dtype:?} for {dims:?}, found {n} bytes")));
            }
            Param::Tensor { dtype, dims, data: r.take(n)?.into() }
        }
        other => return Err(r.malformed(format!("unknown parameter form {other}"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(param: &Param) -> Vec<u8> {
        let mut w = Writer::default();
        write(&mut w, param).unwrap();
        w.bytes
    }

    #[test]
    fn every_form_is_read_as_it_was_written() {
        let data = [1u8, 0, 255, 255].as_slice().into();
        let params = [
            Param::F32(-0.5),
            Param::Int(-3),
            Param::UInt(u64::MAX),
            Param::Bool(true),
            Param::Ints(vec![2, 1], vec![-1, 7]),
            Param::F64(0.1),
            Param::Text("row-major".into()),
            Param::Tensor { dtype: Dtype::I16, dims: vec![1, 2], data },
        ];
        for param in params {
            let bytes = written(&param);
            let mut r = Reader::new(&bytes, 0);
            assert_eq!(read(&mut r).unwrap(), param);
            r.finish().unwrap();
            for cut in 0..bytes.len() {
                assert!(read(&mut Reader::new(&bytes[..cut], 0)).is_err(), "{param:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn malformed_values_are_refused() {
        let tensor = |dtype, dims, n: usize| written(&Param::Tensor { dtype, dims, data: vec![0; n].into() });
        let mut no_type = tensor(Dtype::U8, vec![1], 1);
        no_type[1] = 0x77;
        for (bytes, message) in [
            (tensor(Dtype::I16, vec![2], 3), "expected I16 for [2], found 3 bytes"),
            (tensor(Dtype::U8, vec![u32::MAX; 8], 4), "found 4 bytes"),
            (tensor(Dtype::U8, vec![1; MAX_RANK + 1], 1), "found 1 bytes"),
            (no_type, "unknown element type 0x0177"),
            (written(&Param::Text("a\0b".into())), "a zero byte"),
            (vec![8], "unknown parameter form 8"),
        ] {
            let error = read(&mut Reader::new(&bytes, 0)).unwrap_err().to_string();
            assert!(error.contains(message), "expected {message}, found {error}");
        }
    }
}
