//! The sampler beside the real `libGenie.so` on our own backend: the same bundle, settings and seeds, with a vocabulary that is no power
//! of two, so that the halves of libGenie's search are uneven.

use compiler::testmodel::TestModel;
use compiler::{CONFIG_FILE, Family};
use conformance::backends;
use conformance::bundles::Bundle;
use conformance::genie::{self, Act, LogLevel, Player, Sentence, Session, Stage};
use dialog::sampler::SamplerRules;
use dialog::{Sampler, SamplerSettings};
use engine::TokenModel as _;
use genie_types::TokenId;
use serde_json::json;

const SEEDS: u32 = 8;

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn each_draw_is_libgenies_for_another_vocabulary() {
    let backend = backends::loaded();
    let model = TestModel { vocab: 323, ..TestModel::tiny(Family::Llama) };
    let bundle = Bundle::make(&model, &backend, |options| (options.ars, options.cls) = (vec![1, 8], vec![64]));
    let stage = Stage::new(&genie::library(), &backends::host_library()).expect("a folder for the libraries");
    let prompt = [11, 48, 85, 122, 159];
    let config = bundle.config();
    let mut input: Vec<TokenId> = config.context().bos.into_iter().collect();
    input.extend(prompt.map(TokenId));
    let row = bundle.engine(&backend).process(&input).unwrap().to_vec();
    assert_eq!(row.len(), 323);
    for (top_k, top_p) in [(0, 0.5), (0, 0.9), (0, 0.99), (60, 1.0), (100, 0.8)] {
        for seed in 1..=SEEDS {
            let sampler = json!({"seed": seed, "temp": 1.0, "top-k": top_k, "top-p": top_p, "greedy": false});
            let session = Session {
                library: stage.library(),
                config: bundle.dir().join(CONFIG_FILE),
                changes: json!({"dialog": {"sampler": sampler}}),
                log: LogLevel::Off,
                acts: vec![Act::MaxTokens(1), Act::Tokens(prompt.to_vec(), Sentence::Complete)],
                player: Player::Real,
            };
            let real = session.run().expect("libGenie answers");
            let settings =
                SamplerSettings::default().with_seed(Some(seed)).with_top_k(top_k).with_rules(SamplerRules::Genie);
            let settings = settings.with_temp(1.0).unwrap().with_top_p(top_p).unwrap();
            let ours = Sampler::new(settings).sample(&row).unwrap();
            // An EOS token is drawn and not delivered.
            let delivered = if config.context().eos.contains(&ours) { vec![] } else { vec![vec![ours.0]] };
            assert_eq!(real.tokens(), delivered, "top-k {top_k}, top-p {top_p}, seed {seed}");
        }
    }
}
