//! The example crate in `docs/kv-example` runs, and is a dozen lines over no other crate of ours but
//! `genie-types`.

#[path = "../../docs/kv-example/src/main.rs"]
mod example;

#[test]
fn the_cache_alone_plans_and_runs_over_plain_buffers() {
    example::main().unwrap();
}

#[test]
fn it_needs_nothing_else_of_ours() {
    let manifest = include_str!("../../docs/kv-example/Cargo.toml");
    let (_, dependencies) = manifest.split_once("[dependencies]").unwrap();
    let (dependencies, _) = dependencies.split_once("\n[").unwrap();
    let names: Vec<_> = dependencies.lines().filter_map(|l| l.split_once(" = ")).map(|(name, _)| name).collect();
    assert_eq!(names, ["genie-types", "kvmanager"]);
    let own = include_str!("../Cargo.toml");
    let (_, own) = own.split_once("[dependencies]").unwrap();
    let (own, _) = own.split_once("\n[").unwrap();
    let ours = ["engine", "qnn-", "nsp-graph", "compiler", "dialog", "genie-cli"];
    assert!(!own.lines().any(|line| ours.iter().any(|name| line.starts_with(name))), "{own}");
}
