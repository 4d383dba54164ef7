//! `genie explain`: what the KV cache does for a prompt, measured on the graphs that run and counted from the model's shape; as a walk in
//! the terminal and a report in a folder.

pub mod facts;
mod gather;
mod modes;
mod report;

use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use explain::{Block, Document, Shape};
use genie_types::TokenId;
use open_genie::{Naive, NaiveSource, TokenModel};

use super::compile::Bars;
use crate::args::number;
use crate::args::{BackendArgs, BundleArgs};
use crate::exit::ExitStatus;
use crate::failure::UserError;
use crate::outfile;
use crate::printer::Printer;
use facts::Facts;
use gather::Sides;

/// Of headings, and of what stands above tables; nothing where stdout is no terminal.
const BOLD: &str = "\x1b[1m";
const COLOUR: &str = "\x1b[36m";
const PLAIN: &str = "\x1b[0m";
/// Widest graph without a cache that is compiled, and so the longest reply that is looked at.
const WIDEST: usize = 512;
/// Narrower ones, so that short steps are not all padding.
const WIDTHS: [usize; 3] = [64, 128, 256];
/// Tokens behind the prompt that the cache takes in each mode.
const MODE_STEPS: usize = 16;
/// Steps of the picture of graphs.
const STEPS: usize = 24;

/// Flags of `genie explain`.
#[derive(clap::Args)]
pub struct Args {
    /// The model, as for `--model`.
    #[arg(value_name = "MODEL", conflicts_with_all = ["named", "config"])]
    pub word: Option<String>,
    #[command(flatten)]
    pub bundle: BundleArgs,
    /// The prompt to explain it with.
    #[arg(long, short, default_value = "ROMEO:\nWhat light is this?")]
    pub prompt: String,
    /// Tokens to generate both ways, to compare.
    #[arg(long, short = 'n', default_value_t = 32, value_parser = number::at_least_one)]
    pub tokens: usize,
    /// The checkpoint that the graphs without a cache are compiled from [default: the one of the manifest, if it is found: the demo, what
    /// the cache was compiled from, or a folder of that name beside the bundle or here].
    #[arg(long, value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,
    /// The folder for the report: Markdown, one HTML file, pictures, tables, all figures as JSON.
    #[arg(long, short, value_name = "DIR", default_value = "explain")]
    pub output: PathBuf,
    /// Only these sections.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SECTION,SECTION")]
    pub only: Vec<Section>,
    /// Print all figures as one JSON document in place of the walk.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub backend: BackendArgs,
}

/// A section of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Section {
    /// What is kept and what is recomputed, in words.
    Idea,
    /// Tokens with the cache and without it, side by side.
    Equality,
    /// Times and speed-up.
    Time,
    /// Operations.
    Operations,
    /// Bytes of the cache.
    Memory,
    /// Where a step's time goes; the machine's limits.
    Profile,
    /// The graphs that ran.
    Graphs,
    /// The cache as it fills in each mode, and the bytes that an update moves.
    Modes,
}

/// Gathers, prints, writes.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    outfile::must_take_files("--output", &args.output)?;
    let options = args.backend.options()?;
    let bundle = args.bundle.read_word(args.word.as_deref(), None, &args.backend, printer)?;
    let mut model = bundle.clone().open(&options)?;
    let limit = model.engine().context_size().min(WIDEST);
    let mut widths: Vec<u32> = WIDTHS.into_iter().filter(|&width| width < limit).map(|width| width as u32).collect();
    widths.push(limit as u32);
    let deferred = printer.interrupt().defer();
    let bars = &mut Bars::new(printer, false);
    let mut naive = Naive::open(model.bundle(), args.checkpoint.as_deref(), &widths, &options, bars)?;
    drop(deferred);
    printer.info(format_args!("graphs without a cache, from {}", naive.source().checkpoint.display()));

    let tokenizer = model.tokenizer()?;
    let prompt = tokenizer.encode(&args.prompt)?;
    if prompt.is_empty() || prompt.len() + 1 > limit {
        let found = format!("a prompt of {} tokens cannot be explained", prompt.len());
        return Err(UserError::error(found, format!("give a prompt of 1 to {} tokens", limit - 1)));
    }
    let text = |token: TokenId| tokenizer.decode(&[token]).unwrap_or_else(|_| "?".into());
    let shape = shape_of(&model.bundle().name(), naive.source());
    let wanted = |section: Section| args.only.is_empty() || args.only.contains(&section);
    let mut facts = Facts {
        checkpoint: naive.source().checkpoint.display().to_string(),
        context: limit,
        prompt: args.prompt.clone(),
        tokens: prompt.iter().map(|&token| (token.0, text(token))).collect(),
        shape,
        equality: None,
        time: None,
        operations: None,
        memory: None,
        profile: None,
        graphs: None,
        modes: None,
    };
    let mut sides = Sides { model: &mut model, naive: &mut naive, prompt };
    if wanted(Section::Equality) {
        let bar = printer.bar(args.tokens as u64, "equality", false);
        facts.equality = Some(sides.equality(args.tokens, &text, &bar)?);
        bar.finish_and_clear();
    }
    if wanted(Section::Time) {
        let bar = printer.bar(8, "time", false);
        facts.time = Some(sides.times(&bar)?);
        bar.finish_and_clear();
    }
    if wanted(Section::Operations) {
        facts.operations = Some(gather::operations(&facts.shape));
    }
    if wanted(Section::Memory) {
        facts.memory = Some(sides.memory(&facts.shape));
    }
    if wanted(Section::Profile) {
        facts.profile = Some(sides.profile(&facts.shape)?);
    }
    if wanted(Section::Graphs) {
        facts.graphs = Some(sides.graphs(STEPS)?);
    }
    if wanted(Section::Modes) {
        facts.modes = Some(modes::gather(&bundle, &options, &tokenizer.encode(&args.prompt)?, MODE_STEPS)?);
    }
    let document = report::document(&facts, wanted(Section::Idea))?;
    let files = write(&document, &facts, &args.output)?;
    if args.json {
        printer.data_line(serde_json::to_string(&facts)?)?;
    } else {
        print(&document, printer)?;
        for file in &files {
            printer.data_line(args.output.join(file).display())?;
        }
    }
    let differs = facts.equality.as_ref().is_some_and(|equality| !equality.equal);
    Ok(if differs { ExitStatus::Failed } else { ExitStatus::Done })
}

fn shape_of(name: &str, source: &NaiveSource) -> Shape {
    Shape {
        name: name.to_owned().into(),
        layers: source.layers as u64,
        hidden: source.hidden as u64,
        heads: source.heads as u64,
        kv_heads: source.kv_heads as u64,
        head_dim: source.head_dim as u64,
        ffn: source.ffn as u64,
        ffn_matrices: if source.gated { 3 } else { 2 },
        vocab: source.vocab as u64,
    }
}

/// Writes the report and its parts; returns their names.
fn write(document: &Document, facts: &Facts, folder: &Path) -> Result<Vec<String>> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    let mut files = vec![
        ("report.md".to_owned(), document.markdown()),
        ("report.html".to_owned(), document.html()),
        ("facts.json".to_owned(), serde_json::to_string_pretty(facts)? + "\n"),
    ];
    files.extend(document.tables().map(|table| (format!("{}.csv", table.name), table.csv())));
    files.extend(document.pictures().map(|picture| (format!("{}.svg", picture.name), picture.svg.clone())));
    for (name, content) in &files {
        outfile::write("--output", &folder.join(name), content)?;
    }
    Ok(files.into_iter().map(|(name, _)| name).collect())
}

/// The walk: the report without its pictures.
fn print(document: &Document, printer: &Printer) -> Result<()> {
    let colour = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let style = |sequence: &str| if colour { printer.style(sequence) } else { Ok(()) };
    for block in &document.blocks {
        match block {
            Block::Heading(text) => {
                style(BOLD)?;
                printer.data_line(format_args!("\n{text}\n{}", "─".repeat(text.chars().count())))?;
                style(PLAIN)?;
            }
            Block::Text(text) => printer.data_line(text)?,
            Block::Lines(lines) => lines.iter().try_for_each(|line| printer.data_line(format_args!("  {line}")))?,
            Block::Table(table) => {
                style(COLOUR)?;
                printer.data_line(format_args!("\n{}", table.caption))?;
                style(PLAIN)?;
                let width = |i: usize| {
                    let cells = std::iter::once(&table.columns).chain(&table.rows).filter_map(|row| row.get(i));
                    cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
                };
                let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
                for row in std::iter::once(&table.columns).chain(&table.rows) {
                    let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, &w)| format!("{cell:>w$}")).collect();
                    printer.data_line(format_args!("  {}", cells.join("  ")))?;
                }
            }
            Block::Picture(_) => {}
        }
    }
    Ok(())
}
