//! Trees of drafts as rows of shared steps on Qualcomm's library: greedy replies are those without drafts. Graphs of other widths
//! round float16 otherwise there, so that a sampled reply may draw another token.

use compiler::HtpOptions;
use open_genie::Options;

use crate::ticks::tokens;
use crate::tree_bundles::{Bundles, TARGET, open, serve_n};

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn replies_of_trees_are_those_of_basic() {
    let bundles = Bundles::new(Some(HtpOptions::for_target(TARGET).unwrap()));
    let run = |config: &std::path::Path| {
        let mut serving = open(config, &Options::new());
        assert_eq!(serving.note(), None);
        serve_n(&mut serving, 3, 24, false)
    };
    let (plain, n_plain) = run(&bundles.basic());
    for config in [bundles.lade(), bundles.ssd(), bundles.eaglet()] {
        let (found, n) = run(&config);
        let counts = found.iter().map(|done| done.reply.kpis.speculation.unwrap());
        let (drafted, accepted) = counts.fold((0, 0), |(d, a), of| (d + of.n_drafted, a + of.n_accepted));
        println!("{}: {accepted} of {drafted} drafted tokens held, {n} steps, {n_plain} without", config.display());
        assert!(drafted > 0, "{config:?}");
        assert_eq!(tokens(&found), tokens(&plain), "{config:?}");
    }
}
