//! `--embedding-file FILE[,TYPE[,SCALE,OFFSET]]`: a prompt of embeddings, as Genie's own program takes it.

use std::path::PathBuf;
use std::str::FromStr;

use genie_types::Dtype;
use open_genie::LutDtype;

/// A file of rows and the type of its numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingFile {
    pub path: PathBuf,
    pub dtype: LutDtype,
}

impl FromStr for EmbeddingFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let of = |path: &str, dtype| Ok(Self { path: path.into(), dtype });
        let fixed = |name: &str| match name {
            "ufixed8" => Some(Dtype::UFixed8),
            "ufixed16" => Some(Dtype::UFixed16),
            "sfixed8" => Some(Dtype::SFixed8),
            "sfixed16" => Some(Dtype::SFixed16),
            _ => None,
        };
        // A file's name may have commas: what is asked for is read from the right.
        if let [offset, scale, name, path] = text.rsplitn(4, ',').collect::<Vec<_>>()[..]
            && let Some(dtype) = fixed(name.trim())
        {
            let number = |what: &str, text: &str| format!("expected a number as the {what}, found `{text}`");
            let scale = scale.trim().parse::<f32>().ok().filter(|s| s.is_finite() && *s > 0.0);
            let scale = scale.ok_or_else(|| number("scale, above 0", text))?;
            let offset = offset.trim().parse::<i32>().map_err(|_| number("offset", offset))?;
            return of(path, LutDtype::Fixed { dtype, scale, offset });
        }
        match text.rsplit_once(',') {
            Some((path, "float32")) => of(path, LutDtype::Float32),
            Some((path, "native")) => of(path, LutDtype::Native),
            Some((_, name)) if fixed(name).is_some() => {
                Err(format!("`{name}` needs a scale and an offset: FILE,{name},SCALE,OFFSET"))
            }
            _ => of(text, LutDtype::Float32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_is_read_from_the_right() {
        let parse = |text: &str| text.parse::<EmbeddingFile>();
        let file = |path: &str, dtype| Ok(EmbeddingFile { path: path.into(), dtype });
        assert_eq!(parse("a.raw"), file("a.raw", LutDtype::Float32));
        assert_eq!(parse("a,b.raw"), file("a,b.raw", LutDtype::Float32));
        assert_eq!(parse("a,b.raw,native"), file("a,b.raw", LutDtype::Native));
        let fixed = LutDtype::Fixed { dtype: Dtype::UFixed8, scale: 0.5, offset: -128 };
        assert_eq!(parse("a,b.raw,ufixed8,0.5,-128"), file("a,b.raw", fixed));
        assert!(parse("a.raw,ufixed8").unwrap_err().contains("needs a scale and an offset"));
        assert!(parse("a.raw,ufixed8,x,1").is_err());
    }
}
