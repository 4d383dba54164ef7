//! libGenie runs a bundle with LoRA adapters that we compiled: it says what our engine says on the same library, without the adapter
//! and with it. libGenie has one input for the strengths of all adapters, so a bundle for it has one adapter (docs/lora.md).

use compiler::testmodel::{TestAdapter, TestModel};
use compiler::{AdapterSource, CONFIG_FILE, CompileOptions, Family, HtpOptions, Silent, compile};
use conformance::backends;
use conformance::compiled::TARGET;
use conformance::genie::{self, Act, Player, Sentence, Session};
use qnn_api::library::runtime;

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn libgenie_applies_the_adapter_of_our_bundles() {
    let folder = tempfile::tempdir().unwrap();
    let at = |part: &str| folder.path().join(part);
    let model = TestModel { seed: 11, ..TestModel::tiny(Family::Llama) };
    model.write(&at("model")).unwrap();
    let poet = TestAdapter::tiny(&model);
    let lawyer = TestAdapter { rank: 6, targets: vec!["q_proj", "v_proj"], seed: 5, ..poet.clone() };
    let htp = HtpOptions::for_target(TARGET).unwrap();
    let prompt: Vec<u32> = (0..11).map(|i| (i * 37 + 11) % 250).collect();
    for (name, adapter, strength) in [("poet", poet, 1.0), ("lawyer", lawyer, 0.5)] {
        adapter.write(&model, &at(name)).unwrap();
        let bundle = at(&format!("bundle_{name}"));
        let options = CompileOptions {
            ars: vec![1, 16],
            cls: vec![64],
            htp: Some(htp),
            lora: vec![AdapterSource::new(at(name))],
            ..CompileOptions::new(at("model"), &bundle)
        };
        compile(&options, &backends::htp(&htp.backend_options()), &mut Silent).unwrap();
        let ask = || Act::Tokens(prompt.clone(), Sentence::Complete);
        let (lora, to) = (Act::Lora(name.into()), Act::LoraStrength(format!("lora_alpha_{name}"), strength));
        let acts = vec![Act::MaxTokens(16), ask(), Act::Reset, lora, to, ask()];
        let real = Session::greedy(genie::library(), bundle.join(CONFIG_FILE), acts).endless();
        let backend = runtime::find(runtime::HTP).expect("the emulator lies beside libGenie.so");
        let ours = Session { player: Player::Ours { backend }, ..real.clone() };
        let play = |session: &Session| session.run().unwrap_or_else(|e| panic!("{name}, {:?}: {e}", session.player));
        let (real, ours) = (play(&real), play(&ours));
        assert!(real.codes().iter().all(|code| *code == 0), "{name}: {:?}", real.codes());
        assert_eq!(real.tokens(), ours.tokens(), "{name}: libGenie and ours");
        let said = real.tokens();
        assert!(said.len() == 2 && said[0] != said[1], "{name}: the adapter says something else: {said:?}");
    }
}
