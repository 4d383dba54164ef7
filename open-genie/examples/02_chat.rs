//! A conversation of two turns: the second goes on where the first ended.

use std::ops::ControlFlow;

use open_genie::{Error, Options, Session, Template};

fn main() -> Result<(), Error> {
    let bundle = std::env::args().nth(1).map_or_else(open_genie::demo::bundle, |path| Ok(path.into()))?;
    let mut session = Session::open(bundle, &Options::new())?;
    session.set_max_tokens(Some(20));

    // The demo model writes plays: a message is a line of ROMEO's, and JULIET answers.
    session.set_template(Template::Function(|message, _first| format!("ROMEO:\n{message}\n\nJULIET:\n")));
    for message in ["But soft, what light?", "It is the east."] {
        let reply = session.chat(message).into_reply()?;
        println!("> {message}\n{}\n[{} tokens so far]", reply.text, session.history().len());
    }

    // The same with a callback, which may break the reply off: here at the end of a line.
    let reply = session.generate_with("MERCUTIO:\nHear ", |token| {
        if token.text.contains('\n') { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    println!("{:?}: {}", reply.text, reply.stop);
    Ok(())
}
