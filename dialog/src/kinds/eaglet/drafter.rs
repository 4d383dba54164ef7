//! What the draft model of an `eaglet` dialog runs: it follows the dialog, then has a tree grow.
//!
//! *libGenie* keeps no account of the dialog but feeds what came since: the input of a turn by itself, then the newest token in
//! the place of as many rows as the last round had.

use engine::SeqId;
use genie_types::TokenId;

use super::following::{Following, Pair};
use super::growth::{Growth, Row, Start, featured, offer, offered_only, run_plain};
use super::settings::EagletSettings;
use crate::conversation::decoding::Decoding;
use crate::conversation::error::DialogError;
use crate::conversation::trees::DraftTree;
use crate::kinds::VocabularyMap;
use crate::sampler::SamplerRules;

/// Where the draft model is, beside its own transcript.
#[derive(Debug, Default)]
pub(super) struct Drafter {
    following: Following,
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
        let context = decoding.reply.context;
        let growth = Growth { settings, map, n_vocab, as_genie, first_free: 1 };
        let start = Start {
            root,
            n_levels: if as_genie { settings.draft_len } else { settings.draft_len.min(decoding.n_wanted() - 1) },
            top_p: decoding.reply.sampler.settings().top_p(),
            is_stop: &|token| context.eos.contains(&token) || context.eot == Some(token),
        };
        let nodes = growth.nodes(featured(decoding.second.as_deref_mut())?, vec![start])?.pop().unwrap_or_default();
        let mut tree = DraftTree::new(last);
        if as_genie {
            tree = tree.whole_path();
            self.genie.first = decoding.model().n_past();
            self.genie.drawn.clear();
        }
        offer(&mut tree, &nodes, settings.max_rows);
        Ok(Some(tree))
    }

    /// The draft model goes back to what it has in common with the dialog and takes the rest; returns the row of the newest
    /// token where it is wanted, and `None` where there are no hidden states for it.
    fn follow(&mut self, decoding: &mut Decoding<'_>, wants_row: bool) -> Result<Option<Row>, DialogError> {
        let tokens = decoding.history();
        let Decoding { model, second, .. } = decoding;
        let pair = Pair {
            target: featured(Some(&mut **model))?,
            seq: SeqId(0),
            draft: featured(second.as_deref_mut())?,
            own: SeqId(0),
        };
        offered_only(self.following.catch_up(pair, &tokens, wants_row, &mut |n_rows| n_rows))
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
                offered_only(run_plain(draft, SeqId(0), &tokens[first + 1..], &features))?;
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
        offered_only(run_plain(draft, SeqId(0), &drawn, &features))
    }
}
