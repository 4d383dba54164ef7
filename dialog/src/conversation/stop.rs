//! Finds stop sequences in streamed text, and holds back text that may become one.
//!
//! *Invariant*: what has been given out and where a match lies do not depend on how the text was cut into pieces.
//! The match that ends first wins; among those that end together the longest.

use std::collections::VecDeque;

/// A stop sequence that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// Which one.
    pub(super) sequence: usize,
    /// The place in the history of the token that its first character came from.
    pub(super) token: usize,
}

/// Text on its way out.
#[derive(Clone, Debug, Default)]
pub(super) struct StopMatcher {
    held: String,
    /// `(byte in held, token)`: from there on the text came from that token. The first one is at byte 0.
    marks: VecDeque<(usize, usize)>,
}

impl StopMatcher {
    /// Takes the text of `token`, whose first character may have begun in the earlier token `first`; appends what can
    /// be given out to `out`. After a match nothing more will be given out of the text so far.
    pub(super) fn push(
        &mut self,
        sequences: &[String],
        text: &str,
        first: usize,
        token: usize,
        out: &mut String,
    ) -> Option<Match> {
        if sequences.is_empty() {
            out.push_str(text);
            return None;
        }
        let c = text.chars().next()?;
        self.marks.push_back((self.held.len(), first));
        if first != token && text.len() > c.len_utf8() {
            self.marks.push_back((self.held.len() + c.len_utf8(), token));
        }
        self.held.push_str(text);
        if let Some((start, sequence)) = find(&self.held, sequences) {
            let token = self.token_at(start);
            out.push_str(&self.held[..start]);
            self.held.clear();
            self.marks.clear();
            return Some(Match { sequence, token });
        }
        self.release(self.held.len() - may_become(&self.held, sequences), out);
        None
    }

    /// Gives out what is held back: no match will come.
    pub(super) fn flush(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
        self.marks.clear();
    }

    fn release(&mut self, n: usize, out: &mut String) {
        if n == 0 {
            return;
        }
        out.push_str(&self.held[..n]);
        self.held.drain(..n);
        let token = self.marks.iter().take_while(|(at, _)| *at <= n).last().map_or(0, |m| m.1);
        self.marks.retain(|(at, _)| *at > n);
        self.marks.iter_mut().for_each(|m| m.0 -= n);
        if !self.held.is_empty() {
            self.marks.push_front((0, token));
        }
    }

    fn token_at(&self, byte: usize) -> usize {
        self.marks.iter().take_while(|(at, _)| *at <= byte).last().map_or(0, |m| m.1)
    }
}

/// Start and number of the match that ends first; the longest of those.
fn find(text: &str, sequences: &[String]) -> Option<(usize, usize)> {
    let found = sequences.iter().enumerate().filter_map(|(i, s)| text.find(s.as_str()).map(|at| (at + s.len(), at, i)));
    found.min().map(|(_, at, i)| (at, i))
}

/// Bytes at the end of the text that are the beginning of a sequence.
fn may_become(text: &str, sequences: &[String]) -> usize {
    let of_one = |s: &String| {
        let longest = s.len().saturating_sub(1).min(text.len());
        (1..=longest).rev().find(|&n| s.is_char_boundary(n) && text.as_bytes().ends_with(&s.as_bytes()[..n]))
    };
    sequences.iter().filter_map(of_one).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(sequences: &[String], pieces: &[&str]) -> (Vec<String>, Option<Match>) {
        let mut m = StopMatcher::default();
        let mut chunks = Vec::new();
        for (i, piece) in pieces.iter().enumerate() {
            let mut out = String::new();
            let found = m.push(sequences, piece, i, i, &mut out);
            chunks.push(out);
            if found.is_some() {
                return (chunks, found);
            }
        }
        let mut out = String::new();
        m.flush(&mut out);
        chunks.push(out);
        (chunks, None)
    }

    #[test]
    fn text_is_held_while_it_may_match() {
        let found = |sequence, token| Some(Match { sequence, token });
        // Sequences and pieces; what is given out for each piece (and at the end), the match.
        type Texts = &'static [&'static str];
        let cases: [(Texts, Texts, Texts, Option<Match>); 7] = [
            (&["STOP"], &["go", " ST", "OP", "x"], &["go", " ", ""], found(0, 1)),
            (&["STOP"], &["S", "T", "A", "R"], &["", "", "STA", "R", ""], None),
            (&["aab"], &["a", "a", "a", "b"], &["", "", "a", ""], found(0, 1)),
            (&["\n\n"], &["a\n", "b\n", "\n"], &["a", "\nb", ""], found(0, 1)),
            (&["é!"], &["xé", "?", "é", "!"], &["x", "é?", "", ""], found(0, 2)),
            // The one that ends first wins, though the other began earlier; among equal ends the longest.
            (&["bcd", "c"], &["abcd"], &["ab"], found(1, 0)),
            (&["c", "bc"], &["ab", "c"], &["a", ""], found(1, 0)),
        ];
        for (sequences, pieces, chunks, expected) in cases {
            let sequences: Vec<String> = sequences.iter().map(|s| (*s).to_owned()).collect();
            let (got, matched) = run(&sequences, pieces);
            assert_eq!(got, chunks, "{pieces:?}");
            assert_eq!(matched, expected, "{pieces:?}");
        }
    }

    #[test]
    fn a_character_begun_in_an_earlier_token_belongs_to_it() {
        let sequences = ["日!".to_owned()];
        let (mut m, mut out) = (StopMatcher::default(), String::new());
        assert_eq!(m.push(&sequences, "a", 4, 4, &mut out), None);
        // Token 5 brought the first bytes of the character, token 6 the last and an `!`.
        assert_eq!(m.push(&sequences, "日!", 5, 6, &mut out), Some(Match { sequence: 0, token: 5 }));
        assert_eq!(out, "a");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn cuts_do_not_matter(
            text in "[abé]{0,24}",
            sequences in prop::collection::vec("[abé]{1,4}", 1..4),
            cuts in prop::collection::vec(1usize..5, 24),
        ) {
            // By definition: the shortest beginning of the text that ends with a sequence, cut where the longest begins.
            let ends = (0..=text.len()).filter(|n| text.is_char_boundary(*n));
            let hit = ends.filter_map(|n| {
                let of = |s: &String| text[..n].ends_with(s.as_str()).then_some(s.len());
                sequences.iter().filter_map(of).max().map(|len| n - len)
            }).next();
            let mut pieces = Vec::new();
            let mut rest: Vec<char> = text.chars().collect();
            for n in cuts {
                let tail = rest.split_off(n.min(rest.len()));
                pieces.push(rest.iter().collect::<String>());
                rest = tail;
            }
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let (chunks, found) = run(&sequences, &pieces);
            prop_assert_eq!(chunks.concat(), &text[..hit.unwrap_or(text.len())]);
            prop_assert_eq!(found.is_some(), hit.is_some());
            // The token is the one whose piece covers the first byte of the match.
            if let (Some(m), Some(at)) = (found, hit) {
                let before: usize = pieces[..m.token].iter().map(|p| p.len()).sum();
                prop_assert!(before <= at && at < before + pieces[m.token].len());
            }
        }
    }
}
