//! Plays one session of Qualcomm's `libGenie.so`: JSON in on standard input, JSON out on standard output.
//!
//! Started by `conformance::genie::Session::run`; the libraries' own talk goes to standard error.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::process::ExitCode;

use conformance::genie::Session;

fn main() -> ExitCode {
    match play() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut why: Option<&dyn std::error::Error> = Some(&*error);
            while let Some(error) = why {
                eprintln!("libgenie: {error}");
                why = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn play() -> Result<(), Box<dyn std::error::Error>> {
    let mut request = String::new();
    std::io::stdin().read_to_string(&mut request)?;
    let session: Session = serde_json::from_str(&request)?;
    let outcome = session.play()?;
    std::io::stdout().write_all(&serde_json::to_vec(&outcome)?)?;
    Ok(())
}
