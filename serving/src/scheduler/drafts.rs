//! Drafts for the replies of the next step: those that requests make by themselves, and those of a draft model.

use dialog::kinds::VocabularyMap;
use engine::TokenModel;
use kvmanager::plan::serve::Phase;

use super::Scheduler;
use crate::ServeError;
use crate::draft::Draft;
use crate::draft_model::{DraftModel, Wish};

impl Scheduler {
    /// Has another model propose up to `len` tokens for each reply that does not draft by itself. A token that is drawn is the
    /// first model's; where drafts hold there are several in a step. `map`: the draft model has ids of its own.
    ///
    /// # Errors
    /// [`ServeError::Busy`]; [`ServeError::Setting`] for a smaller vocabulary without a map, and for a model that has one sequence at a time;
    /// [`ServeError::Dialog`] for a map that does not fit the models; it cannot be reset.
    pub fn set_draft_model(
        &mut self,
        model: Box<dyn TokenModel>,
        len: usize,
        map: Option<VocabularyMap>,
    ) -> Result<(), ServeError> {
        self.refuse_while_busy()?;
        self.draft_model = Some(DraftModel::new(model, len, self.vocab_size(), map)?);
        Ok(())
    }

    /// Whether a model can draft for several replies: its cache keeps several sequences beside each other.
    pub fn takes_drafts_of(model: &mut dyn TokenModel) -> bool {
        DraftModel::suits(model)
    }

    pub(super) fn make_drafts(&mut self) {
        let (limit, widest) = (self.limit(), self.times.widest());
        for request in self.active.iter_mut().filter(|request| request.phase == Phase::Decode) {
            if request.draft.is_none() {
                let most = limit.saturating_sub(request.n_done + 1).min(widest - 1);
                request.draft = Draft::of(request.reply.draft(most));
            }
        }
        self.make_trees();
        let Some(draft_model) = &mut self.draft_model else { return };
        let mut asking = Vec::new();
        for (at, request) in self.active.iter_mut().enumerate() {
            if request.phase == Phase::Decode && request.draft.is_none() {
                let most = limit.saturating_sub(request.n_done + 1).min(widest - 1);
                asking.push((at, request.reply.n_draft_wanted(most)));
            }
        }
        let wish = |&(at, most): &(usize, usize)| {
            let request = &self.active[at];
            request.seq.map(|seq| Wish { seq, history: request.reply.history(), most })
        };
        let wishes: Vec<_> = asking.iter().filter_map(wish).collect();
        let drafts = draft_model.drafts(&wishes);
        let running: Vec<_> = asking.iter().map(|(at, _)| *at).filter(|at| self.active[*at].runs()).collect();
        for (at, draft) in running.into_iter().zip(drafts) {
            let request = &mut self.active[at];
            request.draft = Draft::of(request.reply.fitting_draft(draft));
        }
    }
}
