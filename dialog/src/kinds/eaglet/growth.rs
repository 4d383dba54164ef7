//! How trees grow: level by level, the best nodes of each in one batch of the draft model, each in a sequence of its own.

use engine::{EngineError, FeatureModel, SeqId, SeqTokens, TokenModel};
use genie_types::TokenId;

use super::settings::{EagletSettings, NAME};
use super::tree::{self, Node};
use crate::conversation::drafting::is_no_draft;
use crate::conversation::error::DialogError;
use crate::conversation::trees::DraftTree;
use crate::kinds::VocabularyMap;

/// A row of the draft model: what may follow a node.
#[derive(Default)]
pub(super) struct Row {
    node: Option<usize>,
    seq: SeqId,
    logits: Vec<f32>,
    features: Vec<f32>,
}

/// What trees grow by.
pub(super) struct Growth<'a> {
    pub(super) settings: &'a EagletSettings,
    pub(super) map: Option<&'a VocabularyMap>,
    /// Of the target.
    pub(super) n_vocab: usize,
    /// libGenie runs a stop token and then has nothing follow it.
    pub(super) as_genie: bool,
    /// The first of the draft model's sequences that nodes have; those behind it are free too.
    pub(super) first_free: u8,
}

/// Where one tree begins, and how far it grows.
pub(super) struct Start<'a> {
    /// The row of the newest token.
    pub(super) root: Row,
    pub(super) n_levels: usize,
    pub(super) top_p: f32,
    pub(super) is_stop: &'a dyn Fn(TokenId) -> bool,
}

/// A tree that grows.
struct Growing<'a> {
    start: Start<'a>,
    nodes: Vec<Node>,
    /// Of the last level that ran.
    rows: Vec<Row>,
    /// Nodes that run next; none: it is done.
    frontier: Vec<usize>,
}

impl<'a> Growing<'a> {
    fn new(mut start: Start<'a>) -> Self {
        let root = std::mem::take(&mut start.root);
        Self { start, nodes: Vec::new(), rows: vec![root], frontier: Vec::new() }
    }
}

impl Growth<'_> {
    /// The nodes of each tree; a level of all of them is one batch of the draft model. Sequences are given back.
    pub(super) fn nodes(
        &self,
        draft: &mut dyn FeatureModel,
        starts: Vec<Start<'_>>,
    ) -> Result<Vec<Vec<Node>>, DialogError> {
        let mut trees: Vec<Growing<'_>> = starts.into_iter().map(Growing::new).collect();
        let mut free = self.first_free;
        for level in 1.. {
            trees.iter_mut().for_each(|tree| self.add_level(level, tree));
            if trees.iter().all(|tree| tree.frontier.is_empty()) || !run_level(draft, &mut trees, &mut free)? {
                break;
            }
        }
        for seq in self.first_free..free {
            draft.remove(SeqId(seq), 0..usize::MAX)?;
        }
        Ok(trees.into_iter().map(|tree| tree.nodes).collect())
    }

    /// The nodes behind the rows that ran last, and which of them run next.
    fn add_level(&self, level: usize, tree: &mut Growing<'_>) {
        let Growing { start, nodes, rows, frontier } = tree;
        if level > start.n_levels || (level > 1 && frontier.is_empty()) {
            frontier.clear();
            return;
        }
        let first = nodes.len();
        for row in &*rows {
            if row.node.is_some_and(|node| (start.is_stop)(nodes[node].token)) {
                continue;
            }
            let score = row.node.map_or(1.0, |node| nodes[node].score);
            let mapped = self.map.map(|map| map.row(&row.logits, self.n_vocab));
            let logits = mapped.as_deref().unwrap_or(&row.logits[..row.logits.len().min(self.n_vocab)]);
            let found = tree::candidates(logits, self.settings.n_branches, start.top_p).into_iter();
            nodes.extend(found.map(|(token, p)| Node { token, parent: row.node, score: score * p }));
        }
        let may = |node: &Node| self.as_genie || !(start.is_stop)(node.token);
        *frontier = tree::best(nodes, first, self.settings.n_branches, may);
        let stop = self.settings.early_stop;
        let stops =
            stop.is_some_and(|stop| level >= stop.min_levels && tree::uncertainty(nodes, frontier) > stop.entropy);
        if level == start.n_levels || stops {
            frontier.clear();
        }
    }
}

/// Adds the best nodes to a tree: as many rows as the target can evaluate.
pub(super) fn offer(tree: &mut DraftTree, nodes: &[Node], max_rows: usize) {
    let mut place = vec![0; nodes.len()];
    for node in tree::offered(nodes, max_rows.saturating_sub(1)) {
        place[node] = tree.offer(nodes[node].parent.map_or(0, |parent| place[parent]), nodes[node].token);
    }
}

/// A draft is no more than an offer: where it does not fit, or is stopped, there is none.
pub(super) fn offered_only(ran: Result<Option<Row>, EngineError>) -> Result<Option<Row>, DialogError> {
    match ran {
        Err(error) if is_no_draft(&error) => Ok(None),
        ran => Ok(ran?),
    }
}

/// Runs tokens of a sequence, and returns the row of the last.
pub(super) fn run_plain(
    draft: &mut dyn FeatureModel,
    seq: SeqId,
    tokens: &[TokenId],
    features: &[f32],
) -> Result<Option<Row>, EngineError> {
    let mut row = None;
    draft.process_features(&[SeqTokens { seq, tokens }], features, &mut |_, logits, features| {
        row = Some(Row { node: None, seq, logits: logits.to_vec(), features: features.to_vec() });
    })?;
    Ok(row)
}

/// Runs the next nodes of all trees, each behind its parent with the draft's own hidden states; false where they do not fit. `free`: the
/// first sequence that is not given out.
fn run_level(draft: &mut dyn FeatureModel, trees: &mut [Growing<'_>], free: &mut u8) -> Result<bool, DialogError> {
    let (mut next, mut tokens, mut features) = (Vec::new(), Vec::<[TokenId; 1]>::new(), Vec::new());
    for (at, tree) in trees.iter().enumerate() {
        for &node in &tree.frontier {
            let parent = tree.nodes[node].parent;
            let parent = tree.rows.iter().find(|row| row.node == parent).expect("a node follows a row that ran");
            let seq = SeqId(*free);
            *free += 1;
            draft.share(parent.seq, seq, 0..usize::MAX)?;
            features.extend_from_slice(&parent.features);
            tokens.push([tree.nodes[node].token]);
            next.push((at, Row { node: Some(node), seq, ..Row::default() }));
        }
    }
    let inputs: Vec<SeqTokens<'_>> =
        next.iter().zip(&tokens).map(|((_, row), tokens)| SeqTokens { seq: row.seq, tokens }).collect();
    let mut found = vec![(Vec::new(), Vec::new()); next.len()];
    let ran = draft.process_features(&inputs, &features, &mut |input, logits, features| {
        found[input] = (logits.to_vec(), features.to_vec());
    });
    match ran {
        Err(EngineError::Overflow(_) | EngineError::Stopped { .. } | EngineError::TokenOutOfRange { .. }) => {
            return Ok(false);
        }
        Err(EngineError::Plan(_)) => return Ok(false),
        ran => ran?,
    }
    trees.iter_mut().for_each(|tree| tree.rows.clear());
    for ((at, row), (logits, features)) in next.into_iter().zip(found) {
        trees[at].rows.push(Row { logits, features, ..row });
    }
    Ok(true)
}

/// A model as one that works with hidden states.
pub(super) fn featured<'m, 'a: 'm>(
    model: Option<&'m mut (dyn TokenModel + 'a)>,
) -> Result<&'m mut (dyn FeatureModel + 'm), DialogError> {
    let found = if model.is_some() { "one that knows none" } else { "one model" };
    let missing = || DialogError::Kind {
        kind: NAME,
        expected: "a target and a draft model that work with hidden states".into(),
        found: found.into(),
    };
    model.and_then(TokenModel::features).ok_or_else(missing)
}
