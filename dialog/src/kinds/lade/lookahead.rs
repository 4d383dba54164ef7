//! The window with the pool of n-grams: the tree that comes of them, and what they learn from its logits.

use genie_types::TokenId;

use engine::TreeRow;

use super::pool::Pool;
use super::settings::LadeSettings;
use super::window::Window;
use crate::conversation::trees::DraftTree;

/// Rows of a tree that belong to the window's last level, by column.
pub(super) type LastLevel = Vec<usize>;

/// What a dialog of type `lade` knows.
#[derive(Clone, Debug)]
pub(super) struct Lookahead {
    settings: LadeSettings,
    window: Window,
    pool: Pool,
    /// Tokens of the reply so far, for columns that become free.
    generated: Vec<TokenId>,
    /// Tokens of the dialog whose n-grams are in the pool.
    pooled: Vec<TokenId>,
}

impl Lookahead {
    /// Fewer than 1 column or n-grams of less than 2 tokens are raised to that.
    pub(super) fn new(settings: LadeSettings) -> Self {
        let settings = LadeSettings { window: settings.window.max(1), ngram: settings.ngram.max(2), ..settings };
        let (window, pool) = (Window::new(settings.window, settings.ngram - 1), Pool::new(settings.gcap));
        Self { settings, window, pool, generated: Vec::new(), pooled: Vec::new() }
    }

    pub(super) fn settings(&self) -> LadeSettings {
        self.settings
    }

    /// Levels of the window.
    pub(super) fn n_levels(&self) -> usize {
        self.settings.ngram - 1
    }

    /// A window for a reply whose first token is the last of the history: the first level has tokens of the prompt.
    pub(super) fn begin(&mut self, history: &[TokenId], n_vocab: usize) {
        self.window.begin(&history[..history.len().saturating_sub(1)], n_vocab);
        self.generated.clear();
        self.generated.extend(history.last());
    }

    /// Puts the n-grams that are new in the dialog into the pool.
    pub(super) fn pool_text(&mut self, history: &[TokenId]) {
        let n = self.settings.ngram;
        let same = self.pooled.iter().zip(history).take_while(|(a, b)| a == b).count();
        self.pooled.truncate(same);
        self.pooled.extend_from_slice(&history[same..]);
        for ngram in self.pooled[(same + 1).saturating_sub(n)..].windows(n) {
            self.pool.add(ngram[0], ngram[1..].to_vec());
        }
    }

    /// The first `n_levels` of the window as rows behind the newest token, and for each level the rows of its columns.
    pub(super) fn rows(&self, last: TokenId, n_levels: usize) -> (DraftTree, Vec<Vec<usize>>) {
        let mut tree = DraftTree::new(last);
        let mut levels: Vec<Vec<usize>> = Vec::new();
        for (j, tokens) in self.window.levels().iter().take(n_levels).enumerate() {
            let mut rows = Vec::with_capacity(tokens.len());
            for (i, &token) in tokens.iter().enumerate() {
                let row = match j {
                    0 if i == 0 => 0,
                    0 => tree.probe(TreeRow::new(token, Some(rows[i - 1])).without_logits()),
                    _ => tree.probe(TreeRow::new(token, Some(levels[j - 1][i])).without_logits()),
                };
                rows.push(row);
            }
            levels.push(rows);
        }
        (tree, levels)
    }

    /// The same with the guesses for the newest token, and logits for the last of these levels.
    pub(super) fn tree(&self, last: TokenId, n_levels: usize) -> (DraftTree, LastLevel) {
        let (tree, mut levels) = self.rows(last, n_levels);
        let last_level = levels.pop().unwrap_or_default();
        let mut tree = tree.with_logits_of(&last_level);
        for guess in self.pool.guesses(last) {
            guess.iter().fold(0, |parent, &token| tree.offer(parent, token));
        }
        (tree, last_level)
    }

    pub(super) fn set_level(&mut self, level: usize, tokens: Vec<TokenId>) {
        self.window.set_level(level, tokens);
    }

    pub(super) fn set_first(&mut self, token: TokenId) {
        self.window.set_first(token);
    }

    /// A token of the reply.
    pub(super) fn drew(&mut self, token: TokenId) {
        self.generated.push(token);
    }

    /// Takes what the last level's rows gave: new n-grams, and the window moves on. `n_hits`: guesses that were accepted.
    pub(super) fn advance(&mut self, outputs: Vec<TokenId>, n_hits: usize) {
        for (column, ngram) in self.window.ngrams(&outputs).enumerate() {
            self.pool.add(self.window.levels()[0][column], ngram);
        }
        self.window.advance(outputs, self.settings.update_mode, n_hits, &self.generated);
    }
}
