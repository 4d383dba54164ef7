//! The host library under the HTP's file name: it answers as an HTP backend, and takes what clients of one send.
//!
//! In a test program of its own, since a loader does not load a file twice under two names.

use compiler::Family;
use compiler::testmodel::TestModel;
use conformance::backends;
use conformance::bundles::Bundle;
use engine::TokenModel;
use genie_types::TokenId;
use qnn_api::library::{BACKEND_ID_HTP, runtime};
use qnn_api::{Backend, BackendOptions, Library, PerfPolicy, PowerVote};

#[test]
fn under_the_htps_name_it_is_an_htp() {
    let folder = tempfile::tempdir().unwrap();
    let posing = folder.path().join(runtime::HTP);
    std::fs::copy(backends::host_library(), &posing).unwrap();
    let library = Library::open(&posing).unwrap();
    assert_eq!((library.provider(), library.backend_id()), ("HTP_OPEN_GENIE_HOST", BACKEND_ID_HTP));
    assert_eq!(library.backend_version().major, 5, "the HTP's additions, as the header sets count them");

    let options = BackendOptions { soc: Some(57), ..Default::default() };
    let backend = Backend::new(&library, &options).unwrap();
    assert_eq!(backend.device().unwrap().soc(), Some(57));
    let mut vote = PowerVote::cast(&backend, PerfPolicy::Burst).unwrap();
    for policy in PerfPolicy::ALL {
        vote.change(policy).unwrap();
    }
    drop(vote);

    let options = |o: &mut compiler::CompileOptions| (o.ars, o.cls) = (vec![1, 32], vec![64]);
    let bundle = Bundle::make(&TestModel::tiny(Family::Llama), &backend, options);
    let prompt: Vec<TokenId> = (0..20).map(TokenId).collect();
    let logits = |backend| bundle.engine(backend).process(&prompt).unwrap().to_vec();
    assert_eq!(logits(&backend), logits(&backends::linked()), "the same library by another name");
}

#[test]
fn under_its_own_name_it_is_none() {
    let library = Library::open(backends::host_library()).unwrap();
    assert_eq!(library.provider(), "HOST_OPEN_GENIE");
    assert_ne!(library.backend_id(), BACKEND_ID_HTP);
    let backend = Backend::new(&library, &BackendOptions::default()).unwrap();
    let refused = PowerVote::cast(&backend, PerfPolicy::Burst).unwrap_err();
    assert!(refused.is_unsupported(), "{refused}");
}
