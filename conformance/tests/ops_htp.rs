//! The suite of op graphs on the emulator, against double precision and against the host.

use conformance::suite::{Answers, Emulator, Linked, Runtime, Support, chosen, compare, runtime};

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_emulator_meets_the_reference_and_the_host() {
    let (host, emulator) = (Linked::start(), Emulator::start());
    let mut faults = Vec::new();
    let problems = chosen();
    for problem in &problems {
        if let Support::Unsteady(_) = problem.htp {
            emulator.run(problem).expect("it runs, whatever it answers");
            continue;
        }
        // Shown if the library takes the process with it.
        eprintln!("{}", problem.title());
        let by_host = match problem.host {
            Support::Runs => host.run(problem).ok(),
            _ => None,
        };
        let verdict = match (emulator.run(problem), &problem.htp) {
            (Ok(outputs), support) => {
                let answers = Answers { host: by_host.as_deref(), emulator: Some(&outputs) };
                match (compare(problem, answers), support) {
                    (Ok(used), Support::Runs) => {
                        eprintln!("    used of the tolerance: host {:.2}, emulator {:.2}", used.host, used.htp);
                        Ok(())
                    }
                    (Err(mismatch), Support::Runs) => Err(mismatch.to_string()),
                    (Ok(_), other) => Err(format!("{}: is right, but the table says {other:?}", problem.title())),
                    (Err(_), Support::Deviates(_)) => Ok(()),
                    (Err(_), other) => Err(format!("{}: runs, but the table says {other:?}", problem.title())),
                }
            }
            (Err(_), Support::Refuses(_)) => Ok(()),
            (Err(error), _) => Err(format!("{}: {}", problem.title(), runtime::words(&error))),
        };
        if let Err(fault) = verdict {
            eprintln!("    FAULT {fault}");
            faults.push(fault);
        }
    }
    assert!(faults.is_empty(), "{} of {} problems:\n{}", faults.len(), problems.len(), faults.join("\n"));
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_emulator_refuses_bad_op_configs_as_the_table_lists() {
    let emulator = Emulator::start();
    let mut faults = Vec::new();
    for bad in conformance::suite::bad::all() {
        eprintln!("`{}`, {}", bad.op, bad.case);
        let composed = bad.compose(emulator.backend());
        if composed.is_ok() != bad.htp_takes {
            let found = composed.map_or_else(|e| format!("refused: {}", runtime::words(&e)), |()| "taken".to_owned());
            faults.push(format!("`{}`, {}: {found}", bad.op, bad.case));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
