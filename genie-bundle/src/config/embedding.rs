//! The `embedding` block: a file of token embeddings for graphs that take `inputs_embeds`.

use std::path::{Path, PathBuf};

use genie_types::Dtype;
use serde::Deserialize;

use super::problem::Problem;
use super::settings::{EmbeddingSettings, TableDtype, TableNumbers};
use super::values::resolve;

const AT: &str = "/dialog/embedding";

/// Mirrors `embedding`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RawEmbedding {
    size: usize,
    #[serde(rename = "type")]
    kind: Option<String>,
    lut_path: Option<String>,
    datatype: Option<String>,
    quant_param: Option<RawQuant>,
}

#[derive(Deserialize)]
struct RawQuant {
    scale: RawNumbers,
    offset: RawNumbers,
}

/// One number for the table, or a file of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawNumbers {
    One(f64),
    Path(String),
    Block { path: String },
}

impl RawNumbers {
    fn one(&self) -> Option<f64> {
        if let Self::One(number) = self { Some(*number) } else { None }
    }

    fn file(&self, base: &Path) -> Option<PathBuf> {
        match self {
            Self::One(_) => None,
            Self::Path(path) | Self::Block { path } => Some(resolve(base, path)),
        }
    }
}

pub(super) fn table(raw: RawEmbedding, base: &Path, problems: &mut Vec<Problem>) -> Option<EmbeddingSettings> {
    let mut bad = |key: &str, message: &str| problems.push(Problem::new(format!("{AT}/{key}"), message));
    if raw.size == 0 {
        bad("size", "expected at least 1, found 0");
    }
    if raw.kind.as_deref() == Some("callback") {
        return None;
    }
    let Some(path) = raw.lut_path else {
        bad("lut-path", "required: the embeddings must come from a file");
        return None;
    };
    let (dtype, bits) = match raw.datatype.as_deref() {
        Some("native") => (None, 0),
        Some("ufixed2") => (None, 2),
        Some("ufixed4") => (None, 4),
        Some("ufixed8") => (Some(Dtype::UFixed8), 8),
        Some("ufixed16") => (Some(Dtype::UFixed16), 16),
        Some("sfixed8") => (Some(Dtype::SFixed8), 8),
        Some("sfixed16") => (Some(Dtype::SFixed16), 16),
        _ => return Some(EmbeddingSettings { path: resolve(base, &path), size: raw.size, dtype: TableDtype::Float32 }),
    };
    if bits == 0 {
        return Some(EmbeddingSettings { path: resolve(base, &path), size: raw.size, dtype: TableDtype::Native });
    }
    let Some(q) = raw.quant_param else {
        bad("quant-param", "required for a table of fixed-point codes");
        return None;
    };
    if let Some(scale) = q.scale.one().map(|scale| scale as f32)
        && !(scale.is_finite() && scale > 0.0)
    {
        bad("quant-param/scale", &format!("expected a number above 0, found {scale}"));
    }
    if let Some(offset) = q.offset.one()
        && (offset.fract() != 0.0 || offset.abs() > f64::from(i32::MAX))
    {
        bad("quant-param/offset", &format!("expected a 32-bit integer, found {offset}"));
    }
    if !(raw.size * bits as usize).is_multiple_of(8) {
        bad(
            "size",
            &format!("expected codes of {bits} bits to fill whole bytes in each row, found {} codes", raw.size),
        );
    }
    let dtype = match (dtype, q.scale.one(), q.offset.one()) {
        (Some(dtype), Some(scale), Some(offset)) => {
            TableDtype::Fixed { dtype, scale: scale as f32, offset: offset as i32 }
        }
        (dtype, scale, offset) => TableDtype::Codes {
            bits,
            signed: dtype.is_some_and(|dtype| matches!(dtype, Dtype::SFixed8 | Dtype::SFixed16)),
            scale: q.scale.file(base).map_or(TableNumbers::One(scale.unwrap_or(1.0) as f32), TableNumbers::File),
            offset: q.offset.file(base).map_or(TableNumbers::One(offset.unwrap_or(0.0) as i32), TableNumbers::File),
        },
    };
    Some(EmbeddingSettings { path: resolve(base, &path), size: raw.size, dtype })
}
