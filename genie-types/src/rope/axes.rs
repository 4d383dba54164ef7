//! Which of a token's three positions (frame, row, column) each angle turns by, where a model's tokens have three (`mrope`).
//!
//! A token of a text has three equal ones. *Source*: Qwen 2 VL gives each axis a run of angles, by `mrope-section`; Qwen 3 VL takes them in
//! turns: angle `j` is the row's for `j % 3 == 1` and the column's for `j % 3 == 2`, as far as their sections last, else the frame's.

use super::{RopeConfig, RopeScaling};

impl RopeConfig {
    /// For each angle, the number of the axis that it turns by: 0, 1 or 2. `None` where tokens have one position.
    pub fn axes(&self) -> Option<Vec<usize>> {
        let Some(RopeScaling::Mrope { interleaved, sections }) = &self.scaling else { return None };
        let &[frames, rows, columns] = sections.as_slice() else { return None };
        let axis = |j: usize| match (interleaved, j % 3) {
            (true, 1) if j < 3 * rows => 1,
            (true, 2) if j < 3 * columns => 2,
            (true, _) => 0,
            (false, _) if j < frames => 0,
            (false, _) if j < frames + rows => 1,
            (false, _) => 2,
        };
        Some((0..self.rope_dim).map(axis).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_are_shared_out_by_sections() {
        let axes = |interleaved, sections: &[usize]| {
            let scaling = RopeScaling::Mrope { interleaved, sections: sections.into() };
            RopeConfig::new(sections.iter().sum::<usize>().max(4), 1e4).with_scaling(scaling).axes()
        };
        assert_eq!(axes(false, &[2, 3, 3]), Some(vec![0, 0, 1, 1, 1, 2, 2, 2]));
        assert_eq!(axes(true, &[4, 2, 2]), Some(vec![0, 1, 2, 0, 1, 2, 0, 0]));
        assert_eq!(axes(true, &[]), None, "without sections there is one position");
        assert_eq!(RopeConfig::new(4, 1e4).axes(), None);
    }
}
