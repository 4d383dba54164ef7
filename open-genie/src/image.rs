//! Images in a prompt: rows of embeddings from a file or from the bundle's image encoder, put where the image's token stands.

use std::ops::Range;
use std::path::{Path, PathBuf};

use engine::{EmbeddingRows, Grid, ImageEncoder, NumberFile, Reading};
use genie_types::{RopeScaling, TokenId};

use crate::{Error, Session};

/// Tokens that stand for an image in known tokenizers, looked for in this order.
const KNOWN_TOKENS: [&str; 4] = ["<|image_pad|>", "<image>", "<image_soft_token>", "<|image|>"];

impl Session {
    /// The bundle's binary with an image encoder, if it has one.
    pub fn image_encoder(&self) -> Option<&Path> {
        self.image_encoder.as_deref()
    }

    /// Runs an image encoder: the bundle's, or that of another binary. `inputs`: a file for each of its inputs by name, with the
    /// pixels as `pixel_values`. Its graphs are loaded for this call and freed.
    ///
    /// # Errors
    /// [`Error::NoImageEncoder`]; [`Error::Engine`] for files that do not fit, and what the backend refuses.
    pub fn encode_image(&self, encoder: Option<&Path>, inputs: &[(&str, &Path)]) -> Result<EmbeddingRows, Error> {
        let path = encoder.or(self.image_encoder()).ok_or(Error::NoImageEncoder)?;
        let files = inputs.iter().map(|(name, path)| Ok((*name, NumberFile::read(path)?)));
        let files = files.collect::<Result<Vec<_>, engine::EngineError>>()?;
        let reading = Reading::of(self.bundle().config().engine());
        let mut encoder = ImageEncoder::open(&self.active.0.backend, path, reading)?;
        let inputs: Vec<_> = files.iter().map(|(name, file)| (*name, file)).collect();
        Ok(encoder.encode(&inputs)?)
    }

    /// Rows of embeddings from a file: `.npy`, or raw float32.
    ///
    /// # Errors
    /// [`Error::Engine`] for a file that cannot be read, or has other rows than the model takes.
    pub fn read_rows(&self, path: impl AsRef<Path>) -> Result<EmbeddingRows, Error> {
        let file = NumberFile::read(path)?;
        let width = self.embedding_width()?;
        let fits = file.dims.as_ref().is_none_or(|dims| dims.last() == Some(&width));
        if !fits || !file.numbers.len().is_multiple_of(width) {
            let found = file.dims.map_or_else(|| format!("{} numbers", file.numbers.len()), |dims| format!("{dims:?}"));
            let expected = format!("rows of {width} numbers, as the graphs take");
            return Err(engine::EngineError::NumberFile { path: file.path, expected, found }.into());
        }
        let grid = file.dims.as_deref().and_then(Grid::of_extents);
        Ok(EmbeddingRows { width, grid, numbers: file.numbers })
    }

    fn embedding_width(&self) -> Result<usize, Error> {
        self.dialog.model().embedding_width().ok_or(Error::TakesNoRows)
    }

    /// Gives rows of embeddings token ids of their own, to be used in prompts of ids.
    ///
    /// # Errors
    /// [`Error::TakesNoRows`]; [`Error::Engine`] for rows of another width or that are not finite.
    pub fn add_rows(&mut self, rows: &EmbeddingRows) -> Result<Range<u32>, Error> {
        let width = self.embedding_width()?;
        if rows.width != width {
            let (expected, found) = (format!("{width} numbers a row"), rows.width.to_string());
            return Err(engine::EngineError::EmbeddingRows { expected, found }.into());
        }
        self.dialog.add_embeddings(&rows.numbers).map_err(Error::Dialog)
    }

    /// Whether tokens have positions by frame, row and column: the config's positions are of a type `mrope`.
    pub fn takes_grids(&self) -> bool {
        let rope = self.bundle().config().engine().rope.as_ref();
        rope.is_some_and(|rope| matches!(rope.scaling, Some(RopeScaling::Mrope { .. })))
    }

    /// Says how the rows of images lie, for the next prompt, which is asked as a whole: `tokens` as [`place_images`] made them, each image
    /// with the ids of its rows.
    ///
    /// # Errors
    /// [`Error::ImageGrid`] for a grid of another number of tokens than the image has; those of [`Session::place_image`].
    pub fn place_grids(&mut self, tokens: &[TokenId], images: &[(Range<u32>, Grid)]) -> Result<(), Error> {
        let first = self.dialog.next_turn_at();
        let place = |(rows, grid): &(Range<u32>, Grid)| {
            if grid.n_tokens() != Some(rows.len()) {
                return Err(Error::ImageGrid { rows: rows.len(), grid: *grid });
            }
            let place = tokens.iter().position(|token| token.0 == rows.start);
            let place = place.ok_or(Error::ImageGrid { rows: 0, grid: *grid })?;
            self.place_image(first + place, *grid)
        };
        // All of them or none.
        images.iter().try_for_each(place).inspect_err(|_| self.dialog.forget_unreached_grids())
    }

    /// The token that stands for an image: the one of that text or number, else the first known one that the tokenizer has.
    ///
    /// # Errors
    /// [`Error::NoImageToken`].
    pub fn image_token(&self, name: Option<&str>) -> Result<TokenId, Error> {
        let tokenizer = self.dialog.tokenizer();
        let found = match name {
            Some(name) => name.parse().ok().map(TokenId).or_else(|| tokenizer.token_to_id(name)),
            None => KNOWN_TOKENS.iter().find_map(|name| tokenizer.token_to_id(name)),
        };
        found.ok_or_else(|| Error::NoImageToken { name: name.map(Into::into), known: KNOWN_TOKENS.join("`, `") })
    }

    /// The ids of a text, control tokens in it recognised.
    ///
    /// # Errors
    /// [`Error::Tokenizer`].
    pub fn tokens_of(&self, text: &str) -> Result<Vec<TokenId>, Error> {
        Ok(self.dialog.tokenizer().encode(text)?)
    }
}

/// A prompt with the ids of images' rows in place of the image token: the first run of it is the first image's, and so on. A
/// single token stands for all rows of its image; a longer run must be as long as these.
///
/// # Errors
/// [`Error::ImagePlaces`] if there are more or fewer runs than images; [`Error::ImageRun`] for a run of another length.
pub fn place_images(tokens: &[TokenId], image_token: TokenId, images: &[Range<u32>]) -> Result<Vec<TokenId>, Error> {
    let runs = tokens.chunk_by(|a, b| (*a == image_token) == (*b == image_token));
    let n_runs = runs.clone().filter(|run| run[0] == image_token).count();
    if n_runs != images.len() {
        return Err(Error::ImagePlaces { token: image_token, expected: images.len(), found: n_runs });
    }
    let mut images = images.iter();
    let mut placed = Vec::with_capacity(tokens.len());
    for run in runs {
        match images.as_slice().first().filter(|_| run[0] == image_token) {
            None => placed.extend(run),
            Some(image) => {
                images.next();
                if run.len() != 1 && run.len() != image.len() {
                    return Err(Error::ImageRun { token: image_token, expected: image.len(), found: run.len() });
                }
                placed.extend(image.clone().map(TokenId));
            }
        }
    }
    Ok(placed)
}

/// Where a bundle's image encoder is, from what its engine has found.
pub(crate) fn encoder_of(engine: &engine::Engine, ctx_bins: &[PathBuf]) -> Option<PathBuf> {
    ctx_bins.get(*engine.layout().image_encoders.first()?).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_take_the_place_of_their_token() {
        let ids = |list: &[u32]| list.iter().copied().map(TokenId).collect::<Vec<_>>();
        let place = |tokens: &[u32], images: &[Range<u32>]| {
            place_images(&ids(tokens), TokenId(9), images).map_err(|e| e.to_string())
        };
        assert_eq!(place(&[1, 9, 2], std::slice::from_ref(&(100..103))).unwrap(), ids(&[1, 100, 101, 102, 2]));
        assert_eq!(place(&[9, 9, 9, 2], std::slice::from_ref(&(100..103))).unwrap(), ids(&[100, 101, 102, 2]));
        assert_eq!(place(&[9, 1, 9, 9], &[100..103, 103..105]).unwrap(), ids(&[100, 101, 102, 1, 103, 104]));
        assert_eq!(place(&[1, 2], &[]).unwrap(), ids(&[1, 2]));
        let missing = "the prompt has image token 9 in 0 places, expected 1, as many as there are images";
        assert_eq!(place(&[1, 2], std::slice::from_ref(&(100..103))).unwrap_err(), missing);
        let short = "2 image tokens in a row (token 9), but the image has 3 rows: expected 1 or 3";
        assert_eq!(place(&[9, 9, 1], std::slice::from_ref(&(100..103))).unwrap_err(), short);
    }
}
