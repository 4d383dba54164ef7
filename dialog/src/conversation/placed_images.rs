//! Images among the tokens of the next query, whose rows have positions by frame, row and column.

use engine::Grid;

use super::codes::SentenceCode;
use super::dialog::Dialog;
use super::error::DialogError;
use super::query_plan;

impl Dialog {
    /// The place in the history at which the first token of the next complete prompt will be: behind what is still to be processed and the
    /// tokens that begin a turn.
    pub fn next_turn_at(&self) -> usize {
        let plan = match self.begins_with_bos(SentenceCode::Complete) {
            true => query_plan::of_bos_and_text(self.view(), &self.context, &[]),
            false => query_plan::of_turn(SentenceCode::Complete, self.open, self.view(), &self.context, &[]),
        };
        self.n_past() + plan.input.len()
    }

    /// Says that the tokens from that place of the history on will be an image's: [`engine::TokenModel::place_grid`]. It holds for the next query.
    ///
    /// # Errors
    ///
    /// Those of the model.
    pub fn place_grid(&mut self, first: usize, grid: Grid) -> Result<(), DialogError> {
        Ok(self.model.place_grid(first, grid)?)
    }

    /// Forgets images that were placed for a query that did not come to them, or that is not asked.
    pub fn forget_unreached_grids(&mut self) {
        self.model.forget_unreached_grids();
    }
}
