//! A grammar through the front door: a reply that follows it, and one that a saved session goes on with.

use open_genie::{Error, Grammar, GrammarKind, Options, SentenceCode, Session, StopReason, demo};

fn say(session: &mut Session, text: &str, code: SentenceCode) -> (String, StopReason) {
    let reply = session.query(text, code).into_reply().unwrap();
    (reply.text, reply.stop)
}

/// One test, so that the demo is compiled once.
#[test]
fn replies_follow_a_grammar_from_session_to_session() -> Result<(), Error> {
    let cache = tempfile::tempdir().unwrap();
    let bundle = cache.path().join("demo");
    demo::compile(&bundle, &Options::new(), &mut compiler::Silent).unwrap();
    let word = Grammar::new(GrammarKind::Regex, "[a-z]{4} and [a-z]{6}!").expect("a grammar");
    let options = Options::new().grammar(word.clone());
    let whole = regex_of_word;

    let mut session = Session::open(&bundle, &options)?;
    assert_eq!(session.grammar(), Some(&word));
    let (text, stop) = say(&mut session, "ROMEO:", SentenceCode::Complete);
    assert!(whole(&text), "{text}");
    assert!(matches!(stop, StopReason::Eos | StopReason::GrammarEnd), "{stop}");

    // Stopped in the middle, saved, and gone on with elsewhere: the rest of the same text.
    session.reset()?;
    session.set_max_tokens(Some(3));
    let (begin, stop) = say(&mut session, "ROMEO:", SentenceCode::Complete);
    assert_eq!(stop, StopReason::MaxTokens);
    session.save(cache.path().join("saved"))?;
    let go_on = |options: &Options| {
        let mut other = Session::open(&bundle, options)?;
        other.restore(cache.path().join("saved"))?;
        Ok::<_, Error>(say(&mut other, " ", SentenceCode::End).0)
    };
    let rest = go_on(&options)?;
    assert!(!begin.is_empty() && whole(&format!("{begin}{rest}")), "{begin}|{rest}");
    // Another grammar starts.
    let other = Grammar::new(GrammarKind::Ebnf, "root ::= \"No\" [.,]").expect("a grammar");
    let text = go_on(&Options::new().grammar(other))?;
    assert!(text == "No." || text == "No,", "{text}");

    session.set_grammar(None)?;
    session.set_max_tokens(Some(5));
    assert_eq!(say(&mut session, "JULIET:", SentenceCode::Complete).1, StopReason::MaxTokens);
    Ok(())
}

/// Four letters, ` and `, six letters, an exclamation mark.
fn regex_of_word(text: &str) -> bool {
    let letters = |part: &str, n| part.len() == n && part.bytes().all(|b| b.is_ascii_lowercase());
    let parts = text.strip_suffix('!').and_then(|text| text.split_once(" and "));
    parts.is_some_and(|(first, last)| letters(first, 4) && letters(last, 6))
}
