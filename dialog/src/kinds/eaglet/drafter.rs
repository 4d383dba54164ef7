//! What the draft model of an `eaglet` dialog runs: it follows the dialog, then grows a tree.
//!
//! *Rows*: the draft's token i is the dialog's token `base + 1 + i`, with the target's hidden states of the token before it. `base`
//! is 0 unless the first of them are unknown, after a restored prefix say.
//!
//! *libGenie* keeps no account of the dialog but feeds what came since: the input of a turn by itself, then the newest token in
//! the place of as many rows as the last round had.

use engine::{EngineError, FeatureModel, SeqId, SeqTokens, TokenModel};
use genie_types::TokenId;

use super::settings::{EagletSettings, NAME};
use super::tree::{self, Node};
use crate::conversation::decoding::Decoding;
use crate::conversation::error::DialogError;
use crate::conversation::trees::DraftTree;
use crate::kinds::VocabularyMap;
use crate::sampler::SamplerRules;

/// Where the draft model is, beside its own transcript.
#[derive(Debug, Default)]
pub(super) struct Drafter {
    /// The dialog's token that the draft's first hidden states belong to.
    base: usize,
    /// By libGenie's rules.
    genie: AsGenie,
}

/// What libGenie keeps.
#[derive(Debug, Default)]
struct AsGenie {
    /// Where the input of this turn begins, until the draft has taken it.
    input_from: Option<usize>,
    /// The position of the first token drawn last, and the tokens drawn from there.
    first: usize,
    drawn: Vec<TokenId>,
    /// Rows of the last round; `None` for one.
    last_round: Option<usize>,
}

/// A row of the draft model: what may follow a node.
struct Row {
    node: Option<usize>,
    seq: SeqId,
    logits: Vec<f32>,
    features: Vec<f32>,
}

impl Drafter {
    /// A reply begins; the target stands there.
    pub(super) fn begin(&mut self, n_past: usize) {
        self.genie.input_from = Some(n_past);
        self.genie.drawn.clear();
    }

    /// A token was drawn from a tree.
    pub(super) fn saw(&mut self, token: TokenId) {
        self.genie.drawn.push(token);
    }

    /// The draft model takes what the dialog has beyond it.
    pub(super) fn keep_up(&mut self, decoding: &mut Decoding<'_>) -> Result<(), DialogError> {
        if decoding.rules() == SamplerRules::Genie {
            return self.feed(decoding).map(drop);
        }
        self.follow(decoding, false).map(drop)
    }

    /// A tree behind the newest token; `None` where there is nothing to draft from.
    pub(super) fn grow(
        &mut self,
        decoding: &mut Decoding<'_>,
        settings: &EagletSettings,
        map: Option<&VocabularyMap>,
    ) -> Result<Option<DraftTree>, DialogError> {
        let as_genie = decoding.rules() == SamplerRules::Genie;
        let root = if as_genie { self.feed(decoding)? } else { self.follow(decoding, true)? };
        let (Some(root), Some(last)) = (root, decoding.last()) else { return Ok(None) };
        let n_vocab = decoding.model().vocab_size();
        let top_p = decoding.reply.sampler.settings().top_p();
        let context = decoding.reply.context;
        let is_stop = |node: &Node| context.eos.contains(&node.token) || context.eot == Some(node.token);
        let n_levels = if as_genie { settings.draft_len } else { settings.draft_len.min(decoding.n_wanted() - 1) };
        let draft = featured(decoding.second.as_deref_mut())?;
        let (mut nodes, mut rows, mut used) = (Vec::<Node>::new(), vec![root], 0);
        for level in 1..=n_levels {
            let first = nodes.len();
            for row in &rows {
                // libGenie runs a stop token and then has nothing follow it.
                if row.node.is_some_and(|node| is_stop(&nodes[node])) {
                    continue;
                }
                let score = row.node.map_or(1.0, |node| nodes[node].score);
                let mapped = map.map(|map| map.row(&row.logits, n_vocab));
                let logits = mapped.as_deref().unwrap_or(&row.logits[..row.logits.len().min(n_vocab)]);
                let found = tree::candidates(logits, settings.n_branches, top_p).into_iter();
                nodes.extend(found.map(|(token, p)| Node { token, parent: row.node, score: score * p }));
            }
            let frontier = tree::best(&nodes, first, settings.n_branches, |node| as_genie || !is_stop(node));
            let stops = settings
                .early_stop
                .is_some_and(|stop| level >= stop.min_levels && tree::uncertainty(&nodes, &frontier) > stop.entropy);
            if level == n_levels || frontier.is_empty() || stops {
                break;
            }
            let Some(next) = run_level(draft, &nodes, &frontier, &rows, &mut used)? else { break };
            rows = next;
        }
        for seq in 1..=used {
            draft.remove(SeqId(seq), 0..usize::MAX)?;
        }
        let mut tree = DraftTree::new(last);
        if as_genie {
            tree = tree.whole_path();
            self.genie.first = decoding.model().n_past();
            self.genie.drawn.clear();
        }
        let mut place = vec![0; nodes.len()];
        for node in tree::offered(&nodes, settings.max_rows.saturating_sub(1)) {
            place[node] = tree.offer(nodes[node].parent.map_or(0, |parent| place[parent]), nodes[node].token);
        }
        Ok(Some(tree))
    }

    /// The draft model goes back to what it has in common with the dialog and takes the rest; returns the row of the newest
    /// token where it is wanted, and `None` where there are no hidden states for it.
    fn follow(&mut self, decoding: &mut Decoding<'_>, wants_row: bool) -> Result<Option<Row>, DialogError> {
        let tokens = decoding.history();
        let Decoding { model, second, .. } = decoding;
        let Some(n_pairs) = tokens.len().checked_sub(1).filter(|n| *n > 0) else { return Ok(None) };
        let target = featured(Some(&mut **model))?;
        let draft = featured(second.as_deref_mut())?;
        loop {
            let wanted = tokens.get(self.base + 1..).unwrap_or_default();
            let most = wanted.len().saturating_sub(usize::from(wants_row));
            let own = draft.transcript();
            let same = own.tokens().iter().zip(wanted).take_while(|(a, b)| a == b).count().min(most);
            let common = if own.is_plain() { same } else { 0 };
            let known = (0..n_pairs).rev().take_while(|&i| target.feature(i).is_some()).count();
            let first_known = n_pairs - known;
            if common < draft.n_past() {
                let back = if common == 0 { draft.reset() } else { draft.rewind(common) };
                back.or_else(|_| draft.reset())?;
            }
            // Without the rows in between it begins where they are known again.
            if self.base + draft.n_past() < first_known {
                draft.reset()?;
                self.base = first_known;
            }
            let from = self.base + draft.n_past();
            if from >= n_pairs {
                return Ok(None);
            }
            let new = &tokens[from + 1..];
            let features: Vec<f32> = (from..n_pairs).filter_map(|i| target.feature(i)).flatten().copied().collect();
            match run_plain(draft, new, &features) {
                // A token that only the target knows, of an image say: the draft begins behind it.
                Err(EngineError::TokenOutOfRange { place, .. }) if from + place + 1 < n_pairs => {
                    draft.reset()?;
                    self.base = from + place + 1;
                }
                ran => return offered_only(ran),
            }
        }
    }

    /// As libGenie has the draft model follow.
    fn feed(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<Row>, DialogError> {
        let (tokens, last) = (decoding.processed().to_vec(), decoding.last());
        let Decoding { model, second, .. } = decoding;
        let target = featured(Some(&mut **model))?;
        let draft = featured(second.as_deref_mut())?;
        if let Some(first) = self.genie.input_from.take() {
            let pairs = first..tokens.len().saturating_sub(1);
            let features: Vec<f32> = pairs.clone().filter_map(|i| target.feature(i)).flatten().copied().collect();
            if !pairs.is_empty() && features.len() == pairs.len() * target.feature_widths().given.unwrap_or(0) {
                offered_only(run_plain(draft, &tokens[first + 1..], &features))?;
            }
            let n_past = draft.n_past().saturating_sub(self.genie.last_round.unwrap_or(1));
            if n_past == 0 {
                draft.reset()?
            } else {
                draft.rewind(n_past)?
            }
            self.genie.first = tokens.len().saturating_sub(1);
            self.genie.drawn = last.into_iter().collect();
        }
        if self.genie.drawn.is_empty() {
            self.genie.first = tokens.len().saturating_sub(1);
            self.genie.drawn.extend(last);
        }
        let drawn = std::mem::take(&mut self.genie.drawn);
        let rows = (self.genie.first..).take(drawn.len()).map_while(|i| target.feature(i));
        let features: Vec<f32> = rows.flatten().copied().collect();
        if drawn.is_empty() || features.len() != drawn.len() * target.feature_widths().given.unwrap_or(0) {
            return Ok(None);
        }
        self.genie.last_round = Some(drawn.len());
        offered_only(run_plain(draft, &drawn, &features))
    }
}

/// A draft is no more than an offer: where it does not fit, or is stopped, there is none.
fn offered_only(ran: Result<Option<Row>, EngineError>) -> Result<Option<Row>, DialogError> {
    match ran {
        Err(EngineError::Overflow(_) | EngineError::Stopped { .. } | EngineError::TokenOutOfRange { .. }) => Ok(None),
        ran => Ok(ran?),
    }
}

/// Runs tokens of the dialog, and returns the row of the last.
fn run_plain(draft: &mut dyn FeatureModel, tokens: &[TokenId], features: &[f32]) -> Result<Option<Row>, EngineError> {
    let mut row = None;
    draft.process_features(&[SeqTokens { seq: SeqId(0), tokens }], features, &mut |_, logits, features| {
        row = Some(Row { node: None, seq: SeqId(0), logits: logits.to_vec(), features: features.to_vec() });
    })?;
    Ok(row)
}

/// Runs the nodes of a level, each behind its parent with the draft's own hidden states; `None` where they do not fit. `used`:
/// sequences given out so far.
fn run_level(
    draft: &mut dyn FeatureModel,
    nodes: &[Node],
    frontier: &[usize],
    parents: &[Row],
    used: &mut u8,
) -> Result<Option<Vec<Row>>, DialogError> {
    let (mut next, mut features) = (Vec::with_capacity(frontier.len()), Vec::new());
    for &node in frontier {
        let parent = parents.iter().find(|row| row.node == nodes[node].parent).expect("a node follows a row that ran");
        *used += 1;
        draft.share(parent.seq, SeqId(*used), 0..usize::MAX)?;
        features.extend_from_slice(&parent.features);
        next.push(Row { node: Some(node), seq: SeqId(*used), logits: Vec::new(), features: Vec::new() });
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
fn featured<'m, 'a: 'm>(
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
