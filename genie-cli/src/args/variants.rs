//! `--ar`, `--cl`: which variants there are.

/// The variants: every AR with every CL that is at least as long.
#[derive(clap::Args)]
pub struct VariantArgs {
    /// Tokens per step (AR), one graph variant each.
    ///
    /// [default: 1,32,128, without those that are wider than the longest default context]
    #[arg(long, value_delimiter = ',', value_name = "N,N", value_parser = ar)]
    ar: Vec<u32>,
    /// Context lengths (CL), in tokens.
    ///
    /// [default: 512,2048, or no more than the positions that the model was trained for]
    #[arg(long, value_delimiter = ',', value_name = "N,N", value_parser = cl)]
    cl: Vec<u32>,
}

impl VariantArgs {
    /// Whether `--ar` was given.
    pub fn names_ars(&self) -> bool {
        !self.ar.is_empty()
    }

    /// The ARs and CLs. Those that no flag gives keep to what the model can.
    pub fn widths(&self, positions: Option<usize>) -> (Vec<u32>, Vec<u32>) {
        let most = positions.and_then(|n| u32::try_from(n).ok()).unwrap_or(u32::MAX);
        let mut cls = self.cl.clone();
        if cls.is_empty() {
            cls.extend(CLS.map(|cl| cl.min(most)));
            cls.dedup();
        }
        let mut ars = self.ar.clone();
        if ars.is_empty() {
            let longest = if self.cl.is_empty() { cls[cls.len() - 1] } else { LONGEST };
            ars.extend(ARS.into_iter().filter(|&ar| ar <= longest));
        }
        (ars, cls)
    }
}

const ARS: [u32; 3] = [1, 32, 128];
const CLS: [u32; 2] = [512, 2048];

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

#[cfg(test)]
mod tests {
    use super::*;

    fn widths(ar: &[u32], cl: &[u32], positions: Option<usize>) -> (Vec<u32>, Vec<u32>) {
        VariantArgs { ar: ar.into(), cl: cl.into() }.widths(positions)
    }

    #[test]
    fn defaults_keep_to_a_models_positions_and_flags_stay() {
        assert_eq!(widths(&[], &[], None), (vec![1, 32, 128], vec![512, 2048]));
        assert_eq!(widths(&[], &[], Some(1024)), (vec![1, 32, 128], vec![512, 1024]));
        assert_eq!(widths(&[], &[], Some(256)), (vec![1, 32, 128], vec![256]));
        assert_eq!(widths(&[], &[], Some(64)), (vec![1, 32], vec![64]));
        // What is asked for is asked for: the compiler refuses what cannot be.
        assert_eq!(widths(&[1, 128], &[], Some(64)), (vec![1, 128], vec![64]));
        assert_eq!(widths(&[], &[2048], Some(64)), (vec![1, 32, 128], vec![2048]));
    }
}
