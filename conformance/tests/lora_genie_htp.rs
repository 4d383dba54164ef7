//! libGenie runs a bundle with LoRA adapters that we compiled: it says what our engine says on the same library, adapter after adapter.

use compiler::testmodel::{TestAdapter, TestModel};
use compiler::{AdapterSource, CONFIG_FILE, CompileOptions, Family, HtpOptions, Silent, compile};
use conformance::backends;
use conformance::compiled::TARGET;
use conformance::genie::{self, Act, Player, Sentence, Session};
use qnn_api::library::runtime;

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn libgenie_switches_the_adapters_of_our_bundles() {
    let folder = tempfile::tempdir().unwrap();
    let at = |part: &str| folder.path().join(part);
    let model = TestModel { seed: 11, ..TestModel::tiny(Family::Llama) };
    model.write(&at("model")).unwrap();
    let first = TestAdapter::tiny(&model);
    let second = TestAdapter { rank: 6, targets: vec!["q_proj", "v_proj"], seed: 5, ..first.clone() };
    first.write(&model, &at("poet")).unwrap();
    second.write(&model, &at("lawyer")).unwrap();
    let htp = HtpOptions::for_target(TARGET).unwrap();
    let options = CompileOptions {
        ars: vec![1, 16],
        cls: vec![64],
        htp: Some(htp),
        lora: vec![AdapterSource::new(at("poet")), AdapterSource::new(at("lawyer"))],
        ..CompileOptions::new(at("model"), at("bundle"))
    };
    compile(&options, &backends::htp(&htp.backend_options()), &mut Silent).unwrap();

    let prompt: Vec<u32> = (0..11).map(|i| (i * 37 + 11) % 250).collect();
    let ask = || Act::Tokens(prompt.clone(), Sentence::Complete);
    let strength = |adapter: &str, to| Act::LoraStrength(format!("lora_alpha_{adapter}"), to);
    let lora = |adapter: &str| Act::Lora(adapter.into());
    let acts = vec![
        Act::MaxTokens(16),
        ask(),
        Act::Reset,
        lora("poet"),
        strength("poet", 1.0),
        ask(),
        Act::Reset,
        // In libGenie the strength of another adapter stays.
        strength("poet", 0.0),
        lora("lawyer"),
        strength("lawyer", 0.5),
        ask(),
    ];
    let real = Session::greedy(genie::library(), at("bundle").join(CONFIG_FILE), acts).endless();
    let backend = runtime::find(runtime::HTP).expect("the emulator lies beside libGenie.so");
    let ours = Session { player: Player::Ours { backend }, ..real.clone() };
    let [real, ours] =
        [real, ours].map(|session| session.run().unwrap_or_else(|e| panic!("{:?}: {e}", session.player)));
    assert!(real.codes().iter().all(|code| *code == 0), "{:?}", real.codes());
    let (said, own) = (real.tokens(), ours.tokens());
    assert_eq!(said.len(), 3, "{:?}", real.outcome);
    assert_eq!(said, own, "libGenie and ours");
    assert!(
        said[0] != said[1] && said[1] != said[2] && said[0] != said[2],
        "each adapter says something else: {said:?}"
    );
}
