//! The window: W columns of N-1 tokens, each column a guess of what stands that many places ahead.

use genie_types::TokenId;

use super::random::Random;

/// What the window does when guesses were accepted, by Genie's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateMode {
    /// `FWD_MAX_HIT`: it moves on by as many columns as guesses were accepted; the free ones get tokens of the reply.
    ForwardMaxHit,
    /// `FWD_LEVEL`: its levels move up once for each.
    ForwardLevel,
    /// `ALWAYS_FWD_ONE`: it moves on by one token, as without.
    #[default]
    AlwaysForwardOne,
}

impl UpdateMode {
    /// By Genie's name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "FWD_MAX_HIT" => Some(Self::ForwardMaxHit),
            "FWD_LEVEL" => Some(Self::ForwardLevel),
            "ALWAYS_FWD_ONE" => Some(Self::AlwaysForwardOne),
            _ => None,
        }
    }
}

/// The first token of a level that nothing is known of, as libGenie has it.
const UNKNOWN: usize = 1000;

/// Tokens by level and column.
#[derive(Clone, Debug)]
pub(super) struct Window {
    levels: Vec<Vec<TokenId>>,
    random: Random,
}

impl Window {
    pub(super) fn new(n_columns: usize, n_levels: usize) -> Self {
        let mut random = Random::new();
        // libGenie draws a number for each column before it has a prompt.
        (0..n_columns).for_each(|_| {
            random.number();
        });
        Self { levels: vec![vec![TokenId(0); n_columns]; n_levels], random }
    }

    pub(super) fn levels(&self) -> &[Vec<TokenId>] {
        &self.levels
    }

    /// Fills the first level with tokens of the prompt, the others with any. Ids beyond the vocabulary stand for rows of embeddings, which may be
    /// those of a dialog that was restored without them: they are left out.
    pub(super) fn begin(&mut self, prompt: &[TokenId], n_vocab: usize) {
        let known: Vec<TokenId> = prompt.iter().copied().filter(|token| (token.0 as usize) < n_vocab).collect();
        for j in 0..self.levels.len() {
            for i in 0..self.levels[j].len() {
                self.levels[j][i] = match j {
                    0 => self.any_of(&known),
                    _ => TokenId(((UNKNOWN + i) % n_vocab.max(1)) as u32),
                };
            }
        }
    }

    /// A token of a list, its first one only if there is no other.
    fn any_of(&mut self, list: &[TokenId]) -> TokenId {
        let number = self.random.number();
        match list.len() {
            0 => TokenId(0),
            1 => list[0],
            n => list[1 + number % (n - 1)],
        }
    }

    pub(super) fn set_level(&mut self, level: usize, tokens: Vec<TokenId>) {
        self.levels[level] = tokens;
    }

    pub(super) fn set_first(&mut self, token: TokenId) {
        self.levels[0][0] = token;
    }

    /// What each column has passed through behind its first token, `outputs` last.
    pub(super) fn ngrams<'a>(&'a self, outputs: &'a [TokenId]) -> impl Iterator<Item = Vec<TokenId>> + 'a {
        let behind = |i: usize| self.levels[1..].iter().map(move |level| level[i]);
        outputs.iter().enumerate().map(move |(i, &output)| behind(i).chain([output]).collect())
    }

    /// Moves on by a token: the outputs of the last level become the last level. `generated`: the reply so far, from which
    /// columns are filled that become free.
    pub(super) fn advance(&mut self, outputs: Vec<TokenId>, mode: UpdateMode, n_hits: usize, generated: &[TokenId]) {
        self.levels.remove(0);
        self.levels.push(outputs);
        match mode {
            UpdateMode::AlwaysForwardOne => {}
            UpdateMode::ForwardLevel => {
                // A single level has none above it.
                for _ in 0..if self.levels.len() > 1 { n_hits } else { 0 } {
                    self.levels[0] = self.levels[1].clone();
                    self.levels[1..].rotate_left(1);
                }
            }
            UpdateMode::ForwardMaxHit => {
                let n_columns = self.levels[0].len();
                let n_free = n_hits.min(n_columns);
                for j in 0..self.levels.len() {
                    self.levels[j].drain(..n_free);
                    for _ in 0..n_free {
                        let token = self.any_of(generated);
                        self.levels[j].push(token);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(raw: &[u32]) -> Vec<TokenId> {
        raw.iter().copied().map(TokenId).collect()
    }

    fn window(levels: &[&[u32]]) -> Window {
        let mut window = Window::new(levels[0].len(), levels.len());
        levels.iter().enumerate().for_each(|(j, level)| window.set_level(j, ids(level)));
        window
    }

    #[test]
    fn a_window_begins_with_tokens_of_the_prompt() {
        // As recorded: columns 1 to 3 of a window of 4 are 5, 6, 7 for the prompt [256, 5, 6, 7, 8, 9].
        let mut w = Window::new(4, 3);
        w.begin(&ids(&[256, 5, 6, 7, 8, 9]), 1276);
        assert_eq!(w.levels()[0][1..], ids(&[5, 6, 7])[..]);
        assert_eq!(w.levels()[2], ids(&[1000, 1001, 1002, 1003]));
        w.begin(&ids(&[7, 600, 7, 512]), 512);
        assert!(w.levels()[0].iter().all(|token| token.0 == 7), "ids of rows are left out");
        w.begin(&ids(&[7]), 512);
        assert_eq!((w.levels()[0].clone(), w.levels()[1][0]), (ids(&[7; 4]), TokenId(488)));
    }

    #[test]
    fn ngrams_are_what_columns_pass_through() {
        let w = window(&[&[1, 2], &[3, 4], &[5, 6]]);
        let found: Vec<_> = w.ngrams(&ids(&[7, 8])).collect();
        assert_eq!(found, [ids(&[3, 5, 7]), ids(&[4, 6, 8])]);
    }

    #[test]
    fn each_mode_moves_on() {
        let base: &[&[u32]] = &[&[1, 2, 3], &[4, 5, 6]];
        let cases = [
            (UpdateMode::AlwaysForwardOne, 2, vec![ids(&[4, 5, 6]), ids(&[7, 8, 9])]),
            (UpdateMode::ForwardLevel, 0, vec![ids(&[4, 5, 6]), ids(&[7, 8, 9])]),
            (UpdateMode::ForwardLevel, 1, vec![ids(&[7, 8, 9]), ids(&[7, 8, 9])]),
            (UpdateMode::ForwardMaxHit, 1, vec![ids(&[5, 6, 50]), ids(&[8, 9, 50])]),
            (UpdateMode::ForwardMaxHit, 9, vec![ids(&[50; 3]), ids(&[50; 3])]),
        ];
        for (mode, n_hits, expected) in cases {
            let mut w = window(base);
            w.advance(ids(&[7, 8, 9]), mode, n_hits, &ids(&[40, 50]));
            assert_eq!(w.levels(), expected, "{mode:?} {n_hits}");
        }
        let mut one = window(&[&[1, 2]]);
        one.advance(ids(&[7, 8]), UpdateMode::ForwardLevel, 3, &ids(&[40]));
        assert_eq!(one.levels(), [ids(&[7, 8])], "one level");
        assert_eq!(UpdateMode::from_name("FWD_LEVEL"), Some(UpdateMode::ForwardLevel));
    }
}
