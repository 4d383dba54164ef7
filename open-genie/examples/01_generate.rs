//! Generates text from a prompt, token by token: `cargo run --example 01_generate -- BUNDLE PROMPT`; without a bundle, the demo.

use std::io::Write;

use open_genie::{Error, Options, Session};

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let bundle = args.next().map_or_else(open_genie::demo::bundle, |path| Ok(path.into()))?;
    let prompt = args.next().unwrap_or_else(|| "ROMEO:".into());

    let mut session = Session::open(bundle, &Options::new())?;
    session.set_max_tokens(Some(40));
    let mut reply = session.generate(&prompt);
    for token in &mut reply {
        let token = token?;
        print!("{}", token.text);
        let _ = std::io::stdout().flush(); // shown at once
    }
    let reply = reply.stop_here();
    println!("\n{} tokens, stopped by {}", reply.tokens.len(), reply.stop);
    Ok(())
}
