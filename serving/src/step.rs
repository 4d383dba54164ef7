//! One step of the model for the rows of a tick, and what becomes of its logits.

use dialog::DialogError;
use dialog::conversation::DraftTree;
use engine::{EngineError, LogitsRequest, SeqRows, SeqTree, SequenceModel, TreeRow};
use genie_types::TokenId;
use kvmanager::plan::serve::Phase;

use crate::active::Active;
use crate::draft::Draft;

/// Rows of one request in a step.
#[derive(Debug)]
pub(crate) struct StepRows {
    /// Its place in the list of requests.
    pub(crate) at: usize,
    tokens: Vec<TokenId>,
    n_draft: usize,
    wanted: LogitsRequest,
    prompt: bool,
    n_drawn: usize,
    /// In place of the tokens, where the draft is one.
    tree: Option<DraftTree>,
    /// Rows that the model keeps, where it chose among them; 0 where it has all.
    n_kept: usize,
    /// It was not processed with the draft that was planned.
    is_left: bool,
    error: Option<DialogError>,
}

impl StepRows {
    /// The next `n` tokens of the history, then the draft as far as `n` reaches, of a tree all or nothing. Prompts whose reply is not
    /// wanted ask for no logits.
    pub(crate) fn of(request: &Active, at: usize, n: usize, prefill_only: bool) -> Self {
        let history = request.reply.history();
        let todo = &history[request.n_done..];
        let n_own = n.min(todo.len());
        let mut tokens = todo[..n_own].to_vec();
        let (mut n_draft, mut tree) = (0, None);
        match &request.draft {
            Draft::Tokens(draft) => {
                n_draft = (n - n_own).min(draft.len());
                tokens.extend(&draft[..n_draft]);
            }
            Draft::Tree(draft) if todo.len() == 1 && n == draft.n_rows() => tree = Some(draft.clone()),
            Draft::Tree(_) | Draft::None => {}
        }
        let wanted = match (n_own == todo.len() && !prefill_only, n_draft) {
            (false, _) => LogitsRequest::Nothing,
            (true, 0) => LogitsRequest::Last,
            (true, _) => LogitsRequest::Each,
        };
        let prompt = request.phase == Phase::Prefill;
        Self { at, tokens, n_draft, wanted, prompt, n_drawn: 0, tree, n_kept: 0, is_left: false, error: None }
    }

    /// As rows of a step with trees: the tree, or tokens that follow each other.
    fn tree_rows(&self) -> Vec<TreeRow> {
        if let Some(tree) = &self.tree {
            return tree.rows().to_vec();
        }
        let last = self.tokens.len() - 1;
        let chain = TreeRow::chain(&self.tokens).enumerate();
        chain.map(|(place, row)| TreeRow { logits: self.wants(place, last), ..row }).collect()
    }

    fn wants(&self, place: usize, last: usize) -> bool {
        match self.wanted {
            LogitsRequest::Nothing => false,
            LogitsRequest::Last => place == last,
            LogitsRequest::Each => true,
        }
    }

    /// Draws from the logits of the rows; returns those that the model keeps for now.
    fn take_rows(&mut self, request: &mut Active, logits: &[&[f32]]) -> Vec<usize> {
        if let Some(tree) = &self.tree {
            let (path, drawn) = request.reply.take_tree(tree, logits);
            self.n_kept = path.len();
            self.error = drawn.err();
            return path;
        }
        for (place, row) in logits.iter().enumerate().filter(|(_, row)| !row.is_empty()) {
            self.take(request, place, row);
        }
        self.n_kept = self.tokens.len() - self.n_draft + self.n_held(request);
        (0..self.n_kept).collect()
    }

    /// Tokens of the draft that hold: as many as were drawn, the last one drawn left out, as it may differ. A token that ended the reply
    /// need not be kept.
    fn n_held(&self, request: &Active) -> usize {
        let n_own = self.tokens.len() - self.n_draft;
        let history = request.reply.history();
        let drawn = &history[(request.n_done + n_own).min(history.len())..];
        let draft = &self.tokens[n_own..];
        let same = drawn.iter().zip(draft).take_while(|(a, b)| a == b).count();
        same.min(self.n_drawn).min(drawn.len().saturating_sub(1))
    }

    /// Without its tree; `whole` says that tokens behind the last one go too.
    fn leave_draft(&mut self, whole: bool) {
        self.tree = None;
        if whole && self.n_draft > 0 {
            self.tokens.truncate(self.tokens.len() - self.n_draft);
            (self.n_draft, self.wanted, self.is_left) = (0, LogitsRequest::Last, true);
        }
    }

    /// Rows that it has in the step.
    pub(crate) fn n_rows(&self) -> usize {
        self.tree.as_ref().map_or(self.tokens.len(), DraftTree::n_rows)
    }

    fn take(&mut self, request: &mut Active, place: usize, logits: &[f32]) {
        let first = self.tokens.len() - 1 - self.n_draft;
        // Only the row behind the last token that holds is looked at.
        if place != first + self.n_drawn || request.reply.stop().is_some() || self.error.is_some() {
            return;
        }
        if self.n_drawn > 0 && request.reply.history().last() != Some(&self.tokens[place]) {
            return;
        }
        match request.reply.take(logits) {
            Ok(_) => self.n_drawn += 1,
            Err(error) => self.error = Some(error),
        }
    }

    /// Brings the request to what the model has processed, and the model to what holds of a draft.
    pub(crate) fn apply(self, request: &mut Active, model: &mut dyn SequenceModel) -> Result<(), Failed> {
        if self.tree.is_some() {
            (request.n_done, request.draft) = (request.n_done + self.n_kept, Draft::None);
            return self.error.map_or(Ok(()), |error| Err(Failed::Dialog(error)));
        }
        if request.draft.is_tree() || self.is_left {
            request.reply.draft_had_no_rows();
        }
        let seq = request.seq.ok_or(Failed::NoSequence)?;
        let n_held = self.n_held(request);
        request.n_done += self.tokens.len() - self.n_draft + n_held;
        // Also one that had no row: it began behind the token that is processed now.
        request.draft = Draft::None;
        if self.n_draft > 0 {
            request.reply.drafted(self.n_draft, n_held);
            // As rows of a tree those that did not hold were not kept.
            if n_held < self.n_draft && self.n_kept == 0 {
                model.remove(seq, request.n_done..usize::MAX)?;
            }
        }
        self.error.map_or(Ok(()), |error| Err(Failed::Dialog(error)))
    }
}

/// Why one request of a step fails.
#[derive(Debug)]
pub(crate) enum Failed {
    Dialog(DialogError),
    Engine(EngineError),
    NoSequence,
}

impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

/// How many tokens of each of the rows one execution takes; 0 for rows that have to wait.
pub(crate) fn n_of_first(model: &dyn SequenceModel, active: &[Active], rows: &[StepRows]) -> Vec<usize> {
    let tokens: Vec<Vec<TokenId>> = rows.iter().map(|row| row.tokens.clone()).collect();
    model.tokens_of_first_step(&inputs(active, rows, &tokens))
}

fn inputs<'a>(active: &[Active], rows: &[StepRows], tokens: &'a [Vec<TokenId>]) -> Vec<SeqRows<'a>> {
    let input = |(row, tokens): (&StepRows, &'a Vec<TokenId>)| {
        Some(SeqRows { seq: active[row.at].seq?, tokens, wanted: row.wanted, prompt: row.prompt })
    };
    rows.iter().zip(tokens).filter_map(input).collect()
}

/// Has the model process the rows; each request takes its logits. Drafts that a model cannot take back are trees too, of which only what
/// holds is kept. Trees that do not fit are left: their requests have a plain row.
pub(crate) fn run(
    model: &mut dyn SequenceModel,
    active: &mut [Active],
    rows: &mut [StepRows],
) -> Result<(), EngineError> {
    let takes_back = model.takes_back();
    if rows.iter().any(|row| row.tree.is_some() || (row.n_draft > 0 && !takes_back)) {
        match run_trees(model, active, rows) {
            Err(error) if error.does_not_fit() => rows.iter_mut().for_each(|row| row.leave_draft(!takes_back)),
            ran => return ran,
        }
    }
    let tokens: Vec<Vec<TokenId>> = rows.iter().map(|row| row.tokens.clone()).collect();
    let inputs = inputs(active, rows, &tokens);
    model.process_mixed(&inputs, &mut |input, place, logits| {
        let row = &mut rows[input];
        row.take(&mut active[row.at], place, logits);
    })
}

/// The rows as trees beside each other, in one execution.
fn run_trees(model: &mut dyn SequenceModel, active: &mut [Active], rows: &mut [StepRows]) -> Result<(), EngineError> {
    let of_tree: Vec<Vec<TreeRow>> = rows.iter().map(StepRows::tree_rows).collect();
    let mut trees = Vec::with_capacity(rows.len());
    for (row, rows) in rows.iter().zip(&of_tree) {
        trees.extend(active[row.at].seq.map(|seq| SeqTree { seq, rows }));
    }
    model.process_trees(&trees, &mut |input, logits| {
        let row = &mut rows[input];
        row.take_rows(&mut active[row.at], logits)
    })
}
