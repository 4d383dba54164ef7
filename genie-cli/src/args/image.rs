//! Flags for images in a prompt.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Result;
use engine::Grid;
use genie_types::TokenId;
use open_genie::{Session, place_images};

use crate::failure::UserError;

/// Images of the prompt: as pixels for the bundle's image encoder, or as rows of embeddings.
#[derive(clap::Args, Default, Clone)]
#[command(next_help_heading = "Images")]
pub struct ImageArgs {
    /// Rows of embeddings of an image, `.npy` or raw float32, in place of the prompt's image token; once for each image. For
    /// bundles whose graphs take `inputs_embeds`.
    #[arg(long, value_name = "FILE")]
    pub image_features: Vec<PathBuf>,
    /// Pixels as the image encoder takes them, `.npy` or raw float32: its `pixel_values`. The encoder's rows then take the place of
    /// the image token.
    #[arg(long, value_name = "FILE", conflicts_with = "image_features")]
    pub image: Vec<PathBuf>,
    /// How an image's rows of embeddings lie, once for each image, after merging: frames, rows and columns. For models whose tokens
    /// turn by all three (`mrope`) [default: the extents of the encoder's output or of an `.npy`, where they say it].
    #[arg(long, value_name = "T,H,W", value_parser = grid)]
    pub image_grid: Vec<Grid>,
    /// Another input of the image encoder, the same for all images.
    #[arg(long, value_name = "NAME=FILE", requires = "image")]
    pub image_input: Vec<String>,
    /// Context binary of the image encoder [default: the bundle's own].
    #[arg(long, value_name = "FILE", requires = "image")]
    pub image_encoder: Option<PathBuf>,
    /// Token that stands for an image, as text or number; by default `<|image_pad|>`, `<image>`, `<image_soft_token>` or
    /// `<|image|>`, whichever the tokenizer has.
    #[arg(long, value_name = "TOKEN")]
    pub image_token: Option<String>,
}

impl ImageArgs {
    /// True if the prompt has images.
    pub fn any(&self) -> bool {
        !self.image_features.is_empty() || !self.image.is_empty()
    }

    /// The prompt's ids with the images in their places.
    pub fn place(&self, session: &mut Session, tokens: &[TokenId]) -> Result<Vec<TokenId>> {
        let token = session.image_token(self.image_token.as_deref())?;
        let mut images = Vec::new();
        for file in &self.image_features {
            let rows = session.read_rows(file)?;
            images.push((session.add_rows(&rows)?, rows.grid));
        }
        let others = self.image_input.iter().map(|given| named(given)).collect::<Result<Vec<_>>>()?;
        for file in &self.image {
            let inputs: Vec<_> = [("pixel_values", file.as_path())].into_iter().chain(others.iter().copied()).collect();
            let rows = session.encode_image(self.image_encoder.as_deref(), &inputs)?;
            images.push((session.add_rows(&rows)?, rows.grid));
        }
        let ids: Vec<_> = images.iter().map(|(ids, _)| ids.clone()).collect();
        let placed = place_images(tokens, token, &ids)?;
        let grids = self.grids(session, images)?;
        session.place_grids(&placed, &grids)?;
        Ok(placed)
    }
}

impl ImageArgs {
    /// The grids of the images: those that are given, else those that follow from the rows, where the model has use for them.
    fn grids(&self, session: &Session, images: Vec<(Range<u32>, Option<Grid>)>) -> Result<Vec<(Range<u32>, Grid)>> {
        if self.image_grid.is_empty() {
            let takes = session.takes_grids();
            return Ok(images.into_iter().filter_map(|(ids, grid)| Some((ids, grid.filter(|_| takes)?))).collect());
        }
        if self.image_grid.len() != images.len() {
            let what = format!("{} grids for {} images", self.image_grid.len(), images.len());
            return Err(UserError::error(what, "give `--image-grid` once for each image, in their order"));
        }
        Ok(images.into_iter().zip(&self.image_grid).map(|((ids, _), grid)| (ids, *grid)).collect())
    }
}

/// `T,H,W` as a grid.
fn grid(text: &str) -> Result<Grid, String> {
    let numbers: Option<Vec<usize>> = text.split(',').map(|n| n.trim().parse().ok().filter(|n| *n > 0)).collect();
    match numbers.as_deref() {
        Some(&[frames, rows, columns]) => Ok(Grid { frames, rows, columns }),
        _ => Err("expected frames, rows and columns, for example `1,16,16`".into()),
    }
}

/// `NAME=FILE` in its parts.
fn named(given: &str) -> Result<(&str, &Path)> {
    let parts = given.split_once('=').filter(|(name, file)| !name.is_empty() && !file.is_empty());
    let Some((name, file)) = parts else {
        let what = format!("`--image-input {given}` names no file");
        return Err(UserError::error(what, "write it as `--image-input NAME=FILE`"));
    };
    Ok((name, Path::new(file)))
}
