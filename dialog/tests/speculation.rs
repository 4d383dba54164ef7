//! Kinds that draft: whatever the settings, the models, and what happens to the dialog between replies, a reply is that of
//! `basic`, and a sampled one has its distribution. A kind is a row of [`KINDS`].

use dialog::config::ContextSettings;
use dialog::kinds::{
    Basic, BranchMode, Branches, Eaglet, EagletSettings, EarlyStop, Lade, LadeSettings, Lookup, LookupSettings, Spd,
    Ssd, SsdSettings, UpdateMode,
};
use dialog::sampler::{Mt19937, SamplerRules};
use dialog::{Dialog, DialogKind, Reply, Sampler, SamplerCallback, SamplerSettings, SentenceCode};
use engine::TokenModel;
use genie_types::TokenId;
use proptest::prelude::*;

use crate::common::{context, ids, raw, tokenizer};
use crate::toy::{N_PREFIX, N_VOCAB, Toy, prefix_folder};

/// A kind with its settings drawn from three numbers and whether it drafts with every step, and whether it needs a second model.
struct Row {
    name: &'static str,
    make: fn([usize; 3], bool) -> Box<dyn DialogKind>,
    needs_second: bool,
    /// The second model takes hidden states of the first.
    from_features: bool,
    /// Rows of the cache that it takes for itself.
    n_reserved: usize,
    /// Its steps verify trees, whatever is drafted.
    wants_rows: bool,
    /// Sampled replies are those of `basic`, draw by draw.
    draws_as_basic: bool,
}

/// The kinds that must reply as `basic` does.
const KINDS: &[Row] = &[
    Row {
        name: "lookup",
        make: |[len, longest, shortest], _| {
            Box::new(Lookup::new(LookupSettings { shortest: shortest % 4, longest: longest % 6, draft_len: len }))
        },
        needs_second: false,
        from_features: false,
        n_reserved: 0,
        wants_rows: false,
        draws_as_basic: true,
    },
    Row {
        name: "spd",
        make: |[len, ..], always| Box::new(if always { Spd::new(len).always() } else { Spd::new(len) }),
        needs_second: true,
        from_features: false,
        n_reserved: 0,
        wants_rows: false,
        draws_as_basic: false,
    },
    Row {
        name: "lade",
        make: |[window, ngram, gcap], always| {
            let update_mode =
                [UpdateMode::AlwaysForwardOne, UpdateMode::ForwardLevel, UpdateMode::ForwardMaxHit][gcap % 3];
            let settings = LadeSettings { update_mode, window: 1 + window % 5, ngram: 2 + ngram % 3, gcap: gcap % 4 };
            Box::new(if always { Lade::new(settings).always() } else { Lade::new(settings) })
        },
        needs_second: false,
        from_features: false,
        n_reserved: 0,
        wants_rows: true,
        draws_as_basic: true,
    },
    Row {
        name: "ssd",
        make: |[counts, mode, _], always| {
            let counts: &[usize] = [&[1][..], &[3], &[2, 1], &[3, 2], &[1, 1, 1], &[2, 1, 1], &[1, 3]][counts % 7];
            let mode = if mode % 2 == 0 { BranchMode::AllExpand } else { BranchMode::Top1 };
            let kind = Ssd::new(SsdSettings {
                branches: Branches::new(counts.to_vec(), mode),
                n_forecast: 3,
                first_forecast: TokenId(N_VOCAB as u32),
                prefix: prefix_folder(),
                n_prefix: Some(N_PREFIX),
            });
            Box::new(if always { kind.unwrap().always() } else { kind.unwrap() })
        },
        needs_second: false,
        from_features: false,
        n_reserved: N_PREFIX,
        wants_rows: true,
        draws_as_basic: true,
    },
    Row {
        name: "eaglet",
        make: |[len, branches, rows], always| {
            let early_stop = (rows % 3 == 2).then_some(EarlyStop { entropy: 4.0, min_levels: rows % 2 });
            let (draft_len, n_branches) = (1 + len % 6, 1 + branches % 4);
            let kind = Eaglet::new(EagletSettings { draft_len, n_branches, max_rows: 1 + rows, early_stop }).unwrap();
            Box::new(if always { kind.always() } else { kind })
        },
        needs_second: true,
        from_features: true,
        n_reserved: 0,
        wants_rows: false,
        draws_as_basic: true,
    },
];

/// What happens in a dialog.
#[derive(Clone, Debug)]
enum Event {
    Ask(Vec<u32>, usize),
    Say(String, usize),
    BeginAndEnd(Vec<u32>, usize),
    RewindTo(usize, Vec<u32>),
    Reset,
}

fn event() -> impl Strategy<Value = Event> {
    let tokens = || prop::collection::vec(32_u32..128, 0..12);
    prop_oneof![
        4 => (tokens(), 0_usize..40).prop_map(|(t, n)| Event::Ask(t, n)),
        3 => ("[a-e ]{1,12}", 1_usize..40).prop_map(|(t, n)| Event::Say(t, n)),
        1 => (tokens(), 1_usize..20).prop_map(|(t, n)| Event::BeginAndEnd(t, n)),
        2 => (0_usize..40, tokens()).prop_map(|(n, t)| Event::RewindTo(n, t)),
        1 => Just(Event::Reset),
    ]
}

/// Everything that a caller sees of it.
fn live(mut dialog: Dialog, events: &[Event]) -> Vec<String> {
    let mut log = Vec::new();
    let shown = |reply: Result<Reply, dialog::DialogError>| match reply {
        Ok(reply) => format!("{:?} {:?} {} {:?}", raw(&reply.tokens), reply.text, reply.stop, raw(&reply.input)),
        Err(error) => error.to_string(),
    };
    for event in events {
        let control = dialog.control();
        match event {
            Event::Ask(tokens, n) => {
                control.set_max_num_tokens(Some(*n));
                log.push(shown(dialog.token_query(&ids(tokens.clone()), SentenceCode::Complete, |_| ())));
            }
            Event::Say(text, n) => {
                control.set_max_num_tokens(Some(*n));
                log.push(shown(dialog.query(text, SentenceCode::Complete, |_| ())));
            }
            Event::BeginAndEnd(tokens, n) => {
                control.set_max_num_tokens(Some(*n));
                log.push(shown(dialog.token_query(&ids(tokens.clone()), SentenceCode::Begin, |_| ())));
                log.push(shown(dialog.token_query(&ids([65]), SentenceCode::End, |_| ())));
            }
            Event::RewindTo(n, tokens) => {
                let mut whole = raw(&dialog.history());
                whole.truncate(*n);
                whole.extend(tokens);
                control.set_max_num_tokens(Some(9));
                log.push(shown(dialog.token_query(&ids(whole), SentenceCode::Rewind, |_| ())));
            }
            Event::Reset => dialog.reset().unwrap(),
        }
        log.push(format!("{:?} {}", raw(&dialog.history()), dialog.n_past()));
    }
    log
}

#[derive(Clone, Debug)]
struct Case {
    kind: usize,
    numbers: [usize; 3],
    always: bool,
    order: usize,
    noise: u64,
    draft_room: usize,
    context_size: usize,
    widest: usize,
    eos: u32,
    stop: Option<String>,
    sampled: bool,
    genie: bool,
    events: Vec<Event>,
}

fn case() -> impl Strategy<Value = Case> {
    let numbers = [1_usize..12, 0..12, 0..12];
    let edges = (24_usize..160, 8_usize..200, 2_usize..33);
    (
        0..KINDS.len(),
        numbers,
        (1_usize..3, 0_u64..101),
        edges,
        (90_u32..128, prop::option::of("[a-e]{1,2}")),
        any::<[bool; 3]>(),
        prop::collection::vec(event(), 1..5),
    )
        .prop_map(
            |(
                kind,
                numbers,
                (order, noise),
                (context_size, draft_room, widest),
                (eos, stop),
                [sampled, genie, always],
                events,
            )| {
                Case {
                    kind,
                    numbers,
                    always,
                    order,
                    noise,
                    draft_room,
                    context_size,
                    widest,
                    eos,
                    stop,
                    sampled,
                    genie,
                    events,
                }
            },
        )
}

fn dialog_of(case: &Case, row: Option<&Row>) -> Dialog {
    // What all tokens decide can only be drafted from hidden states.
    let order = if KINDS[case.kind].from_features { case.order - 1 } else { case.order };
    let widest = if KINDS[case.kind].wants_rows { 32 } else { case.widest };
    // What a kind takes for itself is added, so that both have the same room.
    let size = case.context_size + row.map_or(0, |row| row.n_reserved);
    let model = Toy::new(N_VOCAB, order, 0).with_limits(size, widest).forecasting(case.noise);
    let context = ContextSettings { bos: Some(TokenId(1)), eos: ids([case.eos]), size, ..context() };
    let sampled = case.sampled && row.is_none_or(|row| row.draws_as_basic) && KINDS[case.kind].draws_as_basic;
    let sampler = match sampled {
        true => SamplerSettings::default().with_seed(Some(7)).with_top_k(5).with_temp(2.0).unwrap(),
        false => SamplerSettings::argmax(),
    };
    // By libGenie's rules an `eaglet` dialog's turns begin otherwise, and an empty chunk counts.
    // A `lade` dialog draws its window's tokens too.
    let differs = KINDS[case.kind].from_features || (sampled && KINDS[case.kind].name == "lade");
    let rules = if case.genie && !differs { SamplerRules::Genie } else { SamplerRules::Documented };
    let mut dialog = Dialog::from_parts(context, sampler.with_rules(rules), tokenizer(), Box::new(model));
    dialog.set_stop_sequences(case.stop.iter().cloned().collect()).unwrap();
    let Some(row) = row else { return dialog };
    if row.needs_second {
        let second = Toy::new(N_VOCAB, order, case.noise).with_limits(case.draft_room, 32);
        let second = if row.from_features { second.drafting() } else { second };
        dialog = dialog.with_second(Box::new(second)).unwrap();
    }
    let [len, ..] = case.numbers;
    let [_, second, third] = case.numbers;
    dialog.with_kind((row.make)([len.min(case.widest - 1), second, third.min(case.widest - 1)], case.always))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_kind_replies_as_basic_does(case in case()) {
        let row = &KINDS[case.kind];
        let plain = live(dialog_of(&case, None), &case.events);
        prop_assert_eq!(live(dialog_of(&case, Some(row)), &case.events), plain, "{}", row.name);
    }
}

#[test]
fn a_thousand_tokens_are_those_of_basic_and_drafts_are_accepted() {
    for kind in KINDS {
        for (noise, always) in [(0, true), (30, true), (100, true), (0, false), (100, false)] {
            let reply = |row: Option<&Row>| {
                let case = Case {
                    kind: KINDS.iter().position(|other| other.name == kind.name).unwrap(),
                    numbers: [7, 4, 3],
                    always,
                    order: 2,
                    noise,
                    draft_room: 2_000,
                    context_size: 2_000,
                    widest: 8,
                    eos: 500,
                    stop: None,
                    sampled: false,
                    genie: false,
                    events: Vec::new(),
                };
                let mut dialog = dialog_of(&case, row);
                dialog.control().set_max_num_tokens(Some(1_000));
                dialog.token_query(&ids([65, 66, 67]), SentenceCode::Complete, |_| ()).unwrap()
            };
            let (plain, ours) = (reply(None), reply(Some(kind)));
            assert_eq!((plain.tokens.len(), &ours.tokens), (1_000, &plain.tokens), "{}, noise {noise}", kind.name);
            let counts = ours.kpis.speculation.unwrap();
            assert!(counts.n_accepted <= counts.n_drafted && counts.n_rounds > 0, "{}: {counts:?}", kind.name);
            let per_round = counts.n_accepted as f64 / counts.n_rounds as f64;
            match (kind.name, noise) {
                // How many rounds a measured kind makes is the machine's; unit tests of the budget have that.
                _ if !always => {}
                ("eaglet", 0) => assert!(per_round > 1.9, "one of its first two levels is right, {counts:?}"),
                ("spd", 0) => assert_eq!(counts.acceptance(), Some(1.0), "{counts:?}"),
                // One branch a level, and forecasts that are right.
                ("ssd", 0) => assert!(per_round > 0.99, "{counts:?}"),
                // The text repeats itself, which its own n-grams and the window's find out.
                ("lade", _) => assert!(counts.n_accepted > 300, "{counts:?}"),
                ("lookup", _) => assert!(counts.n_accepted > 0, "{counts:?}"),
                (_, 100) => assert!(per_round < 0.1, "{}: {counts:?}", kind.name),
                _ => assert!(counts.n_accepted > 0, "{}: {counts:?}", kind.name),
            }
        }
    }
}

#[test]
fn a_drawn_reply_backs_off_by_count_and_its_seed_gives_it_again() {
    let reply = |always: bool| {
        let model = || Toy::new(N_VOCAB, 2, 0).with_limits(2_000, 8);
        let settings = SamplerSettings::default().with_seed(Some(3)).with_temp(1.0).unwrap();
        let context = ContextSettings { bos: None, eos: Vec::new(), size: 2_000, ..context() };
        let dialog = Dialog::from_parts(context, settings, tokenizer(), Box::new(model()));
        let draft = Toy::new(N_VOCAB, 2, 100).with_limits(2_000, 8);
        let kind = if always { Spd::new(5).always() } else { Spd::new(5) };
        let mut dialog = dialog.with_second(Box::new(draft)).unwrap().with_kind(Box::new(kind));
        dialog.control().set_max_num_tokens(Some(1_000));
        dialog.token_query(&ids([65, 66, 67]), SentenceCode::Complete, |_| ()).unwrap()
    };
    let (first, again, always) = (reply(false), reply(false), reply(true));
    assert_eq!(first.tokens, again.tokens);
    let rounds = |reply: &Reply| reply.kpis.speculation.unwrap().n_rounds;
    assert!(rounds(&first) < 100 && rounds(&always) > 500, "{} and {}", rounds(&first), rounds(&always));
}

/// Transitions between the tokens of a small vocabulary, counted over many replies.
fn transitions(settings: &SamplerSettings, n: usize, n_vocab: usize, kind: &str) -> Vec<Vec<f64>> {
    let mut counts = vec![vec![0.0; n_vocab]; n_vocab];
    let mut left = n;
    for seed in 0.. {
        let model = Toy::new(n_vocab, 1, 0);
        let context = ContextSettings { bos: None, eos: Vec::new(), size: 4_096, n_vocab, ..context() };
        let settings = settings.clone().with_seed(Some(seed));
        let mut dialog = Dialog::from_parts(context, settings, tokenizer(), Box::new(model));
        let draft = || Box::new(Toy::new(n_vocab, 1, 100));
        dialog = match kind {
            "spd" => dialog.with_second(draft()).unwrap().with_kind(Box::new(Spd::new(3))),
            "eaglet" => {
                let settings = EagletSettings { draft_len: 3, n_branches: 2, max_rows: 6, early_stop: None };
                let kind = Box::new(Eaglet::new(settings).unwrap().always());
                dialog.with_second(Box::new(draft().drafting())).unwrap().with_kind(kind)
            }
            "lade" => {
                let settings = LadeSettings { window: 4, ngram: 3, gcap: 4, ..LadeSettings::default() };
                dialog.with_kind(Box::new(Lade::new(settings).always()))
            }
            _ => dialog.with_kind(Box::new(Basic)),
        };
        dialog.control().set_max_num_tokens(Some(1_000));
        let reply = dialog.token_query(&ids([seed % n_vocab as u32]), SentenceCode::Complete, |_| ()).unwrap();
        for pair in raw(&reply.tokens).windows(2) {
            counts[pair[0] as usize][pair[1] as usize] += 1.0;
            left = left.saturating_sub(1);
        }
        if left == 0 {
            return counts;
        }
    }
    unreachable!("it counts until enough")
}

/// Chi-square of counted transitions against those that a model's rows ask for, with its degrees of freedom.
fn chi_square(counts: &[Vec<f64>], settings: &SamplerSettings, noise: u64) -> (f64, f64) {
    let n_vocab = counts.len();
    let (mut sum, mut freedom) = (0.0, 0.0);
    for (from, row) in counts.iter().enumerate() {
        let mut toy = Toy::new(n_vocab, 1, noise);
        let logits = toy.process(&ids([from as u32])).unwrap().to_vec();
        let mut chances = dialog::sampler::Chances::default();
        Sampler::new(settings.clone()).chances(&logits, &mut chances).unwrap();
        let total: f64 = row.iter().sum();
        for (to, n) in row.iter().enumerate() {
            let expected = total * chances.of(TokenId(to as u32));
            if expected == 0.0 {
                sum += if *n > 0.0 { 1e9 } else { 0.0 };
            } else {
                sum += (n - expected).powi(2) / expected;
                freedom += 1.0;
            }
        }
        freedom -= 1.0;
    }
    (sum, freedom)
}

#[test]
fn sampled_replies_have_the_distribution_of_the_target() {
    let base = || SamplerSettings::default().with_temp(1.0).unwrap().with_top_p(1.0).unwrap();
    for (name, settings) in [
        ("all tokens", base()),
        ("hot, 5 of 8", base().with_top_k(5).with_temp(1.5).unwrap()),
        ("0.8 of the mass", base().with_top_k(8).with_top_p(0.8).unwrap()),
        ("libGenie's draws", base().with_top_k(6).with_rules(SamplerRules::Genie)),
    ] {
        let limit = |freedom: f64| freedom + 5.0 * (2.0 * freedom).sqrt();
        for kind in ["spd", "lade", "eaglet"] {
            // By libGenie's rules an `eaglet` dialog takes no tokens.
            if kind == "eaglet" && settings.rules() == SamplerRules::Genie {
                continue;
            }
            let counts = transitions(&settings, 100_000, 8, kind);
            let (sum, freedom) = chi_square(&counts, &settings, 0);
            assert!(sum < limit(freedom), "{kind}, {name}: chi-square {sum:.1} over {freedom} degrees of freedom");
            // The test can tell: the draft's own distribution is another one.
            let (of_draft, _) = chi_square(&counts, &settings, 100);
            assert!(of_draft > 100.0 * limit(freedom), "{kind}, {name}: {of_draft:.1}");
        }
        // And the measure is fair to `basic`.
        let (plain, freedom) = chi_square(&transitions(&settings, 100_000, 8, "basic"), &settings, 0);
        assert!(plain < limit(freedom), "{name}: basic has {plain:.1}");
    }
}

#[test]
fn a_drafted_token_is_tested_with_the_first_word_of_two() {
    let settings = SamplerSettings::default().with_seed(Some(11)).with_temp(1.0).unwrap().with_top_p(1.0).unwrap();
    // Of two tokens; the draft is sure of token 0, the model gives it 1/4.
    let row = [0.0, 3.0_f32.ln()];
    let mut draft = dialog::sampler::Chances::default();
    let sure = [0.0, f32::NEG_INFINITY];
    Sampler::new(settings.clone()).chances(&sure, &mut draft).unwrap();
    let (mut sampler, mut words) = (Sampler::new(settings), Mt19937::new(11));
    let mut n_accepted = 0;
    for _ in 0..1_000 {
        let token = sampler.accept_or_replace(&row, TokenId(0), &draft).unwrap();
        let u = f64::from(words.next_u32()) / 4_294_967_296.0;
        words.next_u32();
        let accepted = u < 0.25;
        if !accepted {
            words.next_unit();
        }
        assert_eq!(token, TokenId(u32::from(!accepted)));
        n_accepted += usize::from(accepted);
    }
    assert!((200..300).contains(&n_accepted), "{n_accepted} of 1,000");
    assert_eq!(sampler.save_rng(), words.to_text(), "nothing else was drawn");
}

#[test]
fn models_that_do_not_go_together_are_refused() {
    let with = |target: Toy, draft: Toy, len: usize| {
        let dialog = Dialog::from_parts(context(), SamplerSettings::argmax(), tokenizer(), Box::new(target));
        let mut dialog = dialog.with_second(Box::new(draft)).unwrap();
        dialog.set_kind(Box::new(Spd::new(len))).map_err(|error| error.to_string())
    };
    let toy = |n_vocab| Toy::new(n_vocab, 1, 0);
    assert_eq!(with(toy(64), toy(64), 31), Ok(()));
    assert_eq!(with(toy(64), toy(80), 4), Ok(()), "ids that the target lacks are never drafted");
    assert_eq!(
        with(toy(64), toy(63), 4).unwrap_err(),
        "a dialog of kind `spd` needs a draft model that knows all 64 tokens of the target, found one with a vocabulary of 63"
    );
    assert_eq!(
        with(toy(64), toy(64), 32).unwrap_err(),
        "a dialog of kind `spd` needs graphs that give logits for 33 tokens at once, found at most 32: a `draft-len` of up \
         to 31 fits"
    );
    // A dialog that never gets its second model says so.
    let alone = Dialog::from_parts(context(), SamplerSettings::argmax(), tokenizer(), Box::new(toy(300)));
    let mut alone = alone.with_kind(Box::new(Spd::new(3)));
    let error = alone.token_query(&ids([65]), SentenceCode::Complete, |_| ()).unwrap_err().to_string();
    assert!(error.contains("needs a second model"), "{error}");
}

#[test]
fn a_function_of_the_program_chooses_every_token_of_a_drafted_reply() {
    // The least likely token: no distribution of the sampler would give it.
    let least =
        |logits: &[f32]| TokenId((0..logits.len()).min_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap() as u32);
    let reply = |drafted: bool| {
        let settings = SamplerSettings::default().with_seed(Some(3));
        let mut dialog = Dialog::from_parts(context(), settings, tokenizer(), Box::new(Toy::new(N_VOCAB, 1, 0)));
        if drafted {
            dialog = dialog.with_second(Box::new(Toy::new(N_VOCAB, 1, 100))).unwrap().with_kind(Box::new(Spd::new(3)));
        }
        dialog.set_sampler_callback(Some(SamplerCallback::new(least)));
        dialog.control().set_max_num_tokens(Some(60));
        dialog.token_query(&ids([65, 66]), SentenceCode::Complete, |_| ()).unwrap().tokens
    };
    assert_eq!(reply(true), reply(false));
}
