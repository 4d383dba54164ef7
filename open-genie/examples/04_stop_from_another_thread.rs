//! Runs a session on a thread of its own, as a server does, and stops its reply from here.

use std::sync::mpsc;
use std::thread;

use open_genie::{Error, Options, Session};

fn main() -> Result<(), Error> {
    let bundle = std::env::args().nth(1).map_or_else(open_genie::demo::bundle, |path| Ok(path.into()))?;
    let mut session = Session::open(bundle, &Options::new())?; // `Session` is `Send`
    let stop = session.stop_handle();
    let (sender, tokens) = mpsc::sync_channel(0);

    let worker = thread::spawn(move || {
        let mut reply = session.generate("ROMEO:");
        for token in &mut reply {
            if let Some(error) = sender.send(token?.text).err() {
                eprintln!("{error}: the receiver is gone");
                break;
            }
        }
        Ok::<_, Error>(reply.stop_here())
    });
    for (n, text) in tokens.iter().enumerate() {
        print!("{text}");
        if n == 9 {
            stop.stop();
        }
    }
    let reply = worker.join().expect("the worker does not panic")?;
    println!("\n{} tokens, stopped by {}", reply.tokens.len(), reply.stop);
    assert!(reply.tokens.len() < 20, "it was stopped");
    Ok(())
}
