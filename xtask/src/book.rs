//! `cargo xtask book`: the documents as a book of mdBook's, with a reference of all commands, below `target/book`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::workspace::{all_files, program, root, sh};

/// What is made.
#[derive(Args)]
pub struct BookArgs {
    /// Write the sources of the book only; no mdBook is needed.
    #[arg(long)]
    sources: bool,
}

/// Copies the pages, writes the reference, and has mdBook build the book.
pub fn run(args: &BookArgs) -> Result<()> {
    let genie = program("genie")?;
    let output = Command::new(&genie).args(["man", "--markdown"]).output().context("cannot start `genie`")?;
    ensure!(output.status.success(), "`genie man --markdown` failed: {}", String::from_utf8_lossy(&output.stderr));
    let book = root().join("target/book");
    write_sources(&root().join("docs"), &book, &output.stdout)?;
    if args.sources {
        println!("{}", book.join("src").display());
        return Ok(());
    }
    let found = Command::new("mdbook").arg("--version").output().is_ok_and(|output| output.status.success());
    ensure!(found, "no `mdbook` is on the path: `cargo install mdbook`, or `--sources`");
    sh("mdbook", &["build", &book.display().to_string()], &[])?;
    println!("{}", book.join("html/index.html").display());
    Ok(())
}

/// A fresh folder with mdBook's settings and `src`. Links that leave the documents go to the repository's files.
fn write_sources(docs: &Path, book: &Path, reference: &[u8]) -> Result<()> {
    let src = book.join("src");
    if src.exists() {
        fs::remove_dir_all(&src).with_context(|| format!("cannot clear `{}`", src.display()))?;
    }
    for file in all_files(docs)? {
        let to = src.join(file.strip_prefix(docs).expect("listed below the folder"));
        fs::create_dir_all(to.parent().expect("it lies in the book"))?;
        fs::copy(&file, &to).with_context(|| format!("cannot copy `{}`", file.display()))?;
    }
    let summary = src.join("SUMMARY.md");
    let text = fs::read_to_string(&summary).with_context(|| format!("cannot read `{}`", summary.display()))?;
    let mark = "<!-- commands.md: written by `cargo xtask book` -->";
    ensure!(text.contains(mark), "`{}` has no place for the commands: expected a line `{mark}`", summary.display());
    let text = text.replace(mark, "- [Commands](commands.md)") + &rest(docs, &text)?;
    fs::write(&summary, text)?;
    fs::write(src.join("commands.md"), reference)?;
    let config = "[book]\ntitle = \"open-genie\"\nlanguage = \"en\"\nsrc = \"src\"\n\n[build]\nbuild-dir = \"html\"\n";
    fs::write(book.join("book.toml"), config).context("cannot write `book.toml`")
}

/// The pages that a summary names.
fn named(summary: &str) -> Vec<&str> {
    summary.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(name, _)| name).collect()
}

/// A part for the pages that the summary does not name, so that none is missing from the book.
fn rest(docs: &Path, summary: &str) -> Result<String> {
    let found = named(summary);
    let pages = all_files(docs)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "md"));
    let names = pages.filter_map(|path| Some(path.strip_prefix(docs).ok()?.display().to_string()));
    let names: Vec<String> = names.filter(|name| name != "SUMMARY.md" && !found.contains(&name.as_str())).collect();
    let lines = names.iter().map(|name| format!("- [{}]({name})\n", name.trim_end_matches(".md")));
    Ok(if names.is_empty() { String::new() } else { format!("\n# More\n\n{}", lines.collect::<String>()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_pages_that_are_there_and_each_once() {
        let docs = root().join("docs");
        let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
        let found = named(&summary);
        assert!(found.len() > 40);
        for (i, name) in found.iter().enumerate() {
            assert!(docs.join(name).is_file(), "`docs/SUMMARY.md` names `{name}`, which is not there");
            assert!(!found[..i].contains(name), "`docs/SUMMARY.md` names `{name}` twice");
        }
    }

    #[test]
    fn the_book_has_the_pages_and_the_commands() {
        let folder = tempfile::tempdir().unwrap();
        let (book, docs) = (folder.path().join("book"), folder.path().join("docs"));
        for file in all_files(&root().join("docs")).unwrap() {
            let to = docs.join(file.strip_prefix(root().join("docs")).unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(&file, &to).unwrap();
        }
        fs::write(docs.join("a-late-page.md"), "# Late\n").unwrap();
        for _ in 0..2 {
            write_sources(&docs, &book, b"# Commands\n").unwrap();
        }
        let summary = fs::read_to_string(book.join("src/SUMMARY.md")).unwrap();
        for name in named(&summary) {
            assert!(book.join("src").join(name).is_file(), "{name}");
        }
        assert!(named(&summary).contains(&"a-late-page.md"), "no page is left out");
        assert!(named(&summary).contains(&"commands.md") && book.join("book.toml").is_file());
    }
}
