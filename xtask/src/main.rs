//! The project's own chores: `cargo xtask COMMAND`. One file per task; none of them links our libraries, some run `genie`.
#![forbid(unsafe_code)]

mod book;
mod ci;
mod clients;
mod codegen;
mod cross;
mod deploy;
mod dist;
mod downstream;
mod fleet;
mod fuzz;
mod host_lib;
mod kills;
mod llama_cpp;
mod mutants;
mod perplexity_check;
mod qnn_runtime;
mod quantised_bits;
mod random_gguf;
mod random_model;
mod tidy;
mod vocab_check;
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
    /// Run official clients in pinned versions, and schemathesis, against `genie serve`; needs python3, node and their registries.
    Clients(clients::ClientsArgs),
    /// Make a book of the documents, with a reference of all commands; needs mdBook.
    Book(book::BookArgs),
    /// Rewrite the generated tables of qnn-sys from qnn-sys/abi, or check that they are up to date.
    Codegen(codegen::CodegenArgs),
    /// Fetch Qualcomm's QNN libraries (the HTP emulator on a host) into target/qnn-runtime.
    QnnRuntime(qnn_runtime::QnnRuntimeArgs),
    /// Build the workspace for another machine; installs linker and standard library where they are missing.
    Build(cross::BuildArgs),
    /// Run test suites of that machine under an emulator.
    Test(cross::TestArgs),
    /// Build `genie` for a device and have `genie deploy` put it and a bundle there.
    Deploy(deploy::DeployArgs),
    /// Make release archives: program, libQnnHost.so, licences, completions, manual pages.
    Dist(dist::DistArgs),
    /// Build the host backend as libQnnHost.so.
    HostLib,
    /// Run two servers behind nginx and a LiteLLM proxy: hit rates, drain, a killed server; needs apt and PyPI.
    Fleet(fleet::FleetArgs),
    /// Feed the readers of foreign bytes with changed inputs under libFuzzer; needs a nightly compiler.
    Fuzz(fuzz::FuzzArgs),
    /// Build the numbered examples outside of this workspace, as a user's program, and run them.
    Downstream,
    /// Kill `genie` at random moments of compiling, saving and its first run: nothing may be lost or left over.
    Kills(kills::KillsArgs),
    /// Change file layer and planner in small ways, one at a time: their tests must notice each.
    Mutants(mutants::MutantsArgs),
    /// Write a Hugging Face folder of a known shape with random weights, to measure speed with.
    RandomModel(random_model::RandomModelArgs),
    /// Compare perplexity with llama.cpp's on the same GGUF files: the demo model in several types, and each family.
    PerplexityCheck(perplexity_check::PerplexityCheckArgs),
    /// Compare the weights in bundles of files that llama.cpp quantised with ggml's numbers, bit for bit.
    QuantisedBits(quantised_bits::QuantisedBitsArgs),
    /// Compare tokens of llama.cpp's vocabularies with the expected ones, and render its chat templates.
    VocabCheck(vocab_check::VocabCheckArgs),
    /// Check rules that no other tool knows: layers, file heads and sizes, words, paths in documents, import circles.
    Tidy(tidy::TidyArgs),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().task {
        Task::Ci(args) => ci::run(&args),
        Task::Clients(args) => clients::run(&args),
        Task::Book(args) => book::run(&args),
        Task::Codegen(args) => codegen::run(&args),
        Task::QnnRuntime(args) => qnn_runtime::run(&args),
        Task::Build(args) => cross::build(&args),
        Task::Test(args) => cross::test(&args),
        Task::Deploy(args) => deploy::run(&args),
        Task::Dist(args) => dist::run(&args),
        Task::HostLib => host_lib::run(),
        Task::Fleet(args) => fleet::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Downstream => downstream::run(),
        Task::Kills(args) => kills::run(&args),
        Task::Mutants(args) => mutants::run(&args),
        Task::RandomModel(args) => random_model::run(&args),
        Task::PerplexityCheck(args) => perplexity_check::run(&args),
        Task::QuantisedBits(args) => quantised_bits::run(&args),
        Task::VocabCheck(args) => vocab_check::run(&args),
        Task::Tidy(args) => tidy::run(&args),
    }
}
