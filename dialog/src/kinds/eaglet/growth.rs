//! How a tree grows: level by level, the best nodes of each in one step of the draft model, each in a sequence of its own.

use engine::{EngineError, FeatureModel, SeqId, SeqTokens, TokenModel};
use genie_types::TokenId;

use super::settings::{EagletSettings, NAME};
use super::tree::{self, Node};
use crate::conversation::error::DialogError;
use crate::conversation::trees::DraftTree;
use crate::kinds::VocabularyMap;

/// A row of the draft model: what may follow a node.
pub(super) struct Row {
    node: Option<usize>,
    seq: SeqId,
    logits: Vec<f32>,
    features: Vec<f32>,
}

/// What a tree grows by.
pub(super) struct Growth<'a> {
    pub(super) settings: &'a EagletSettings,
    pub(super) map: Option<&'a VocabularyMap>,
    /// Of the target.
    pub(super) n_vocab: usize,
    pub(super) top_p: f32,
    pub(super) n_levels: usize,
    pub(super) is_stop: &'a dyn Fn(TokenId) -> bool,
    /// libGenie runs a stop token and then has nothing follow it.
    pub(super) as_genie: bool,
    /// The first of the draft model's sequences that nodes have; those behind it are free too.
    pub(super) first_free: u8,
}

impl Growth<'_> {
    /// The nodes behind the newest token, whose row is `root`. Sequences are given back.
    pub(super) fn nodes(&self, draft: &mut dyn FeatureModel, root: Row) -> Result<Vec<Node>, DialogError> {
        let is_stop = |node: &Node| (self.is_stop)(node.token);
        let (mut nodes, mut rows, mut free) = (Vec::<Node>::new(), vec![root], self.first_free);
        for level in 1..=self.n_levels {
            let first = nodes.len();
            for row in &rows {
                if row.node.is_some_and(|node| is_stop(&nodes[node])) {
                    continue;
                }
                let score = row.node.map_or(1.0, |node| nodes[node].score);
                let mapped = self.map.map(|map| map.row(&row.logits, self.n_vocab));
                let logits = mapped.as_deref().unwrap_or(&row.logits[..row.logits.len().min(self.n_vocab)]);
                let found = tree::candidates(logits, self.settings.n_branches, self.top_p).into_iter();
                nodes.extend(found.map(|(token, p)| Node { token, parent: row.node, score: score * p }));
            }
            let may = |node: &Node| self.as_genie || !is_stop(node);
            let frontier = tree::best(&nodes, first, self.settings.n_branches, may);
            let stops = self
                .settings
                .early_stop
                .is_some_and(|stop| level >= stop.min_levels && tree::uncertainty(&nodes, &frontier) > stop.entropy);
            if level == self.n_levels || frontier.is_empty() || stops {
                break;
            }
            let Some(next) = run_level(draft, &nodes, &frontier, &rows, &mut free)? else { break };
            rows = next;
        }
        for seq in self.first_free..free {
            draft.remove(SeqId(seq), 0..usize::MAX)?;
        }
        Ok(nodes)
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
        Err(EngineError::Overflow(_) | EngineError::Stopped { .. } | EngineError::TokenOutOfRange { .. }) => Ok(None),
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

/// Runs the nodes of a level, each behind its parent with the draft's own hidden states; `None` where they do not fit. `free`: the first
/// sequence that is not given out.
fn run_level(
    draft: &mut dyn FeatureModel,
    nodes: &[Node],
    frontier: &[usize],
    parents: &[Row],
    free: &mut u8,
) -> Result<Option<Vec<Row>>, DialogError> {
    let (mut next, mut features) = (Vec::with_capacity(frontier.len()), Vec::new());
    for &node in frontier {
        let parent = parents.iter().find(|row| row.node == nodes[node].parent).expect("a node follows a row that ran");
        let seq = SeqId(*free);
        *free += 1;
        draft.share(parent.seq, seq, 0..usize::MAX)?;
        features.extend_from_slice(&parent.features);
        next.push(Row { node: Some(node), seq, logits: Vec::new(), features: Vec::new() });
    }
    let tokens: Vec<[TokenId; 1]> = frontier.iter().map(|&node| [nodes[node].token]).collect();
    let inputs: Vec<SeqTokens<'_>> =
        next.iter().zip(&tokens).map(|(row, tokens)| SeqTokens { seq: row.seq, tokens }).collect();
    let mut found = vec![(Vec::new(), Vec::new()); next.len()];
    let ran = draft.process_features(&inputs, &features, &mut |input, logits, features| {
        found[input] = (logits.to_vec(), features.to_vec());
    });
    match ran {
        Err(EngineError::Overflow(_) | EngineError::Stopped { .. } | EngineError::TokenOutOfRange { .. }) => Ok(None),
        Err(EngineError::Plan(_)) => Ok(None),
        Err(e) => Err(e.into()),
        Ok(()) => {
            next.iter_mut().zip(found).for_each(|(row, found)| (row.logits, row.features) = found);
            Ok(Some(next))
        }
    }
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
