//! The suite of op graphs on the host, linked and by `dlopen`, against double precision; and the table in `docs/ops.md`.

use conformance::suite::{Answers, Linked, Loaded, Runtime, Support, chosen, compare, runtime, table};

#[test]
fn the_linked_host_meets_the_reference() {
    let host = Linked::start();
    let mut faults = Vec::new();
    for problem in chosen() {
        match (host.run(&problem), &problem.host) {
            (Ok(outputs), Support::Runs) => {
                let answers = Answers { host: Some(&outputs), emulator: None };
                faults.extend(compare(&problem, answers).err().map(|m| m.to_string()));
            }
            (Ok(_), other) => faults.push(format!("{}: runs, but the table says {other:?}", problem.title())),
            (Err(_), Support::Refuses(_)) => {}
            (Err(error), _) => faults.push(format!("{}: {}", problem.title(), runtime::words(&error))),
        }
    }
    assert!(faults.is_empty(), "{} problems:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn the_shared_library_equals_the_linked_host_bit_for_bit() {
    let (linked, loaded) = (Linked::start(), Loaded::start());
    for problem in chosen().iter().filter(|p| p.host == Support::Runs) {
        let runs = [&linked as &dyn Runtime, &loaded].map(|runtime| {
            runtime.run(problem).unwrap_or_else(|e| panic!("{}, {}: {e}", runtime.name(), problem.title()))
        });
        assert_eq!(runs[0], runs[1], "{}", problem.title());
    }
}

#[test]
fn docs_show_the_suite() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ops.md");
    let page = std::fs::read_to_string(&path).expect("`docs/ops.md` is there");
    let (head, _) = page.split_once("| op |").expect("`docs/ops.md` holds the table");
    let wanted = format!("{head}{}", table::render(&conformance::suite::all()));
    if std::env::var_os("CONFORMANCE_WRITE").is_some() {
        std::fs::write(&path, &wanted).expect("`docs/ops.md` is written");
    }
    let now = std::fs::read_to_string(&path).expect("`docs/ops.md` is there");
    let differs = now.lines().zip(wanted.lines()).find(|(a, b)| a != b);
    assert!(
        now == wanted,
        "`docs/ops.md` is stale at {differs:?}: CONFORMANCE_WRITE=1 cargo test --workspace --test tests ops::"
    );
}

#[test]
fn bad_op_configs_are_refused_by_name() {
    let host = conformance::backends::linked();
    let mut faults = Vec::new();
    for bad in conformance::suite::bad::all() {
        let what = format!("`{}`, {}", bad.op, bad.case);
        let Err(error) = bad.compose(&host) else {
            faults.push(format!("{what}: taken"));
            continue;
        };
        let words = runtime::words(&error);
        let wanted = format!("node `node` ({}), {}", bad.op, bad.says);
        if !words.ends_with(&wanted) {
            faults.push(format!("{what}\n  expected: {wanted}\n     found: {words}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
