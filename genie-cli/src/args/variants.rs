//! `--ar`, `--cl`: which variants there are.

/// The variants: every AR with every CL that is at least as long.
#[derive(clap::Args)]
pub struct VariantArgs {
    /// Tokens per step (AR), one graph variant each.
    #[arg(long, value_delimiter = ',', default_value = "1,32,128", value_name = "N,N")]
    pub ar: Vec<u32>,
    /// Context lengths (CL), in tokens.
    #[arg(long, value_delimiter = ',', default_value = "512,2048", value_name = "N,N")]
    pub cl: Vec<u32>,
}
