//! Settings of a fused pair.

/// Which fused graphs are used, and how many rows of a prompt a step takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairConfig {
    /// Whether a dialog is to run on the fused graphs; `None` for where there are no others. For who opens the bundle: a runner does not ask.
    pub enable: Option<bool>,
    /// Widest graph to use, in rows; `None` for the widest there is.
    pub total_len: Option<usize>,
    /// Most rows of a prompt in one step; `None` for as many as the widest graph has beside the decode row.
    pub prefill_len: Option<usize>,
    /// Where the graphs write new rows themselves: bind each updated past to the buffer of the past it comes from.
    pub in_place: bool,
    /// Where the graphs write new rows themselves: they send rows of an inactive half to the last row of a past, which then holds
    /// nothing. An op with a switch of its own does not.
    pub last_row_unused: bool,
}

impl Default for PairConfig {
    /// All widths, in place, the last row not used.
    fn default() -> Self {
        Self { enable: None, total_len: None, prefill_len: None, in_place: true, last_row_unused: true }
    }
}
