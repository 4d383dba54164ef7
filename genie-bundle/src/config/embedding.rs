//! The `embedding` block: a file of token embeddings for graphs that take `inputs_embeds`.

use std::path::Path;

use genie_types::Dtype;
use serde::Deserialize;

use super::node::Node;
use super::problem::Problem;
use super::settings::{EmbeddingSettings, TableDtype};
use super::values::resolve;

const AT: &str = "/dialog/embedding";

/// Mirrors `embedding` after [`unsupported`] has let it pass.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RawEmbedding {
    size: usize,
    lut_path: Option<String>,
    datatype: Option<String>,
    quant_param: Option<RawQuant>,
}

#[derive(Deserialize)]
struct RawQuant {
    scale: f32,
    offset: f64,
}

/// Features of the block that this build does not have.
pub(super) fn unsupported(dialog: &Node<'_>, out: &mut Vec<Problem>) {
    let Some(e) = dialog.get("embedding") else { return };
    if e.str("type") == Some("callback") {
        out.push(e.problem_at("type", "embedding input by callback is not yet supported"));
    }
    if let Some(kind @ ("ufixed2" | "ufixed4")) = e.str("datatype") {
        out.push(e.problem_at("datatype", format!("an embedding table of `{kind}` is not yet supported")));
    }
    if let Some(q) = e.get("quant-param") {
        for key in ["scale", "offset"] {
            if q.get(key).is_some_and(|v| v.as_f64().is_none()) {
                out.push(q.problem_at(key, "quantisation parameters in a file are not yet supported"));
            }
        }
    }
}

pub(super) fn table(raw: RawEmbedding, base: &Path, problems: &mut Vec<Problem>) -> Option<EmbeddingSettings> {
    let mut bad = |key: &str, message: &str| problems.push(Problem::new(format!("{AT}/{key}"), message));
    if raw.size == 0 {
        bad("size", "expected at least 1, found 0");
    }
    let Some(path) = raw.lut_path else {
        bad("lut-path", "required: the embeddings must come from a file");
        return None;
    };
    let fixed = match raw.datatype.as_deref() {
        Some("native") => None,
        Some("ufixed8") => Some(Dtype::UFixed8),
        Some("ufixed16") => Some(Dtype::UFixed16),
        Some("sfixed8") => Some(Dtype::SFixed8),
        Some("sfixed16") => Some(Dtype::SFixed16),
        _ => return Some(EmbeddingSettings { path: resolve(base, &path), size: raw.size, dtype: TableDtype::Float32 }),
    };
    let dtype = match (fixed, raw.quant_param) {
        (None, _) => TableDtype::Native,
        (Some(_), None) => {
            bad("quant-param", "required for a table of fixed-point codes");
            return None;
        }
        (Some(dtype), Some(q)) => {
            if !q.scale.is_finite() || q.scale <= 0.0 {
                bad("quant-param/scale", &format!("expected a number above 0, found {}", q.scale));
            }
            if q.offset.fract() != 0.0 || q.offset.abs() > f64::from(i32::MAX) {
                bad("quant-param/offset", &format!("expected a 32-bit integer, found {}", q.offset));
            }
            TableDtype::Fixed { dtype, scale: q.scale, offset: q.offset as i32 }
        }
    };
    Some(EmbeddingSettings { path: resolve(base, &path), size: raw.size, dtype })
}
