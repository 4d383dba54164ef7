//! The project's own chores: `cargo xtask COMMAND`. One file per task; none of them links our libraries.
#![forbid(unsafe_code)]

mod ci;
mod codegen;
mod tidy;
mod workspace;

use clap::{Parser, Subcommand};

/// Chores of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything that must pass before a change lands.
    Ci(ci::CiArgs),
    /// Rewrite the generated tables of qnn-sys from qnn-sys/abi, or check that they are up to date.
    Codegen(codegen::CodegenArgs),
    /// House rules that no other tool checks: layers, file heads, file sizes, READMEs.
    Tidy,
}

fn main() -> anyhow::Result<()> {
    match Args::parse().task {
        Task::Ci(args) => ci::run(&args),
        Task::Codegen(args) => codegen::run(&args),
        Task::Tidy => tidy::run(),
    }
}
