//! Sessions on the demo model: iterator and callback agree, errors leave a session that can go on, hints are typed.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::OnceLock;

use dialog::sampler::TokenPenalty;
use open_genie::{
    BackendChoice, Bundle, Error, Hint, Model, Options, Pin, PolicyChoice, Prompt, SentenceCode, Session, StopReason,
    TokenId, demo,
};

/// The demo's bundle, compiled once for this program.
fn bundle() -> PathBuf {
    static CACHE: OnceLock<tempfile::TempDir> = OnceLock::new();
    let cache = CACHE.get_or_init(|| {
        let cache = tempfile::tempdir().unwrap();
        demo::compile(&cache.path().join("demo"), &Options::new(), &mut compiler::Silent).unwrap();
        cache
    });
    cache.path().join("demo")
}

fn session() -> Session {
    let mut session = Session::open(bundle(), &Options::new().threads(1)).unwrap();
    session.set_sampler(session.sampler().clone().with_greedy(true));
    session.set_max_tokens(Some(12));
    session
}

#[test]
fn iterator_callback_and_whole_reply_agree() {
    let mut session = session();
    let tokens: Vec<_> = session.generate("ROMEO:").collect::<Result<_, _>>().unwrap();
    let (last, pieces) = tokens.split_last().unwrap();
    assert_eq!((last.stop.clone(), last.id, last.text.as_str()), (Some(StopReason::MaxTokens), None, ""));
    assert!(pieces.iter().all(|piece| piece.stop.is_none()));
    let text: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
    let ids: Vec<TokenId> = pieces.iter().filter_map(|piece| piece.id).collect();

    session.reset().unwrap();
    let mut seen = Vec::new();
    let reply = session.generate_with("ROMEO:", |token| {
        seen.extend(token.id);
        ControlFlow::Continue(())
    });
    let reply = reply.unwrap();
    assert_eq!((&reply.text, &reply.tokens, seen), (&text, &ids, ids.clone()));
    assert_eq!((reply.kpis.n_generated, reply.stop), (12, StopReason::MaxTokens));

    // The whole conversation as prompt: the reply is known.
    let prompt: Vec<TokenId> = session.history()[..reply.input.len()].to_vec();
    let again = session.regenerate(prompt.as_slice()).into_reply().unwrap();
    assert_eq!((again.tokens, again.input.len()), (ids, 0));
}

#[test]
fn replies_end_where_they_are_dropped_or_broken_off() {
    let mut session = session();
    let first = session.generate("ROMEO:").next().unwrap().unwrap();
    assert_eq!(session.history().last().copied(), first.id);
    let reply = session.generate_with("x", |_| ControlFlow::Break(())).unwrap();
    assert_eq!((reply.tokens.len(), reply.stop), (1, StopReason::Aborted));
    assert_eq!(session.generate("y").into_reply().unwrap().tokens.len(), 12, "it goes on");
}

#[test]
fn a_prompt_that_does_not_fit_is_one_error_with_what_fits() {
    let mut session = session();
    let long = vec![TokenId(1); 600];
    let mut generation = session.generate(Prompt::Tokens(&long));
    let error = generation.next().unwrap().unwrap_err();
    assert!(generation.next().is_none());
    drop(generation);
    assert!(matches!(error.hint(), Some(Hint::Fits(fits)) if fits.n_fit == 512), "{:?}", error.hint());
    assert!(session.history().is_empty());
}

#[test]
fn mistakes_in_options_have_typed_hints() {
    let hint = |options: Options| Model::open(bundle(), &options).unwrap_err().hint();
    assert!(matches!("gpu".parse::<BackendChoice>(), Err(Error::UnknownBackend { .. })));
    assert_eq!(hint(Options::new().soc("sm9999")), Some(Hint::GiveSoc));
    assert!(matches!(hint(Options::new().pin(Pin::Cores(vec![1023]))), Some(Hint::CoresToPin(_) | Hint::DoNotPin)));
    let perf = open_genie::Perf::Policy(Default::default());
    assert_eq!(hint(Options::new().perf(perf)), Some(Hint::CastNoVote));
    assert_eq!(Bundle::read("/no/such/bundle").unwrap_err().hint(), Some(Hint::GiveBundle));
}

#[test]
fn a_model_verifies_and_measures_itself() {
    let mut model = Model::open(bundle(), &Options::new().policy(PolicyChoice::Cost)).unwrap();
    assert!(model.calibration_mismatch().is_some(), "it was never measured here");
    let tolerance = model.default_tolerance();
    let verified = model.verify(33, 4, tolerance, &mut || ()).unwrap();
    assert!(verified.ok && verified.generated == 4, "{verified:?}");
    assert!(matches!(model.verify(0, 4, tolerance, &mut || ()), Err(Error::PromptLength { .. })));

    let tokens =
        model.tokenizer().unwrap().encode("ROMEO:\nBut soft, what light through yonder window breaks?").unwrap();
    let mut windows = 0;
    let found = model.perplexity(&tokens, Some(16), usize::MAX, &mut || windows += 1).unwrap();
    assert_eq!((found.windows, windows), (windows, tokens.len().div_ceil(16)));
    let guessing = model.engine().layout().vocab_size as f64;
    assert!(found.perplexity > 1.0 && found.perplexity < guessing, "{found:?}");
    let nothing = model.perplexity(&[], None, usize::MAX, &mut || ());
    assert_eq!(nothing.unwrap_err().hint(), Some(Hint::LongerText));
}

#[test]
fn penalties_look_at_the_history_that_is_left() {
    let penalty = TokenPenalty { last_n: 64, repetition: 1.3, presence: 0.5, ..TokenPenalty::default() };
    let open = || {
        let mut session = session();
        session.set_sampler(session.sampler().clone().with_penalty(penalty.clone()).unwrap());
        session
    };
    let mut session_of_two = open();
    session_of_two.generate("ROMEO:").into_reply().unwrap();
    // Another reply to the same prompt is what it is without the reply that was there: by the whole prompt, and by another one.
    for text in ["ROMEO:", "JULIET:"] {
        let whole = open().generate(text).into_reply().unwrap().input;
        let fresh = open().regenerate(&whole[..]).into_reply().unwrap().tokens;
        session_of_two.generate("and then").into_reply().unwrap();
        assert_eq!(session_of_two.regenerate(&whole[..]).into_reply().unwrap().tokens, fresh, "{text}");
    }
    // What a stop sequence forgets is no longer looked at.
    let (mut cut, mut uncut) = (open(), open());
    let whole = uncut.generate("ROMEO:").into_reply().unwrap().text;
    let stop: String = whole.chars().skip(4).take(3).collect();
    cut.set_stop_sequences(vec![stop.clone()]).unwrap();
    let reply = cut.generate("ROMEO:").into_reply().unwrap();
    assert_eq!(reply.stop, StopReason::StopSequence(stop));
    cut.set_stop_sequences(Vec::new()).unwrap();
    let mut again = open();
    let mut prompt = cut.history();
    prompt.extend(&open().generate("NURSE:").into_reply().unwrap().input[1..]);
    let fresh = again.regenerate(&prompt[..]).into_reply().unwrap().tokens;
    assert_eq!(cut.regenerate(&prompt[..]).into_reply().unwrap().tokens, fresh);
}

/// As in a dialog of one, also where there are several replies: what a stop sequence forgets is no longer looked at.
#[test]
fn penalties_of_several_replies_look_at_what_is_left() {
    let penalty = TokenPenalty { last_n: 64, repetition: 1.3, presence: 2.0, ..TokenPenalty::default() };
    let open = |stop: &[String]| {
        let mut session = session();
        session.set_sampler(session.sampler().clone().with_penalty(penalty.clone()).unwrap());
        session.set_stop_sequences(stop.to_vec()).unwrap();
        session
    };
    let stop_in = |text: &str| vec![text.chars().skip(4).take(3).collect::<String>()];

    // A batch: each conversation is what it is alone.
    let turns = [["ROMEO:", "JULIET:"], ["and then", "but now"]].map(|turn| turn.map(str::to_owned));
    let stop = stop_in(&open(&[]).generate(&turns[0][0]).into_reply().unwrap().text);
    let mut batch = open(&stop);
    let ask = |batch: &mut Session, turn: &[String]| {
        batch.query(Prompt::Batch(turn), SentenceCode::Complete).into_reply().unwrap().streams
    };
    assert_eq!(ask(&mut batch, &turns[0])[0].stop, StopReason::StopSequence(stop[0].clone()));
    batch.set_stop_sequences(Vec::new()).unwrap();
    for (number, found) in ask(&mut batch, &turns[1]).into_iter().enumerate() {
        let mut alone = open(&stop);
        alone.generate(&turns[0][number]).into_reply().unwrap();
        alone.set_stop_sequences(Vec::new()).unwrap();
        let expected = alone.generate(&turns[1][number]).into_reply().unwrap();
        assert_eq!(found.tokens, expected.tokens, "conversation {number}");
    }

    // Streams: the conversation goes on with the first, as one that begins with its tokens does.
    let streams = |stop: &[String]| {
        let mut session = open(stop);
        session.set_streams(2, 0.0).unwrap();
        session
    };
    let stop = stop_in(&streams(&[]).generate("ROMEO:").into_reply().unwrap().streams[0].text);
    let mut cut = streams(&stop);
    let first = cut.generate("ROMEO:").into_reply().unwrap().streams.remove(0);
    assert_eq!(first.stop, StopReason::StopSequence(stop[0].clone()));
    cut.set_stop_sequences(Vec::new()).unwrap();
    let mut prompt = cut.history();
    prompt.extend(&open(&[]).generate("NURSE:").into_reply().unwrap().input[1..]);
    let expected = streams(&[]).regenerate(&prompt[..]).into_reply().unwrap().streams;
    assert_eq!(cut.regenerate(&prompt[..]).into_reply().unwrap().streams, expected);
}
