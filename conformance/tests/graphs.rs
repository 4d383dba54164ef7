//! One-op graphs against double precision, on the linked host and on the shared library; both must answer alike.

use conformance::{backends, problems};

#[test]
fn the_linked_host_meets_the_reference() {
    let backend = backends::linked();
    for problem in problems::all() {
        problem.check(&problem.run(&backend)).unwrap();
    }
}

#[test]
fn the_shared_library_answers_bit_for_bit_like_the_linked_host() {
    let (linked, loaded) = (backends::linked(), backends::loaded());
    assert!(loaded.library().path().is_some() && linked.library().path().is_none());
    assert_eq!(loaded.library().core_version(), linked.library().core_version());
    for problem in problems::all() {
        assert_eq!(problem.run(&loaded), problem.run(&linked), "{}", problem.name);
    }
}
