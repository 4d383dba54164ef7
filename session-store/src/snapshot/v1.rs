//! Reads what version 1 kept in other places: the tokens of sequence 0 in section 2, everything else about sequences and
//! dialog in the caller's bytes.
//!
//! Those bytes, little-endian: `GNBK`, u32 count; for each sequence u32 sequence, u32 count, and for each token u32 token,
//! u64 position. Behind that the dialog's JSON, or bytes of the caller's own. Without `GNBK` there is one sequence from
//! position 0.

use genie_types::TokenId;
use kvmanager::{KvImage, SeqId};
use serde::Deserialize;

use super::container::Reader;
use super::sections::sequence_id;
use super::{DialogState, SavedSequence, SavedToken, Snapshot};
use crate::ModelHash;
use crate::error::Corruption;

const SEQUENCES: &[u8] = b"GNBK";

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Dialog {
    version: u32,
    unprocessed: Option<u32>,
    /// Lengths of the runs of tokens that were input and that were generated, input first.
    said_runs: Vec<usize>,
    open: bool,
    rng: String,
}

pub(super) fn read_tokens(bytes: &[u8]) -> Result<Vec<TokenId>, Corruption> {
    if !bytes.len().is_multiple_of(4) {
        return Err(Corruption::Length { what: "tokens", n_bytes: bytes.len() });
    }
    Ok(bytes.chunks_exact(4).map(|b| TokenId(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect())
}

pub(super) fn convert(
    model: ModelHash,
    image: KvImage,
    tokens: Vec<TokenId>,
    extra: Vec<u8>,
) -> Result<Snapshot, Corruption> {
    let Some(list) = extra.strip_prefix(SEQUENCES) else {
        let (n_tokens, n_past) = (tokens.len(), image.n_past());
        if n_tokens != n_past {
            return Err(Corruption::TokensWithoutSequences { n_tokens, n_past });
        }
        let dialog = SavedSequence { seq: SeqId(0), tokens: SavedToken::prompt(&tokens) };
        let sequences = Some(dialog).filter(|s| !s.tokens.is_empty()).into_iter().collect();
        return Ok(Snapshot {
            model,
            image,
            sequences,
            dialog: None,
            user_data: extra,
            bundle: String::new(),
            adapters: None,
        });
    };
    let mut reader = Reader::new(list, "list of sequences");
    let mut sequences = Vec::new();
    for _ in 0..reader.u32()? {
        let (seq, n) = (sequence_id(reader.u32()?)?, reader.u32()?);
        let mut tokens = Vec::new();
        for _ in 0..n {
            let (token, found) = (TokenId(reader.u32()?), reader.u64()?);
            let position = usize::try_from(found).map_err(|_| Corruption::Number { what: "position", found })?;
            tokens.push(SavedToken { token, position, generated: false });
        }
        sequences.push(SavedSequence { seq, tokens });
    }
    let rest = reader.rest();
    let mut snapshot = Snapshot { model, image, sequences, ..Snapshot::default() };
    if !snapshot.tokens().eq(tokens.iter().copied()) {
        return Err(Corruption::TokensDiffer);
    }
    match serde_json::from_slice(rest) {
        Ok(dialog) => set_dialog(&mut snapshot, dialog)?,
        Err(_) => snapshot.user_data = rest.to_vec(),
    }
    Ok(snapshot)
}

fn set_dialog(snapshot: &mut Snapshot, dialog: Dialog) -> Result<(), Corruption> {
    if dialog.version != 1 {
        return Err(Corruption::DialogVersion { found: dialog.version });
    }
    let n_tokens = snapshot.tokens().len() + usize::from(dialog.unprocessed.is_some());
    let total = dialog.said_runs.iter().try_fold(0usize, |sum, n| sum.checked_add(*n));
    if total != Some(n_tokens) {
        return Err(Corruption::RunLengths);
    }
    let runs = dialog.said_runs.iter().enumerate();
    let generated = runs.flat_map(|(i, &n)| std::iter::repeat_n(i % 2 == 1, n));
    let own = snapshot.sequences.iter_mut().filter(|s| s.seq == SeqId(0)).flat_map(|s| &mut s.tokens);
    own.zip(generated).for_each(|(token, generated)| token.generated = generated);
    let unprocessed = dialog.unprocessed.map(TokenId);
    snapshot.dialog =
        Some(DialogState { unprocessed, open: dialog.open, random_state: dialog.rng, ..DialogState::default() });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::container::{self, Tag};
    use super::*;
    use crate::StoreError;

    fn list() -> (Vec<u8>, Vec<SavedSequence>) {
        let token = |token, position| SavedToken { token: TokenId(token), position, generated: false };
        let sequences = vec![
            SavedSequence { seq: SeqId(0), tokens: vec![token(5, 0), token(6, 1)] },
            SavedSequence { seq: SeqId(3), tokens: vec![token(9, 70_000_000_000)] },
        ];
        let mut out = SEQUENCES.to_vec();
        out.extend((sequences.len() as u32).to_le_bytes());
        for s in &sequences {
            out.extend(u32::from(s.seq.0).to_le_bytes());
            out.extend((s.tokens.len() as u32).to_le_bytes());
            for t in &s.tokens {
                out.extend(t.token.0.to_le_bytes());
                out.extend((t.position as u64).to_le_bytes());
            }
        }
        (out, sequences)
    }

    /// A file of version 1 with an empty cache.
    fn read(tokens: &[u32], extra: &[u8]) -> Result<Snapshot, StoreError> {
        let tokens: Vec<u8> = tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
        let sections: [(Tag, &[u8]); 5] = [
            (Tag::new(1, 0), &[7; 32]),
            (Tag::new(2, 0), &tokens),
            (Tag::new(3, 0), &[0; 8]),
            (Tag::new(4, 0), &[0; 4]),
            (Tag::new(6, 0), extra),
        ];
        let mut file = Vec::new();
        container::write(1, &sections, &mut file).unwrap();
        Snapshot::from_bytes(&file)
    }

    #[test]
    fn sequences_survive_and_nonsense_is_named() {
        let refused = |tokens: &[u32], extra: &[u8]| read(tokens, extra).unwrap_err().to_string();
        let (list, sequences) = list();
        let mine = [list.as_slice(), b"mine"].concat();
        let snapshot = read(&[5, 6], &mine).unwrap();
        assert_eq!((&snapshot.sequences, snapshot.user_data.as_slice()), (&sequences, &b"mine"[..]));
        assert_eq!((snapshot.model, snapshot.dialog), (ModelHash([7; 32]), None));
        for n in 4..list.len() {
            let why = refused(&[5, 6], &list[..n]);
            assert_eq!(why, "corrupt snapshot: the list of sequences ends early", "{n} bytes");
        }
        assert_eq!(refused(&[5], &mine), "corrupt snapshot: the tokens are not those of sequence 0");
        let why = refused(&[5], b"another's");
        assert_eq!(why, "corrupt snapshot: 1 tokens for 0 positions, and no list of sequences");
    }

    #[test]
    fn a_dialog_must_add_up() {
        let json = |version: u32, runs: &str| {
            let dialog =
                format!(r#"{{"version":{version},"unprocessed":7,"said-runs":[{runs}],"open":true,"rng":"1 2 3"}}"#);
            read(&[5, 6], &[list().0.as_slice(), dialog.as_bytes()].concat())
        };
        let snapshot = json(1, "1,2").unwrap();
        assert_eq!(snapshot.history(), ([5, 6, 7].map(TokenId).to_vec(), vec![false, true, true]));
        let dialog = DialogState {
            unprocessed: Some(TokenId(7)),
            open: true,
            random_state: "1 2 3".into(),
            ..DialogState::default()
        };
        assert_eq!(snapshot.dialog, Some(dialog));
        for runs in ["3,1", "6", "", "18446744073709551615,4"] {
            assert_eq!(json(1, runs).unwrap_err().to_string(), "corrupt snapshot: counts of tokens do not add up");
        }
        assert_eq!(json(2, "1,2").unwrap_err().to_string(), "corrupt snapshot: a dialog of version 2, expected 1");
    }
}
