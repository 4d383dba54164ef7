//! Saves a conversation into a folder, and goes on with it in a new session as if nothing had happened.

use open_genie::{Error, Options, Session};

fn main() -> Result<(), Error> {
    let bundle = std::env::args().nth(1).map_or_else(open_genie::demo::bundle, |path| Ok(path.into()))?;
    let folder = std::env::temp_dir().join(format!("open-genie-example-{}", std::process::id()));

    let mut first = Session::open(&bundle, &Options::new())?;
    first.set_max_tokens(Some(12));
    first.generate("ROMEO:").into_reply()?;
    let report = first.save(&folder)?;
    if let Some(why) = report.without_genie {
        println!("saved without libGenie's own files: {why}");
    }

    let mut second = Session::open(&bundle, &Options::new())?;
    second.set_max_tokens(Some(12));
    let format = second.restore(&folder)?;
    println!("restored {} tokens, {format:?}", second.history().len());
    let (a, b) = (first.generate("\n").into_reply()?, second.generate("\n").into_reply()?);
    assert_eq!(a.tokens, b.tokens, "both go on alike");
    println!("{}", b.text);
    let _ = std::fs::remove_dir_all(&folder); // a folder left behind is only untidy
    Ok(())
}
