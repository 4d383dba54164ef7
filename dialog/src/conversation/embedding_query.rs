//! Queries of rows of embeddings: an image's, a sound's, a text's from elsewhere.

use genie_types::TokenId;

use super::codes::SentenceCode;
use super::dialog::Dialog;
use super::error::DialogError;
use super::generation::Generation;
use super::reply::{Chunk, Reply};

impl Dialog {
    /// Replies to rows of embeddings, one after the other, for models that take them. No BOS is put before them; text and tokens
    /// come out, and stop sequences apply. What the model generates goes back in by the bundle's table or the program's callback.
    ///
    /// # Errors
    /// As [`query`](Self::query); a model that takes ids, rows that are not whole.
    pub fn embedding_query(
        &mut self,
        rows: &[f32],
        code: SentenceCode,
        callback: impl FnMut(Chunk<'_>),
    ) -> Result<Reply, DialogError> {
        self.start_embeddings(rows, code)?.run(callback)
    }

    /// As [`embedding_query`](Self::embedding_query), one step at a time.
    ///
    /// # Errors
    /// As [`embedding_query`](Self::embedding_query).
    pub fn start_embeddings(&mut self, rows: &[f32], code: SentenceCode) -> Result<Generation<'_>, DialogError> {
        self.leave_batch()?;
        let ids = self.model.add_embeddings(rows)?;
        let (new, rules): (Vec<TokenId>, _) = (ids.map(TokenId).collect(), self.rules.clone());
        let bos = self.context.bos.take();
        let plan = self.plan(&new, code);
        self.context.bos = bos;
        self.begin_with(plan?, &new, code, rules)
    }
}
