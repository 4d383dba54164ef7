//! Counts how often each kind of action was drawn, and how often it had an effect.

use std::cell::RefCell;
use std::fmt;

/// Share of its draws that must have an effect, of every kind of action.
const LEAST: f64 = 0.05;
/// Of fewer draws (a short run under Miri or an emulator) a share says nothing.
const ENOUGH: usize = 200;

/// Draws and effects by kind.
pub struct Effects {
    kinds: Vec<&'static str>,
    counts: RefCell<Vec<(usize, usize)>>,
}

impl Effects {
    pub fn new(kinds: Vec<&'static str>) -> Self {
        Self { counts: RefCell::new(vec![(0, 0); kinds.len()]), kinds }
    }

    pub fn count(&self, kind: usize, had_effect: bool) {
        let (drawn, effects) = &mut self.counts.borrow_mut()[kind];
        *drawn += 1;
        *effects += usize::from(had_effect);
    }

    /// Fails for a kind that hardly ever has an effect.
    pub fn check(&self) {
        for (kind, &(drawn, effects)) in self.kinds.iter().zip(self.counts.borrow().iter()) {
            assert!(
                drawn < ENOUGH || effects as f64 >= LEAST * drawn as f64,
                "`{kind}` had an effect {effects} times out of {drawn}: it proves too little\n{self}"
            );
        }
    }
}

impl fmt::Display for Effects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<14} {:>8} {:>8}", "action", "drawn", "effect")?;
        for (kind, (drawn, effects)) in self.kinds.iter().zip(self.counts.borrow().iter()) {
            writeln!(f, "{kind:<14} {drawn:>8} {effects:>8}")?;
        }
        Ok(())
    }
}
