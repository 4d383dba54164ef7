//! `--ar`, `--cl`: which variants there are.

/// The variants: every AR with every CL that is at least as long.
#[derive(clap::Args)]
pub struct VariantArgs {
    /// Tokens per step (AR), one graph variant each.
    #[arg(long, value_delimiter = ',', default_value = "1,32,128", value_name = "N,N", value_parser = ar)]
    pub ar: Vec<u32>,
    /// Context lengths (CL), in tokens.
    #[arg(long, value_delimiter = ',', default_value = "512,2048", value_name = "N,N", value_parser = cl)]
    pub cl: Vec<u32>,
}

/// Longest context, and widest step.
pub const LONGEST: u32 = 1 << 20;

fn ar(text: &str) -> Result<u32, String> {
    at_least_1(text, "at least 1 token per step")
}

fn cl(text: &str) -> Result<u32, String> {
    at_least_1(text, "a context length of at least 1 token")
}

fn at_least_1(text: &str, expected: &str) -> Result<u32, String> {
    match text.trim().parse() {
        Ok(0) => Err(format!("expected {expected}")),
        Ok(n) if n <= LONGEST => Ok(n),
        _ => Err(format!("expected {expected}, at most {LONGEST}")),
    }
}
