//! What the draft model of an `eaglet` dialog runs: it follows the dialog, then has a tree grow.
//!
//! *Rows*: the draft's token i is the dialog's token `base + 1 + i`, with the target's hidden states of the token before it. `base`
//! is 0 unless the first of them are unknown, after a restored prefix say.
//!
//! *libGenie* keeps no account of the dialog but feeds what came since: the input of a turn by itself, then the newest token in
//! the place of as many rows as the last round had.

use engine::{EngineError, SeqId};
use genie_types::TokenId;

use super::growth::{Growth, Row, featured, offer, offered_only, run_plain};
use super::settings::EagletSettings;
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
        let growth = Growth {
            settings,
            map,
            n_vocab,
            top_p: decoding.reply.sampler.settings().top_p(),
            n_levels: if as_genie { settings.draft_len } else { settings.draft_len.min(decoding.n_wanted() - 1) },
            is_stop: &|token| context.eos.contains(&token) || context.eot == Some(token),
            as_genie,
            first_free: 1,
        };
        let nodes = growth.nodes(featured(decoding.second.as_deref_mut())?, root)?;
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
            match run_plain(draft, SeqId(0), new, &features) {
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
